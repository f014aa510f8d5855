package appspec

import (
	"strings"

	"github.com/argomesh/argomesh/stream"
)

// Fate is what becomes of a field of a spec on its way to the other side.
type Fate uint8

const (
	// Same says that the field arrives as it is. For an Application on a spoke that is
	// up to Argo CD's normal form: see normalize.
	Same Fate = iota + 1
	// Rewritten says that it is put in other words there, to mean the same.
	Rewritten
	// LeftOut says that it stays where it is, with all that is in it.
	LeftOut
)

func (f Fate) String() string {
	switch f {
	case Same:
		return "as it is"
	case Rewritten:
		return "rewritten"
	case LeftOut:
		return "left out"
	}
	return "undecided"
}

// Field is the decision about fields of a spec that fare alike. A field that Argo CD has
// and no decision names would arrive as it is, since we read no more of a spec than we
// must; a test holds these against its types.
type Field struct {
	// In are the paths of what they are fields of, as source.helm.parameters[]; empty for
	// the spec itself.
	In []string
	// Names are their names. What is in one of them has a decision of its own, unless it
	// is left out.
	Names []string
	// Spoke is their fate on the spoke of a managed agent, and Hub that on the hub of an
	// autonomous one's.
	Spoke, Hub Fate
	// Why says for people what is not plain.
	Why string
}

// Paths are the paths of the fields.
func (f Field) Paths() []string {
	var out []string
	for _, in := range f.In {
		for _, name := range f.Names {
			if in != "" {
				name = in + "." + name
			}
			out = append(out, name)
		}
	}
	return out
}

// Fields are the decisions about the spec of a kind; none for one that has no spec.
func Fields(kind stream.Kind) []Field {
	switch kind {
	case stream.AppProject:
		return projectFields
	case stream.Application:
		return applicationFields
	}
	return nil
}

var projectFields = []Field{
	same(spec,
		"sourceRepos clusterResourceWhitelist clusterResourceBlacklist namespaceResourceWhitelist namespaceResourceBlacklist").
		because("with those of global projects"),
	same(of("clusterResourceWhitelist[]", "clusterResourceBlacklist[]"), "group kind name"),
	same(of("namespaceResourceWhitelist[]", "namespaceResourceBlacklist[]"), "group kind"),
	same(spec, "description orphanedResources"),
	same(of("orphanedResources"), "warn ignore"),
	same(of("orphanedResources.ignore[]"), "group kind name"),
	same(spec, "signatureKeys sourceIntegrity").because("managed agents get the keys of the hub"),
	same(of("signatureKeys[]"), "keyID"),
	same(of("sourceIntegrity"), "git"),
	same(of("sourceIntegrity.git"), "policies"),
	same(of("sourceIntegrity.git.policies[]"), "repos gpg"),
	same(of("sourceIntegrity.git.policies[].repos[]"), "url"),
	same(of("sourceIntegrity.git.policies[].gpg"), "mode keys"),
	rewritten(spec, "destinations").
		because("those of the agent alone, with those of global projects; on the hub none that denies"),
	rewritten(of("destinations[]"), "name server").because("the agent's cluster has other names there"),
	same(of("destinations[]"), "namespace"),
	rewritten(spec, "sourceNamespaces").
		because("the agent's own, as they are named there; none for the namespace of a spoke's Argo CD, which every project admits"),
	rewritten(spec, "syncWindows").
		because("those that can match the agent's cluster, with those of global projects; what is the same there becomes one"),
	rewritten(of("syncWindows[]"), "clusters").because("the agent's cluster has other names there"),
	same(of("syncWindows[]"), "kind schedule duration timeZone applications namespaces andOperator description"),
	same(of("syncWindows[]"), "manualSync syncOverrun").because("of windows that become one only if all have it"),
	rewritten(spec, "destinationServiceAccounts").because("those of the agent's cluster, with those of global projects"),
	rewritten(of("destinationServiceAccounts[]"), "server").because("the agent's cluster has another there"),
	same(of("destinationServiceAccounts[]"), "namespace defaultServiceAccount"),
	leftOut(spec, "permitOnlyProjectScopedClusters").
		because("answered where the project is: one that does not permit the agent's cluster is not sent"),
	{In: spec, Names: words("roles"), Spoke: LeftOut, Hub: Rewritten,
		Why: "for the people of the side where the project is; on the hub only if the Agent has `spec.projectRoles: mirror`"},
	{In: of("roles[]"), Names: words("name description policies groups"), Spoke: LeftOut, Hub: Rewritten,
		Why: "about the mirror, in namespaces of the agent; a role that says anything else is left out"},
	leftOut(of("roles[]"), "jwtTokens").because("tokens are of the side whose key signs them"),
}

var applicationFields = []Field{
	{In: spec, Names: words("project"), Spoke: Same, Hub: Rewritten,
		Why: "on the hub an autonomous agent's projects begin with its name"},
	rewritten(spec, "destination"),
	rewritten(of("destination"), "name server").because("the agent's cluster has other names there"),
	same(of("destination"), "namespace"),
	same(spec, "source sources sourceHydrator syncPolicy ignoreDifferences info revisionHistoryLimit").
		because("on a spoke in Argo CD's normal form: without blocks that say nothing"),
	same(of("source", "sources[]"),
		"repoURL path targetRevision chart ref name tagPrefix helm kustomize directory plugin"),
	same(of("sourceHydrator"), "drySource syncSource hydrateTo"),
	same(of("sourceHydrator.drySource"), "repoURL path targetRevision helm kustomize directory plugin"),
	same(of("sourceHydrator.syncSource"), "repoURL targetBranch path"),
	same(of("sourceHydrator.hydrateTo"), "targetBranch"),
	same(tool("helm"),
		"valueFiles parameters releaseName values fileParameters version passCredentials ignoreMissingValueFiles skipCrds "+
			"valuesObject namespace kubeVersion apiVersions skipTests skipSchemaValidation"),
	same(tool("helm.parameters[]"), "name value forceString"),
	same(tool("helm.fileParameters[]"), "name path"),
	same(tool("kustomize"),
		"namePrefix nameSuffix images commonLabels version commonAnnotations forceCommonLabels forceCommonAnnotations namespace "+
			"commonAnnotationsEnvsubst replicas patches components ignoreMissingComponents labelWithoutSelector kubeVersion apiVersions labelIncludeTemplates"),
	same(tool("kustomize.replicas[]"), "name count"),
	same(tool("kustomize.patches[]"), "path patch target options"),
	same(tool("kustomize.patches[].target"), "group version kind name namespace annotationSelector labelSelector"),
	same(tool("directory"), "recurse jsonnet exclude include"),
	same(tool("directory.jsonnet"), "extVars tlas libs"),
	same(tool("directory.jsonnet.extVars[]", "directory.jsonnet.tlas[]"), "name value code"),
	same(tool("plugin"), "name env parameters"),
	same(tool("plugin.env[]"), "name value"),
	same(tool("plugin.parameters[]"), "name string map array"),
	same(of("syncPolicy"), "automated syncOptions retry managedNamespaceMetadata"),
	same(of("syncPolicy.automated"), "prune selfHeal allowEmpty enabled"),
	same(of("syncPolicy.retry"), "limit backoff refresh"),
	same(of("syncPolicy.retry.backoff"), "duration factor maxDuration"),
	same(of("syncPolicy.managedNamespaceMetadata"), "labels annotations"),
	same(of("ignoreDifferences[]"), "group kind name namespace jsonPointers jqPathExpressions managedFieldsManagers"),
	same(of("info[]"), "name value"),
}

// spec is where the fields of the spec itself are.
var spec = of("")

func of(paths ...string) []string { return paths }

// tool are the places of the settings of a tool: those of each source.
func tool(paths ...string) []string {
	var out []string
	for _, source := range []string{"source", "sources[]", "sourceHydrator.drySource"} {
		for _, path := range paths {
			out = append(out, source+"."+path)
		}
	}
	return out
}

func words(names string) []string { return strings.Fields(names) }

func same(in []string, names string) Field {
	return Field{In: in, Names: words(names), Spoke: Same, Hub: Same}
}
func rewritten(in []string, names string) Field {
	return Field{In: in, Names: words(names), Spoke: Rewritten, Hub: Rewritten}
}
func leftOut(in []string, names string) Field {
	return Field{In: in, Names: words(names), Spoke: LeftOut, Hub: LeftOut}
}

func (f Field) because(why string) Field {
	f.Why = why
	return f
}

// LeaveOut takes the fields out of a project's spec that the other side does not get.
func LeaveOut(spec map[string]any, fate func(Field) Fate) {
	for _, f := range projectFields {
		if fate(f) == LeftOut {
			for _, path := range f.Paths() {
				delete(spec, path) // what is not of the spec itself, a role's, is in none
			}
		}
	}
}

package appspec

import (
	"encoding/json"
	"slices"
	"strings"
)

// argocd-server sets an operation of an Application by an update of the whole of it, which it
// has read into Argo CD's Go types. These leave out what says nothing, so what is stored
// otherwise comes back changed: a policy would refuse the operation for the sake of the spec,
// and the spec would have to be written once more. So mirrors are kept in the form that the
// types write.
//
// Argo CD before 3.4 writes an empty block jsonnet in each block directory, and later releases
// write none: there is no form for both, and mirrors have that of the later ones.

// keptEmpty are the fields of an Application's spec that stay though they say nothing: what
// has to be there, and what tells nothing from absence. A source is one of sources, of source
// and of sourceHydrator.drySource.
var keptEmpty = pathSet(
	words("project destination source syncPolicy revisionHistoryLimit sourceHydrator sourceHydrator.drySource sourceHydrator.syncSource"),
	words("sourceHydrator.syncSource.targetBranch sourceHydrator.syncSource.path sourceHydrator.hydrateTo sourceHydrator.hydrateTo.targetBranch"),
	// Those of a dry source are required, and so never empty in one that the API server has.
	words("sourceHydrator.drySource.repoURL sourceHydrator.drySource.targetRevision sourceHydrator.drySource.path"),
	// Of these the types of earlier releases leave out what is false, and enabled alone does
	// not mean the same when it is absent.
	words("syncPolicy.automated syncPolicy.automated.enabled syncPolicy.retry syncPolicy.retry.backoff syncPolicy.retry.backoff.factor"),
	words("syncPolicy.managedNamespaceMetadata info[].name info[].value ignoreDifferences[].kind"),
	tool("helm", "helm.valuesObject", "kustomize", "kustomize.replicas[].name", "kustomize.replicas[].count",
		"kustomize.patches[].target", "directory", "directory.jsonnet.extVars[].name", "directory.jsonnet.extVars[].value",
		"directory.jsonnet.tlas[].name", "directory.jsonnet.tlas[].value", "plugin", "plugin.env[].name",
		"plugin.env[].value",
		"plugin.parameters[].name", "plugin.parameters[].string", "plugin.parameters[].map", "plugin.parameters[].array"),
	of("source.repoURL", "sources[].repoURL"),
)

// keptWhole are those in which everything is kept as it is: maps of what people name, and
// values that no type of Argo CD describes.
var keptWhole = pathSet(
	tool("helm.valuesObject", "kustomize.commonLabels", "kustomize.commonAnnotations", "kustomize.patches[].options",
		"plugin.parameters[].map"),
	of("syncPolicy.managedNamespaceMetadata.labels", "syncPolicy.managedNamespaceMetadata.annotations"),
)

func pathSet(lists ...[]string) map[string]bool {
	set := map[string]bool{}
	for _, name := range slices.Concat(lists...) {
		set[name] = true
	}
	return set
}

// MakeTyped brings the spec of an Application into the form in which Argo CD's types write it.
func MakeTyped(spec map[string]any) {
	eachOmitted(spec, "", func(m map[string]any, name string) { delete(m, name) })
}

// IsTyped reports whether a spec is in that form.
func IsTyped(spec map[string]any) bool {
	typed := true
	eachOmitted(spec, "", func(map[string]any, string) { typed = false })
	return typed
}

// eachOmitted calls found for each field that the types leave out of m, which is at path. A
// field comes after those that are in it, and found may delete it.
func eachOmitted(m map[string]any, path string, found func(m map[string]any, name string)) {
	for name, value := range m {
		at := strings.TrimPrefix(path+"."+name, ".")
		if !keptWhole[at] {
			eachOmittedIn(value, at, found)
		}
		if value == nil || isNothing(value) && !keptEmpty[at] {
			found(m, name)
		}
	}
}

func eachOmittedIn(value any, path string, found func(m map[string]any, name string)) {
	switch value := value.(type) {
	case map[string]any:
		eachOmitted(value, path, found)
	case []any:
		for _, element := range value {
			eachOmittedIn(element, path+"[]", found)
		}
	}
}

// isNothing is IsZero of a number, too.
func isNothing(v any) bool {
	n, is := v.(json.Number)
	return IsZero(v) || is && n.String() == "0"
}

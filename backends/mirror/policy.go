package mirror

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Policy is what the owner of a managed spoke lets the hub do there. What it does not
// allow is refused, and the hub shows which rule refused it; what is there already
// stays, and deletions without workloads always pass. Its zero value allows nothing. A
// nil *Policy allows everything but write credentials, and to adopt nothing.
type Policy struct {
	Kinds                 []string `koanf:"kinds" help:"what the hub may store here: application, appproject, repository, repo-creds, repository-write, repo-write-creds, gpg-keys, tls-certificates, ssh-known-hosts"`
	Projects              []string `koanf:"projects" help:"globs of the AppProjects that the hub may store here and that its Applications and repositories may belong to; one of the spoke's own, such as default, only by its very name"`
	DestinationNamespaces []string `koanf:"destination_namespaces" help:"globs of the namespaces into which the hub's Applications may deploy; an AppProject that admits others is refused"`
	ClusterResources      []string `koanf:"cluster_resources" help:"globs of the kinds outside of namespaces that an AppProject of the hub may admit, as group/kind, such as /Namespace or apiextensions.k8s.io/*; none given is all of them while destination_namespaces has *, and none else"`
	ServiceAccounts       []string `koanf:"service_accounts" help:"globs of the service accounts that an AppProject of the hub may have Argo CD impersonate, as it names them: name, or namespace:name"`
	SourceRepos           []string `koanf:"source_repos" help:"globs of the URLs of repositories from which the hub's Applications may deploy, in which * ends at a slash and ** does not; * alone is all. An AppProject that admits others is refused"`
	Adopt                 []string `koanf:"adopt" help:"globs of the objects of this spoke that the hub may take over, as kind/name, or application/namespace/name outside of Argo CD's namespace: application, appproject, repository, repo-creds, repository-write, repo-write-creds; what was found comes back when the hub lets go of it"`
	Operations            []string `koanf:"operations" help:"what the hub may ask of an Application: sync, terminate, refresh, hydrate, cascade (a deletion together with its workloads), override (beside sync, of a managed agent: operations that bring what the Application does not say)"`
}

// Operations of a Policy: a sync of what the Application says, and, beside it, one of
// anything else.
const (
	operationSync     = "sync"
	operationOverride = "override"
)

// Kinds of a Policy. Those of Secrets are the values of Argo CD's label.
const (
	kindApplication  = "application"
	kindProject      = "appproject"
	kindGPGKeys      = "gpg-keys"
	kindCertificates = "tls-certificates"
	kindKnownHosts   = "ssh-known-hosts"
)

var (
	policyKinds = []string{
		kindApplication, kindProject, typeRepository, typeTemplate, typeWriteRepository, typeWriteTemplate,
		kindGPGKeys, kindCertificates, kindKnownHosts,
	}
	policyOperations = []string{operationSync, "terminate", "refresh", "hydrate", "cascade", operationOverride}
)

// PolicyKinds are all that Policy.Kinds may name.
func PolicyKinds() []string { return slices.Clone(policyKinds) }

// DefaultPolicy allows everything but credentials that may write to repositories.
func DefaultPolicy() Policy {
	return Policy{
		Kinds:                 slices.DeleteFunc(slices.Clone(policyKinds), mayWrite),
		Projects:              []string{"*"},
		DestinationNamespaces: []string{"*"},
		ServiceAccounts:       []string{"*"},
		SourceRepos:           []string{"*"},
		Operations:            slices.Clone(policyOperations),
	}
}

// Validate reports every problem, as errors that wrap identity.ErrInvalid.
func (p Policy) Validate() error {
	var problems []error
	oneOf := func(key string, list, known []string) {
		for _, s := range list {
			if !slices.Contains(known, s) {
				problems = append(problems, fmt.Errorf("%s: %q is none of %s: %w", key, s, strings.Join(known, ", "), identity.ErrInvalid))
			}
		}
	}
	globs := func(key string, list []string) {
		for _, s := range list {
			if s == "" || !parses(s) {
				problems = append(problems, fmt.Errorf("%s: %q is not a glob: %w", key, s, identity.ErrInvalid))
			}
		}
	}
	oneOf("kinds", p.Kinds, policyKinds)
	globs("projects", p.Projects)
	globs("destination_namespaces", p.DestinationNamespaces)
	globs("cluster_resources", p.ClusterResources)
	for _, s := range p.ClusterResources {
		if strings.Count(s, "/") != 1 {
			problems = append(problems, fmt.Errorf("cluster_resources: %q is not group/kind: %w", s, identity.ErrInvalid))
		}
	}
	globs("service_accounts", p.ServiceAccounts)
	globs("source_repos", p.SourceRepos)
	oneOf("operations", p.Operations, policyOperations)
	for _, pattern := range p.Adopt {
		if err := validateAdopt(pattern); err != nil {
			problems = append(problems, fmt.Errorf("adopt: %w", err))
		}
	}
	return errors.Join(problems...)
}

// LacksOverride reports whether a list of operations has sync, and not override beside it.
func LacksOverride(operations []string) bool {
	return slices.Contains(operations, operationSync) && !slices.Contains(operations, operationOverride)
}

// WithOverride is a list of operations with override.
func WithOverride(operations []string) []string {
	return append(slices.Clone(operations), operationOverride)
}

// WriteCredentials reports whether the hub may store any that may write.
func (p *Policy) WriteCredentials() bool { return p != nil && slices.ContainsFunc(p.Kinds, mayWrite) }

// AppProjects reports whether the hub may store AppProjects.
func (p *Policy) AppProjects() bool { return p.kind(kindProject) == nil }

// Repositories reports whether the hub may store Secrets of repositories.
func (p *Policy) Repositories() bool { return p == nil || slices.ContainsFunc(p.Kinds, isCredential) }

// Trust returns the ConfigMaps of which the hub may write items.
func (p *Policy) Trust() []string {
	return slices.DeleteFunc(TrustConfigMaps(), func(name string) bool { return p.trust(name) != nil })
}

func denied(rule, format string, args ...any) *stream.Refusal {
	return &stream.Refusal{
		Kind: stream.RefusalDenied, Message: "policy." + rule + " of the spoke does not allow " + fmt.Sprintf(format, args...),
	}
}

func (p *Policy) kind(kind string) *stream.Refusal {
	if p == nil && !mayWrite(kind) || p != nil && slices.Contains(p.Kinds, kind) {
		return nil
	}
	return denied("kinds", "%s", kind)
}

func (p *Policy) project(name string) *stream.Refusal {
	if p == nil || anyGlob(p.Projects, name) {
		return nil
	}
	return denied("projects", "project %q", name)
}

// repository is about the Secret of a repository, or of a template for several.
func (p *Policy) repository(secretType string, data map[string]any) *stream.Refusal {
	project := secretField(data, "project")
	if refusal := p.kind(secretType); refusal != nil {
		return refusal
	}
	if project != "" {
		if refusal := p.project(project); refusal != nil {
			return refusal
		}
	}
	if p == nil || secretField(data, "proxy") == "" {
		return nil
	}
	// A proxy can answer for the repository, for all Applications that Argo CD has it for:
	// those of the project, or all.
	const what = "a proxy for a repository, which decides what is deployed from it"
	ofProject := project != "" && (secretType == typeRepository || secretType == typeWriteRepository)
	switch {
	case !slices.Contains(p.SourceRepos, "*"):
		return denied("source_repos", what)
	case !p.everywhere() && !ofProject:
		return denied("destination_namespaces", what+", also for Applications of the owner's own")
	}
	return nil
}

func (p *Policy) trust(configMap string) *stream.Refusal {
	return p.kind(map[string]string{gpgKeys: kindGPGKeys, tlsCertificates: kindCertificates, knownHosts: kindKnownHosts}[configMap])
}

// application is about an Application's spec as the hub sends it.
func (p *Policy) application(spec map[string]any) *stream.Refusal {
	if p == nil {
		return nil
	}
	if refusal := p.kind(kindApplication); refusal != nil {
		return refusal
	}
	if refusal := p.project(projectOf(spec)); refusal != nil {
		return refusal
	}
	destination, _ := spec["destination"].(map[string]any)
	if namespace := stringAt(destination, "namespace"); !anyGlob(p.DestinationNamespaces, namespace) {
		return denied("destination_namespaces", "namespace %q", namespace)
	}
	return p.sources(spec)
}

// negated reports whether Argo CD takes a pattern for one of all that it does not match.
func negated(pattern string) bool { return strings.HasPrefix(pattern, "!") }

// deniesHere reports whether a project's destination denies the Kubernetes cluster of
// the spoke by its server, and does not permit it by its name.
func deniesHere(destination map[string]any) bool {
	denied, is := strings.CutPrefix(stringAt(destination, "server"), "!")
	return is && globMatches(denied, inClusterServer) && stringAt(destination, "name") == ""
}

func (p *Policy) operation(name string) *stream.Refusal {
	if p == nil || slices.Contains(p.Operations, name) {
		return nil
	}
	return denied("operations", "%s", name)
}

// command is about what a command asks for.
func (p *Policy) command(data map[string]any) *stream.Refusal {
	for _, asked := range []struct{ field, operation string }{
		{"operation", operationSync}, {"terminate", "terminate"}, {"refresh", "refresh"}, {"hydrate", "hydrate"},
	} {
		if data[asked.field] == nil {
			continue
		}
		if refusal := p.operation(asked.operation); refusal != nil {
			return refusal
		}
	}
	return nil
}

func anyGlob(globs []string, s string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { return globMatches(g, s) })
}

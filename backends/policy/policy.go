// Package policy is what the owner of a managed spoke lets the hub do there: Policy, and what it
// says of a spec, of an operation, of credentials and of what was there before. Pure.
package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/glob"
	"github.com/argomesh/argomesh/backends/object"
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

// OperationSync and OperationOverride are operations of a Policy: a sync of what the
// Application says, and, beside it, one of anything else.
const (
	OperationSync     = "sync"
	OperationOverride = "override"
)

// KindApplication, KindProject and the others are kinds of a Policy. Those of Secrets are the values of Argo CD's
// label.
const (
	KindApplication  = "application"
	KindProject      = "appproject"
	KindGPGKeys      = "gpg-keys"
	kindCertificates = "tls-certificates"
	kindKnownHosts   = "ssh-known-hosts"
)

var (
	kinds = []string{
		KindApplication, KindProject, object.RepositoryType, object.TemplateType, object.WriteRepositoryType,
		object.WriteTemplateType,
		KindGPGKeys, kindCertificates, kindKnownHosts,
	}
	operations = []string{OperationSync, "terminate", "refresh", "hydrate", "cascade", OperationOverride}
)

// Kinds are all that Policy.Kinds may name.
func Kinds() []string { return slices.Clone(kinds) }

// Default allows everything but credentials that may write to repositories.
func Default() Policy {
	return Policy{
		Kinds:                 slices.DeleteFunc(slices.Clone(kinds), object.MayWrite),
		Projects:              []string{"*"},
		DestinationNamespaces: []string{"*"},
		ServiceAccounts:       []string{"*"},
		SourceRepos:           []string{"*"},
		Operations:            slices.Clone(operations),
	}
}

// Validate reports every problem, as errors that wrap identity.ErrInvalid.
func (p Policy) Validate() error {
	var problems []error
	oneOf := func(key string, list, known []string) {
		for _, s := range list {
			if !slices.Contains(known, s) {
				problems = append(problems,
					fmt.Errorf("%s: %q is not one of %s: %w", key, s, strings.Join(known, ", "), identity.ErrInvalid))
			}
		}
	}
	globs := func(key string, list []string) {
		for _, s := range list {
			if s == "" || !glob.Parses(s) {
				problems = append(problems, fmt.Errorf("%s: %q is not a glob: %w", key, s, identity.ErrInvalid))
			}
		}
	}
	oneOf("kinds", p.Kinds, kinds)
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
	oneOf("operations", p.Operations, operations)
	for _, pattern := range p.Adopt {
		if err := ValidateAdopt(pattern); err != nil {
			problems = append(problems, fmt.Errorf("adopt: %w", err))
		}
	}
	return errors.Join(problems...)
}

// LacksOverride reports whether a list of operations has sync, and not override beside it.
func LacksOverride(operations []string) bool {
	return slices.Contains(operations, OperationSync) && !slices.Contains(operations, OperationOverride)
}

// WithOverride is a list of operations with override.
func WithOverride(operations []string) []string {
	return append(slices.Clone(operations), OperationOverride)
}

// WriteCredentials reports whether the hub may store any that may write.
func (p *Policy) WriteCredentials() bool {
	return p != nil && slices.ContainsFunc(p.Kinds, object.MayWrite)
}

// AppProjects reports whether the hub may store AppProjects.
func (p *Policy) AppProjects() bool { return p.Kind(KindProject) == nil }

// Repositories reports whether the hub may store Secrets of repositories.
func (p *Policy) Repositories() bool {
	return p == nil || slices.ContainsFunc(p.Kinds, object.IsCredential)
}

// Trust returns the ConfigMaps of which the hub may write items.
func (p *Policy) Trust() []string {
	return slices.DeleteFunc(object.TrustConfigMaps(), func(name string) bool { return p.ConfigMap(name) != nil })
}

// Selectors names the objects of a kind that the hub may store in Argo CD's namespace, as
// object.SelectorsOf does, and whether there are any.
func (p *Policy) Selectors(kind stream.Kind) (selectors []backends.Selector, allowed bool) {
	switch kind {
	case stream.Secret:
		return object.SelectorsOf(kind), p.Repositories()
	case stream.ConfigMap:
		for _, name := range p.Trust() {
			selectors = append(selectors, backends.Selector{Name: name})
		}
		return selectors, len(selectors) > 0
	}
	return nil, false
}

// Denied is the refusal of what a rule of a policy does not allow; format says what that is.
func Denied(rule, format string, args ...any) *stream.Refusal {
	return &stream.Refusal{
		Kind: stream.RefusalDenied, Message: "policy." + rule + " of the spoke does not allow " +
			fmt.Sprintf(format, args...),
	}
}

// Kind says why the hub may not store objects of a kind, which is one of Kinds; nil when it may.
func (p *Policy) Kind(kind string) *stream.Refusal {
	if p == nil && !object.MayWrite(kind) || p != nil && slices.Contains(p.Kinds, kind) {
		return nil
	}
	return Denied("kinds", "%s", kind)
}

// Project says why what the hub stores may not belong to an AppProject; nil when it may.
func (p *Policy) Project(name string) *stream.Refusal {
	if p == nil || glob.Any(p.Projects, name) {
		return nil
	}
	return Denied("projects", "project %q", name)
}

// Repository is about the Secret of a repository, or of a template for several.
func (p *Policy) Repository(secretType string, data map[string]any) *stream.Refusal {
	project := object.SecretField(data, "project")
	if refusal := p.Kind(secretType); refusal != nil {
		return refusal
	}
	if project != "" {
		if refusal := p.Project(project); refusal != nil {
			return refusal
		}
	}
	if p == nil || object.SecretField(data, "proxy") == "" {
		return nil
	}
	// A proxy can answer for the repository, for all Applications that Argo CD has it for:
	// those of the project, or all.
	const what = "a proxy for a repository, which decides what is deployed from it"
	ofProject := project != "" && (secretType == object.RepositoryType || secretType == object.WriteRepositoryType)
	switch {
	case !slices.Contains(p.SourceRepos, "*"):
		return Denied("source_repos", what)
	case !p.everywhere() && !ofProject:
		return Denied("destination_namespaces", what+", also for Applications of the owner's own")
	}
	return nil
}

// ConfigMap says why the hub may not write items of a ConfigMap by which Argo CD trusts; nil when
// it may.
func (p *Policy) ConfigMap(configMap string) *stream.Refusal {
	return p.Kind(map[string]string{object.GPGKeysConfigMap: KindGPGKeys,
		object.TLSCertificatesConfigMap: kindCertificates, object.KnownHostsConfigMap: kindKnownHosts}[configMap])
}

// Application is about an Application's spec as the hub sends it.
func (p *Policy) Application(spec map[string]any) *stream.Refusal {
	if p == nil {
		return nil
	}
	if refusal := p.Kind(KindApplication); refusal != nil {
		return refusal
	}
	if refusal := p.Project(object.ProjectOf(spec)); refusal != nil {
		return refusal
	}
	destination, _ := spec["destination"].(map[string]any)
	if namespace := object.StringAt(destination, "namespace"); !glob.Any(p.DestinationNamespaces, namespace) {
		return Denied("destination_namespaces", "namespace %q", namespace)
	}
	return p.Sources(spec)
}

// deniesHere reports whether a project's destination denies the Kubernetes cluster of
// the spoke by its server, and does not permit it by its name.
func deniesHere(destination map[string]any) bool {
	pattern, is := strings.CutPrefix(object.StringAt(destination, "server"), "!")
	return is && glob.Matches(pattern, object.InClusterServer) && object.StringAt(destination, "name") == ""
}

// Operation says why the hub may not ask for one of Operations; nil when it may.
func (p *Policy) Operation(name string) *stream.Refusal {
	if p == nil || slices.Contains(p.Operations, name) {
		return nil
	}
	return Denied("operations", "%s", name)
}

// Command is about what a command asks for.
func (p *Policy) Command(data map[string]any) *stream.Refusal {
	for _, asked := range []struct{ field, operation string }{
		{"operation", OperationSync}, {"terminate", "terminate"}, {"refresh", "refresh"}, {"hydrate", "hydrate"},
	} {
		if data[asked.field] == nil {
			continue
		}
		if refusal := p.Operation(asked.operation); refusal != nil {
			return refusal
		}
	}
	return nil
}

// ValidateAdopt returns an error that wraps identity.ErrInvalid for a pattern that names
// nothing that could be adopted.
func ValidateAdopt(pattern string) error {
	kinds := slices.Concat([]string{KindApplication, KindProject}, object.CredentialTypes())
	kind, name, _ := strings.Cut(pattern, "/")
	if !glob.Parses(pattern) || name == "" ||
		!slices.ContainsFunc(kinds, func(k string) bool { return glob.Matches(kind, k) }) {
		return fmt.Errorf("%q is not kind/name, both globs, with a kind of %s: %w", pattern, strings.Join(kinds, ", "),
			identity.ErrInvalid)
	}
	return nil
}

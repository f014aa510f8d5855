package ownership

import (
	"errors"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

func TestPolicy(t *testing.T) {
	spec := func(project, namespace string) m {
		return m{"spec": m{"project": project, "destination": m{"namespace": namespace}}}
	}
	application := func(data m) stream.Event { return objecttest.Apply(stream.Applications, "u", 9, data) }
	project := func(namespaces ...string) stream.Event {
		var destinations []any
		for _, ns := range namespaces {
			destinations = append(destinations, m{"server": object.InClusterServer, "namespace": ns})
		}
		return objecttest.Apply(stream.AppProjects, "u", 9, m{"spec": m{"destinations": destinations}})
	}
	to := func(destinations ...any) stream.Event {
		return objecttest.Apply(stream.AppProjects, "u", 9, m{"spec": m{"destinations": destinations}})
	}
	kinds := func(list ...any) stream.Event {
		return objecttest.Apply(stream.AppProjects, "u", 9, m{"spec": m{"destinations": []any{destination("web")}, "clusterResourceWhitelist": list}})
	}
	account := func(name string) stream.Event {
		return objecttest.Apply(stream.AppProjects, "u", 9, m{"spec": m{"destinationServiceAccounts": []any{m{"defaultServiceAccount": name}}}})
	}
	command := func(data m) stream.Event { return objecttest.Apply(stream.Commands, "u", 9, data) }
	repository := func(secretType, project string) stream.Event {
		return objecttest.Apply(stream.Repositories, "u", 9, m{"labels": m{object.SecretTypeKey: secretType}, "data": secretData("project", project)})
	}
	with := func(change func(*policy.Policy)) *policy.Policy {
		p := policy.Default()
		change(&p)
		return &p
	}
	all := with(func(*policy.Policy) {})
	namespaces := with(func(p *policy.Policy) { p.DestinationNamespaces = []string{"web", "team-*"} })
	projects := with(func(p *policy.Policy) { p.Projects = []string{"guest*"} })
	tests := map[string]struct {
		policy *policy.Policy
		event  stream.Event
		rule   string // that refuses; empty for none
	}{
		"no policy":                                           {nil, application(spec("p", "n")), ""},
		"the default":                                         {all, application(spec("p", "n")), ""},
		"nothing":                                             {&policy.Policy{}, application(spec("p", "n")), "kinds"},
		"no projects of the hub":                              {&policy.Policy{}, project(), "kinds"},
		"a project that is allowed":                           {projects, application(spec("guests", "n")), ""},
		"a project that is not":                               {projects, application(spec("web", "n")), "projects"},
		"no project is the default one":                       {projects, application(spec("", "n")), "projects"},
		"an AppProject by its name":                           {projects, project("*"), ""},
		"a namespace that is allowed":                         {namespaces, application(spec("p", "team-a")), ""},
		"a namespace that is not":                             {namespaces, application(spec("p", "kube-system")), "destination_namespaces"},
		"no namespace is all of them":                         {namespaces, application(spec("p", "")), "destination_namespaces"},
		"a project within":                                    {namespaces, project("web", "team-*", "team-b"), ""},
		"all but a namespace":                                 {namespaces, project("web", "!kube-system"), "destination_namespaces"},
		"all but one, where all may be":                       {all, project("*", "!kube-system"), ""},
		"a server that is denied":                             {namespaces, to(m{"server": "!" + object.InClusterServer, "namespace": "kube-*"}, m{"name": object.InClusterName, "namespace": "web"}), ""},
		"all but another server":                              {namespaces, to(m{"server": "!https://other", "namespace": "*"}), "destination_namespaces"},
		"a denied server, a name":                             {namespaces, to(m{"server": "!" + object.InClusterServer, "name": "*", "namespace": "*"}), "destination_namespaces"},
		"a project beyond":                                    {namespaces, project("web", "kube-system"), "destination_namespaces"},
		"a project by a wider pattern":                        {namespaces, project("te*"), "destination_namespaces"},
		"a project of all":                                    {namespaces, project("*"), "destination_namespaces"},
		"all kinds outside of namespaces, namespaces bounded": {namespaces, kinds(m{"group": "*", "kind": "*"}), "cluster_resources"},
		"one such kind":                                       {namespaces, kinds(m{"group": "", "kind": "Namespace"}), "cluster_resources"},
		"one that is named": {with(func(p *policy.Policy) {
			p.DestinationNamespaces, p.ClusterResources = []string{"web"}, []string{"/Namespace"}
		}), kinds(m{"group": "", "kind": "Namespace"}), ""},
		"all, where all namespaces may be": {all, kinds(m{"group": "*", "kind": "*"}), ""},
		"others than named, all the same":  {with(func(p *policy.Policy) { p.ClusterResources = []string{"/Namespace"} }), kinds(m{"group": "*", "kind": "*"}), "cluster_resources"},
		"a service account":                {with(func(p *policy.Policy) { p.ServiceAccounts = []string{"web:*"} }), account("kube-system:admin"), "service_accounts"},
		"one that is allowed":              {with(func(p *policy.Policy) { p.ServiceAccounts = []string{"web:*"} }), account("web:deployer"), ""},
		"a repository of an Application":   {with(func(p *policy.Policy) { p.SourceRepos = []string{"https://git/*"} }), application(m{"spec": m{"source": m{"repoURL": "https://evil/x"}}}), "source_repos"},
		"one that may be":                  {with(func(p *policy.Policy) { p.SourceRepos = []string{"https://git/*"} }), application(m{"spec": m{"source": m{"repoURL": "https://git/x"}}}), ""},
		"one of several":                   {with(func(p *policy.Policy) { p.SourceRepos = []string{"https://git/*"} }), application(m{"spec": m{"sources": []any{m{"repoURL": "https://git/x"}, m{"repoURL": "https://evil/x"}}}}), "source_repos"},
		"that of a dry source":             {with(func(p *policy.Policy) { p.SourceRepos = []string{"https://git/*"} }), application(m{"spec": m{"sourceHydrator": m{"drySource": m{"repoURL": "https://evil/x"}}}}), "source_repos"},
		"a path that leads elsewhere":      {with(func(p *policy.Policy) { p.SourceRepos = []string{"https://git/a/**"} }), application(m{"spec": m{"source": m{"repoURL": "https://git/a/../b"}}}), "source_repos"},
		"a repository of a project":        {projects, repository(object.RepositoryType, "guests"), ""},
		"a repository of another":          {projects, repository(object.RepositoryType, "web"), "projects"},
		"write credentials by default":     {all, repository(object.WriteTemplateType, ""), "kinds"},
		"write credentials, if allowed":    {with(func(p *policy.Policy) { p.Kinds = []string{object.WriteTemplateType} }), repository(object.WriteTemplateType, ""), ""},
		"keys":                             {with(func(p *policy.Policy) { p.Kinds = nil }), trustEvent(object.GPGKeysConfigMap, 9, m{}), "kinds"},
		"keys, if allowed":                 {with(func(p *policy.Policy) { p.Kinds = []string{policy.KindGPGKeys} }), trustEvent(object.GPGKeysConfigMap, 9, m{}), ""},
		"certificates beside keys":         {with(func(p *policy.Policy) { p.Kinds = []string{policy.KindGPGKeys} }), trustEvent(object.TLSCertificatesConfigMap, 9, m{}), "kinds"},
		"a deletion with workloads":        {with(func(p *policy.Policy) { p.Operations = nil }), application(m{"spec": m{}, "leaving": []any{object.CascadeFinalizer}}), "operations"},
		"a deletion without":               {&policy.Policy{}, objecttest.Removal(stream.Applications), ""},
		"a refresh":                        {with(func(p *policy.Policy) { p.Operations = []string{"sync"} }), command(m{"refresh": m{"type": "hard", "id": "1"}}), "operations"},
		"a sync":                           {with(func(p *policy.Policy) { p.Operations = []string{"refresh"} }), command(m{"operation": m{}}), "operations"},
		"a termination":                    {with(func(p *policy.Policy) { p.Operations = []string{"sync"} }), command(m{"terminate": m{"command": "x"}}), "operations"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := ruleSet(t, stream.Spoke, stream.Managed)
			r.Policy, r.Projects = test.policy, hubProjects(r)
			key, ok := r.Local(test.event.Key)
			if !ok {
				t.Fatal("the event is not local")
			}
			var current *object.Object
			if test.event.Key.Collection == stream.Commands {
				o := copyOf(t, ruleSet(t, stream.Spoke, stream.Managed), objecttest.Apply(stream.Applications, "u", 8, m{"spec": m{}}), nil)
				current = &o
			}
			writes, refusal := r.Plan(test.event, key, current, operations.Requests{})
			if test.rule == "" {
				if refusal != nil && refusal.Kind == stream.RefusalDenied {
					t.Errorf("it is refused: %s", refusalText(refusal))
				}
				return
			}
			if len(writes) > 0 || refusal == nil || refusal.Kind != stream.RefusalDenied || !strings.Contains(refusal.Message, "policy."+test.rule+" ") {
				t.Errorf("Plan() = %d writes, %s, want a refusal by %s", len(writes), refusalText(refusal), test.rule)
			}
		})
	}
}

func TestPolicyValidate(t *testing.T) {
	if err := policy.Default().Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
	bad := policy.Policy{Kinds: []string{"secret"}, Projects: []string{"[a"}, DestinationNamespaces: []string{""}, Operations: []string{"delete"}, ClusterResources: []string{"Namespace"}, ServiceAccounts: []string{""}, SourceRepos: []string{"[a"}}
	err := bad.Validate()
	if !errors.Is(err, identity.ErrInvalid) {
		t.Fatalf("Validate() = %v", err)
	}
	for _, key := range []string{"kinds:", "projects:", "destination_namespaces:", "operations:", "cluster_resources:", "service_accounts:", "source_repos:"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("Validate() = %v, lacks %s", err, key)
		}
	}
}

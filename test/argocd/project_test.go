package argocd

import (
	"encoding/json"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/stream"
)

func project(namespaces []string, destinations ...v1alpha1.ApplicationDestination) *v1alpha1.AppProject {
	return &v1alpha1.AppProject{
		TypeMeta:   typeMeta(stream.AppProject),
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: argocd},
		Spec: v1alpha1.AppProjectSpec{
			SourceNamespaces: namespaces, Destinations: destinations, SourceRepos: []string{"https://git/*", "!https://git/secret"},
			Roles:                    []v1alpha1.ProjectRole{{Name: "admins", Policies: []string{"p, proj:web:admins, applications, *, web/*, allow"}, JWTTokens: []v1alpha1.JWTToken{{IssuedAt: 1}}}},
			ClusterResourceWhitelist: []v1alpha1.ClusterResourceRestrictionItem{{Group: "*", Kind: "Namespace"}},
		},
	}
}

func permits(t *testing.T, p *v1alpha1.AppProject, cluster v1alpha1.Cluster, namespace string) bool {
	t.Helper()
	ok, err := p.IsDestinationPermitted(&cluster, namespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// TestManagedProject holds the copy of a project on a spoke against the project:
// it never permits there what Argo CD would not permit on the hub for the agent.
func TestManagedProject(t *testing.T) {
	const mine = clusterServer
	all := []string{"*"}
	to := func(name, server, namespace string) v1alpha1.ApplicationDestination {
		return v1alpha1.ApplicationDestination{Name: name, Server: server, Namespace: namespace}
	}
	tests := map[string]struct {
		project *v1alpha1.AppProject
		// stricter says that we keep the project from the agent, or a part of it,
		// though Argo CD would permit it: the rules users of argocd-agent know.
		stricter bool
	}{
		"by name":                            {project(all, to(agentName, "", "web")), false},
		"by a glob of names":                 {project(all, to("edge-*", "", "*")), false},
		"by alternatives":                    {project(all, to("{edge-1,edge-2}", "", "w?b")), false},
		"by several that become one":         {project(all, to(agentName, "", "web"), to("edge-*", "", "web"), to("", mine, "web"), to("", mine, "other")), false},
		"by server":                          {project(all, to("", mine, "web")), false},
		"by any server":                      {project(all, to("", "*", "web")), false},
		"by a glob of servers":               {project(all, to("", "https://proxy:9090/*", "web")), false},
		"another name":                       {project(all, to("edge-2", "", "*")), false},
		"another server":                     {project(all, to("", "https://other", "*")), false},
		"a broken glob":                      {project(all, to("edge-[", "", "*")), false},
		"nothing":                            {project(all), false},
		"a namespace denied":                 {project(all, to("*", "*", "*"), to("*", "*", "!kube-system")), false},
		"the name denied":                    {project(all, to("*", "", "*"), to("!edge-1", "", "*")), false},
		"the name denied by a glob":          {project(all, to("*", "", "*"), to("!edge-*", "", "kube-system")), false},
		"the server denied":                  {project(all, to("*", "", "*"), to("", "!"+mine, "*")), false},
		"the server denied for a namespace":  {project(all, to("*", "", "*"), to("", "!"+mine, "kube-system")), false},
		"the server denied by a glob":        {project(all, to("*", "", "*"), to("", "!https://proxy:9090/*", "kube-*")), false},
		"another name denied":                {project(all, to("edge-1", "", "web"), to("!edge-2", "", "*")), true},
		"only another name denied":           {project(all, to("!edge-2", "", "*")), true},
		"another server denied":              {project(all, to("edge-1", "", "web"), to("", "!https://other", "*")), true},
		"a name of others with any server":   {project(all, to("edge-2", "*", "*")), true},
		"the agent's namespace":              {project([]string{"team", agentName}, to("*", "", "*")), false},
		"the agent's namespace by a pattern": {project([]string{"/^edge-[0-9]$/"}, to("*", "", "*")), false},
		"a pattern that does not match":      {project([]string{"/^edge$/"}, to("*", "", "*")), false},
		"a glob of namespaces":               {project([]string{"edge-?"}, to("*", "", "*")), false},
		"other namespaces":                   {project([]string{"edge-2"}, to("*", "", "*")), false},
		"no namespaces":                      {project(nil, to("*", "", "*")), false},
		"a pattern of a kind Go lacks":       {project([]string{"/^(?!edge-2)edge-.$/"}, to("*", "", "*")), true},
		"a broken pattern":                   {project([]string{"/(/"}, to("*", "", "*")), false},
	}
	agent := v1alpha1.Cluster{Name: agentName, Server: mine}
	local := v1alpha1.Cluster{Name: "in-cluster", Server: v1alpha1.KubernetesInternalAPIServerAddr}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, stream.Managed, func(w *linkEnv) {
				w.put(w.hub, projectKey("web"), test.project)
				w.settle()
				var copied v1alpha1.AppProject
				sent := w.read(w.spoke, projectKey("web"), &copied)
				admitted := test.project.IsAppNamespacePermitted(guestbook(agentName), argocd)
				for _, namespace := range []string{"web", "kube-system", "other"} {
					want := admitted && permits(t, test.project, agent, namespace)
					got := sent && permits(t, &copied, local, namespace)
					if got && !want {
						t.Errorf("the spoke permits namespace %s, the hub does not", namespace)
					}
					if !got && want && !test.stricter {
						t.Errorf("the spoke does not permit namespace %s, the hub does", namespace)
					}
				}
				if !sent {
					return
				}
				if err := copied.ValidateProject(); err != nil {
					t.Errorf("Argo CD refuses the copy: %v", err)
				}
				if len(copied.Spec.Roles) != 0 || len(copied.Spec.SourceNamespaces) != 0 {
					t.Errorf("roles %v, source namespaces %v", copied.Spec.Roles, copied.Spec.SourceNamespaces)
				}
				want := test.project.Spec.DeepCopy()
				want.Roles, want.SourceNamespaces, want.Destinations = nil, nil, copied.Spec.Destinations
				if diff := cmp.Diff(want, &copied.Spec); diff != "" {
					t.Errorf("the rest of the copy (-want +got)\n%s", diff)
				}
			})
		})
	}
}

// TestProjectUnderPolicy holds what a spoke's policy lets through against Argo CD: a
// project that is stored permits no namespace there that the policy does not.
func TestProjectUnderPolicy(t *testing.T) {
	policy := policy.Default()
	policy.DestinationNamespaces, policy.ClusterResources = []string{"web", "team-*"}, []string{"*/*"}
	allowed := map[string]bool{"web": true, "team-a": true, "kube-system": false, "other": false}
	local := v1alpha1.Cluster{Name: "in-cluster", Server: v1alpha1.KubernetesInternalAPIServerAddr}
	// What a hub sends, and what one that means ill may send.
	names, namespaces := []string{"", "in-cluster", "*", "!in-cluster", "!edge-2"}, []string{"", "*", "web", "team-*", "team-?", "t*", "!web", "!kube-system", "{web,other}", "[k-o]*"}
	servers := []string{"", "*", local.Server, "!" + local.Server, "!*", "!https://other", "https://other"}
	stored := 0
	for _, name := range names {
		for _, server := range servers {
			for _, namespace := range namespaces {
				p := project(nil, v1alpha1.ApplicationDestination{Name: name, Server: server, Namespace: namespace})
				raw, err := json.Marshal(map[string]any{"labels": map[string]any{}, "annotations": map[string]any{}, "spec": p.Spec})
				if err != nil {
					t.Fatal(err)
				}
				event := stream.Event{
					Key: stream.EntryKey{Collection: stream.AppProjects, Name: "web"}, Verb: stream.Apply, Data: raw,
					Version: stream.Version{SourceUID: "u", Hash: stream.HashOf(raw)}, Revision: 1,
				}
				writes, _ := ownership.Rules{
					Marks: copies.Marks{
						Map: mapping.Map{
							Side: stream.Spoke, Mode: stream.Managed, Agent: theAgent(t), Namespace: argocd,
						},
					},
					Policy: &policy,
				}.Plan(event, projectKey("web"), nil, operations.Requests{})
				if len(writes) == 0 {
					continue // refused
				}
				stored++
				var copied v1alpha1.AppProject
				if err := json.Unmarshal(writes[0].Raw, &copied); err != nil {
					t.Fatal(err)
				}
				for in, may := range allowed {
					if !may && permits(t, &copied, local, in) {
						t.Errorf("destination name %q, server %q, namespace %q is stored, and permits namespace %s", name, server, namespace, in)
					}
				}
			}
		}
	}
	if stored == 0 {
		t.Error("everything is refused")
	}
}

// TestAutonomousProject checks that the mirror of a spoke's project is for the
// agent's namespace and cluster, and for no other.
func TestAutonomousProject(t *testing.T) {
	run(t, stream.Autonomous, func(w *linkEnv) {
		w.put(w.spoke, projectKey("web"), project([]string{"*"},
			v1alpha1.ApplicationDestination{Server: "*", Namespace: "web"},
			v1alpha1.ApplicationDestination{Name: "*", Namespace: "*"},
			v1alpha1.ApplicationDestination{Server: v1alpha1.KubernetesInternalAPIServerAddr, Namespace: "web"}, // on the hub the same as the first
		))
		w.settle()
		var mirrored v1alpha1.AppProject
		if !w.read(w.hub, projectKey(agentName+"-web"), &mirrored) {
			t.Fatal("the project is not on the hub")
		}
		if err := mirrored.ValidateProject(); err != nil {
			t.Errorf("Argo CD refuses the mirror: %v", err)
		}
		if !permits(t, &mirrored, v1alpha1.Cluster{Name: agentName, Server: clusterServer}, "web") {
			t.Error("the mirror does not permit the agent's cluster")
		}
		for _, other := range []v1alpha1.Cluster{
			{Name: "in-cluster", Server: v1alpha1.KubernetesInternalAPIServerAddr}, {Name: "edge-2", Server: "https://proxy:9090/agents/edge-2"},
		} {
			if permits(t, &mirrored, other, "web") {
				t.Errorf("the mirror permits cluster %s", other.Name)
			}
		}
		for namespace, want := range map[string]bool{agentName: true, "edge-2": false, "edge-11": false} {
			if got := mirrored.IsAppNamespacePermitted(guestbook(namespace), argocd); got != want {
				t.Errorf("the mirror permits Applications of namespace %s: %t", namespace, got)
			}
		}
		if len(mirrored.Spec.Roles) != 0 {
			t.Errorf("roles of the spoke's people on the hub: %v", mirrored.Spec.Roles)
		}
	})
}

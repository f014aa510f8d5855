package argocd

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/settings"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/stream"
)

// The Kubernetes cluster of the agent's, as Argo CD knows it on the hub and on the spoke.
var (
	onHub   = v1alpha1.Cluster{Name: agentName, Server: clusterServer}
	onSpoke = v1alpha1.Cluster{Name: "in-cluster", Server: v1alpha1.KubernetesInternalAPIServerAddr}
)

// open is a project that admits the agent, with what fill adds.
func open(name string, fill func(spec *v1alpha1.AppProjectSpec)) *v1alpha1.AppProject {
	p := &v1alpha1.AppProject{
		TypeMeta: typeMeta(stream.AppProject), ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: argocd},
		Spec: v1alpha1.AppProjectSpec{
			SourceNamespaces: []string{"*"}, SourceRepos: []string{"*"},
			Destinations: []v1alpha1.ApplicationDestination{{Name: "*", Server: "*", Namespace: "*"}},
		},
	}
	fill(&p.Spec)
	return p
}

// copiesOf are what arrives of projects on the other side; nil for one that does not.
func copiesOf(t *testing.T, mode stream.Mode, rules func(*ownership.Rules), projects ...*v1alpha1.AppProject) []*v1alpha1.AppProject {
	t.Helper()
	out := make([]*v1alpha1.AppProject, len(projects))
	runAs(t, mode, rules, func(w *linkEnv) {
		source, sink, prefix := sides(w, mode)
		for _, p := range projects {
			w.put(source, projectKey(p.Name), p)
		}
		w.settle()
		for i, p := range projects {
			var copied v1alpha1.AppProject
			if w.read(sink, projectKey(prefix+p.Name), &copied) {
				out[i] = &copied
				if err := copied.DeepCopy().ValidateProject(); err != nil && p.DeepCopy().ValidateProject() == nil {
					t.Errorf("Argo CD refuses the copy of project %s: %v", p.Name, err)
				}
			}
		}
	})
	return out
}

// windows are sync windows of all shapes.
func windows() []*v1alpha1.SyncWindow {
	var out []*v1alpha1.SyncWindow
	lists := func(some ...[]string) [][]string { return append([][]string{nil}, some...) }
	for _, clusters := range lists(
		[]string{agentName}, []string{"edge-2"}, []string{"edge-2", "edge-?"}, []string{"*"}, []string{"in-cluster"}, []string{"!edge-1"},
		[]string{"!edge-2"}, []string{clusterServer}, []string{"https://*"}, []string{v1alpha1.KubernetesInternalAPIServerAddr}, []string{"edge-["}, []string{""},
		[]string{"{edge-1,in-cluster}"},
	) {
		for _, applications := range lists([]string{"shop"}, []string{"sh*", "other"}) {
			for _, namespaces := range lists([]string{"web"}, []string{"!web"}) {
				for _, and := range []bool{false, true} {
					out = append(out, &v1alpha1.SyncWindow{
						Kind: "deny", Schedule: "* * * * *", Duration: "24h", Clusters: clusters, Applications: applications, Namespaces: namespaces, UseAndOperator: and,
					})
				}
			}
		}
	}
	return out
}

// targets are Applications as they are on one side.
func targets(destination v1alpha1.ApplicationDestination) []*v1alpha1.Application {
	var out []*v1alpha1.Application
	for _, name := range []string{"shop", "other", "third"} {
		for _, namespace := range []string{"web", "db"} {
			destination.Namespace = namespace
			out = append(out, &v1alpha1.Application{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ApplicationSpec{Destination: destination}})
		}
	}
	return out
}

// TestSyncWindow holds each window on one side against what arrives of it on the other:
// it is for the same Applications.
func TestSyncWindow(t *testing.T) {
	byName, byServer := v1alpha1.ApplicationDestination{Name: agentName}, v1alpha1.ApplicationDestination{Server: clusterServer}
	localName, localServer := v1alpha1.ApplicationDestination{Name: onSpoke.Name}, v1alpha1.ApplicationDestination{Server: onSpoke.Server}
	tests := map[string]struct {
		mode stream.Mode
		// Applications there name the cluster in one of two ways, and a window that is for
		// one of the ways is for the cluster.
		there []v1alpha1.ApplicationDestination
		here  []v1alpha1.ApplicationDestination
	}{
		"of the hub, on the spoke": {stream.Managed, []v1alpha1.ApplicationDestination{byName, byServer}, []v1alpha1.ApplicationDestination{localName, localServer}},
		"of the spoke, on the hub": {stream.Autonomous, []v1alpha1.ApplicationDestination{localName, localServer}, []v1alpha1.ApplicationDestination{byName}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var projects []*v1alpha1.AppProject
			for i, window := range windows() {
				projects = append(projects, open(fmt.Sprintf("p-%d", i), func(spec *v1alpha1.AppProjectSpec) { spec.SyncWindows = v1alpha1.SyncWindows{window} }))
			}
			held := 0
			for i, copied := range copiesOf(t, test.mode, nil, projects...) {
				if copied == nil {
					t.Fatalf("project %s did not arrive", projects[i].Name)
				}
				matches := func(p *v1alpha1.AppProject, app *v1alpha1.Application) bool {
					return p.Spec.SyncWindows.Matches(app).HasWindows()
				}
				for _, to := range test.here {
					for j, app := range targets(to) {
						want := slices.ContainsFunc(test.there, func(from v1alpha1.ApplicationDestination) bool { return matches(projects[i], targets(from)[j]) })
						if got := matches(copied, app); got != want {
							t.Errorf("window %v for %s in %v: %t, at its source %t", projects[i].Spec.SyncWindows[0], app.Name, to, got, want)
						} else if got {
							held++
						}
					}
				}
			}
			if held == 0 {
				t.Error("no window is for anything")
			}
		})
	}
}

// TestSyncWindowsTogether lets windows of a project meet: whether an Application of the
// agent's may sync, by itself or by hand, is the same on both sides.
func TestSyncWindowsTogether(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	all := slices.DeleteFunc(windows(), func(w *v1alpha1.SyncWindow) bool {
		return slices.ContainsFunc(w.Clusters, func(c string) bool { return c == clusterServer || c == "https://*" }) // not for the name
	})
	var projects []*v1alpha1.AppProject
	for i := range 400 {
		projects = append(projects, open(fmt.Sprintf("p-%d", i), func(spec *v1alpha1.AppProjectSpec) {
			for range 1 + random.IntN(4) {
				window := *all[random.IntN(len(all))]
				window.ManualSync, window.SyncOverrun = random.IntN(2) == 0, random.IntN(2) == 0
				window.Kind = []string{"allow", "deny"}[random.IntN(2)]
				if random.IntN(2) == 0 {
					window.Schedule, window.Duration = "0 0 29 2 *", "1m" // as good as never
				}
				spec.SyncWindows = append(spec.SyncWindows, &window)
			}
		}))
	}
	refused := 0
	for i, copied := range copiesOf(t, stream.Managed, nil, projects...) {
		if copied == nil {
			t.Fatalf("project %s did not arrive", projects[i].Name)
		}
		here := targets(v1alpha1.ApplicationDestination{Name: onSpoke.Name})
		for j, app := range targets(v1alpha1.ApplicationDestination{Name: agentName}) {
			for _, byHand := range []bool{false, true} {
				want, err := projects[i].Spec.SyncWindows.Matches(app).CanSync(byHand, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := copied.Spec.SyncWindows.Matches(here[j]).CanSync(byHand, nil)
				if err != nil || got != want {
					t.Errorf("%s of project %s may sync (by hand %t): %t, %v; on the hub %t", app.Name, projects[i].Name, byHand, got, err, want)
				}
				if !got {
					refused++
				}
			}
		}
	}
	if refused == 0 {
		t.Error("no window holds anything")
	}
}

// TestSyncWindowsThatBecomeOne are those whose copies differ only in what they let pass.
func TestSyncWindowsThatBecomeOne(t *testing.T) {
	window := func(cluster string, byHand, overrun bool) *v1alpha1.SyncWindow {
		return &v1alpha1.SyncWindow{Kind: "deny", Schedule: "* * * * *", Duration: "24h", Clusters: []string{cluster}, ManualSync: byHand, SyncOverrun: overrun}
	}
	p := open("web", func(spec *v1alpha1.AppProjectSpec) {
		spec.SyncWindows = v1alpha1.SyncWindows{window(agentName, true, true), window("edge-*", false, true), window("*", true, false)}
	})
	want := v1alpha1.SyncWindows{{
		Kind: "deny", Schedule: "* * * * *", Duration: "24h", Clusters: []string{onSpoke.Name, onSpoke.Server},
	}}
	if diff := cmp.Diff(want, copiesOf(t, stream.Managed, nil, p)[0].Spec.SyncWindows); diff != "" {
		t.Errorf("windows of the copy (-want +got)\n%s", diff)
	}
}

// accountsOf are projects with service accounts for servers, of which some are the cluster's.
func accountsOf(random *rand.Rand, servers ...string) []*v1alpha1.AppProject {
	namespaces := []string{"web", "w*", "*", "!web", "[", "{web,db}"}
	accounts := []string{"deployer", "other", "ns:deployer"}
	var projects []*v1alpha1.AppProject
	for i := range 400 {
		projects = append(projects, open(fmt.Sprintf("p-%d", i), func(spec *v1alpha1.AppProjectSpec) {
			for range 1 + random.IntN(4) {
				spec.DestinationServiceAccounts = append(spec.DestinationServiceAccounts, v1alpha1.ApplicationDestinationServiceAccount{
					Server:    servers[random.IntN(len(servers))],
					Namespace: namespaces[random.IntN(len(namespaces))], DefaultServiceAccount: accounts[random.IntN(len(accounts))],
				})
			}
		}))
	}
	return projects
}

// impersonation is where service accounts are and where their copies are.
type impersonation struct {
	mode        stream.Mode
	there, here v1alpha1.Cluster
	servers     []string
}

func impersonations() map[string]impersonation {
	return map[string]impersonation{
		"of the hub, on the spoke": {
			stream.Managed, onHub, onSpoke,
			[]string{clusterServer, "https://proxy:9090/*", "*", "https://other", onSpoke.Server, "", "[", agentName, "!" + clusterServer},
		},
		"of the spoke, on the hub": {
			stream.Autonomous, onSpoke, onHub,
			[]string{onSpoke.Server, "https://kubernetes.*", "*", "https://other", clusterServer, "", "[", "in-cluster", "!" + onSpoke.Server},
		},
	}
}

// TestServiceAccounts holds whom a sync is impersonated by on one side against whom on
// the other.
func TestServiceAccounts(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for name, test := range impersonations() {
		t.Run(name, func(t *testing.T) {
			projects := accountsOf(random, test.servers...)
			found := 0
			for i, copied := range copiesOf(t, test.mode, nil, projects...) {
				if copied == nil {
					t.Fatalf("project %s did not arrive", projects[i].Name)
				}
				for _, namespace := range []string{"web", "db"} {
					app := &v1alpha1.Application{Spec: v1alpha1.ApplicationSpec{Destination: v1alpha1.ApplicationDestination{Namespace: namespace}}}
					want, wantErr := settings.DeriveServiceAccountToImpersonate(projects[i], app, &test.there)
					got, err := settings.DeriveServiceAccountToImpersonate(copied, app, &test.here)
					if got != want || (err != nil) != (wantErr != nil) {
						t.Errorf("accounts %v for namespace %s: %q, %v; at their source %q, %v", projects[i].Spec.DestinationServiceAccounts, namespace, got, err, want, wantErr)
					}
					if got != "" {
						found++
					}
				}
			}
			if found == 0 {
				t.Error("there is no service account for anything")
			}
		})
	}
}

// TestScopedClusters holds projects that permit only clusters of their own against
// what Argo CD permits by them on the hub.
func TestScopedClusters(t *testing.T) {
	p := open("web", func(spec *v1alpha1.AppProjectSpec) { spec.PermitOnlyProjectScopedClusters = true })
	for name, scope := range map[string]string{"of the project": "web", "of another": "shop", "of none": ""} {
		t.Run("the cluster is "+name, func(t *testing.T) {
			cluster := onHub
			cluster.Project = scope
			want, err := p.IsDestinationPermitted(&cluster, "web", func(project string) ([]*v1alpha1.Cluster, error) {
				if project != scope {
					return nil, nil
				}
				return []*v1alpha1.Cluster{&cluster}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			copied := copiesOf(t, stream.Managed, func(r *ownership.Rules) { r.ClusterProject = scope }, p)[0]
			// A spoke has no Secret for itself.
			if got := copied != nil && permits(t, copied, onSpoke, "web"); got != want {
				t.Errorf("the spoke permits it: %t, the hub %t", got, want)
			}
		})
	}
	t.Run("on an autonomous agent", func(t *testing.T) {
		if copied := copiesOf(t, stream.Autonomous, nil, p)[0]; !permits(t, copied, onHub, "web") {
			t.Error("the mirror permits nothing")
		}
	})
}

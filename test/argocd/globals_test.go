package argocd

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	applisters "github.com/argoproj/argo-cd/v3/pkg/client/listers/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo"
	"github.com/argoproj/argo-cd/v3/util/settings"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/argomesh/argomesh/stream"
)

var settingsKey = stream.ResourceKey{Kind: stream.ConfigMap, Namespace: argocd, Name: "argocd-cm"}

// settingsWith is Argo CD's ConfigMap with those global projects.
func settingsWith(globals string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: argocd, Name: "argocd-cm", Labels: map[string]string{"app.kubernetes.io/part-of": "argocd"}},
		Data:       map[string]string{"globalProjects": globals, "url": "https://argocd.test"},
	}
}

// labelled is a project with a label and what fill adds.
func labelled(name, team string, fill func(spec *v1alpha1.AppProjectSpec)) *v1alpha1.AppProject {
	p := open(name, fill)
	p.Labels = map[string]string{"team": team}
	return p
}

// globalProject has something in every field that Argo CD merges, and in some that it
// does not.
func globalProject(name string) *v1alpha1.AppProject {
	return open(name, func(spec *v1alpha1.AppProjectSpec) {
		spec.SourceRepos = []string{"https://git/" + name}
		spec.Destinations = []v1alpha1.ApplicationDestination{{Name: "*", Namespace: name}}
		spec.ClusterResourceWhitelist = []v1alpha1.ClusterResourceRestrictionItem{{Group: "*", Kind: name}}
		spec.ClusterResourceBlacklist = []v1alpha1.ClusterResourceRestrictionItem{{Group: "", Kind: "Not" + name}}
		spec.NamespaceResourceWhitelist = []metav1.GroupKind{{Group: "*", Kind: "*"}}
		spec.NamespaceResourceBlacklist = []metav1.GroupKind{{Group: name, Kind: "*"}}
		spec.SyncWindows = v1alpha1.SyncWindows{{Kind: "deny", Schedule: "* * * * *", Duration: "1h", Clusters: []string{"*"}, Description: name}}
		spec.DestinationServiceAccounts = []v1alpha1.ApplicationDestinationServiceAccount{{Server: "*", Namespace: name, DefaultServiceAccount: name}}
		spec.Description, spec.OrphanedResources = name, &v1alpha1.OrphanedResourcesMonitorSettings{}
		spec.SourceNamespaces = []string{name}
	})
}

// asArgoCD is a project with its global ones as Argo CD merges them.
func asArgoCD(t *testing.T, globals string, projects []*v1alpha1.AppProject, name string) *v1alpha1.AppProject {
	t.Helper()
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	var asked *v1alpha1.AppProject
	for _, p := range projects {
		if err := index.Add(p); err != nil {
			t.Fatal(err)
		}
		if p.Name == name {
			asked = p
		}
	}
	client := fake.NewClientset(settingsWith(globals), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: argocd, Name: "argocd-secret", Labels: map[string]string{"app.kubernetes.io/part-of": "argocd"}},
		Data:       map[string][]byte{"server.secretkey": []byte("x")},
	})
	merged, err := argo.GetAppVirtualProject(asked, applisters.NewAppProjectLister(index), settings.NewSettingsManager(t.Context(), client, argocd))
	if err != nil {
		t.Fatal(err)
	}
	return merged
}

// globalSettings are what globalProjects may say.
func globalSettings() map[string]string {
	team := func(name string, teams ...string) string {
		entry := "- projectName: " + name + "\n  labelSelector:\n    matchExpressions:\n    - key: team\n      operator: In\n      values:\n"
		for _, t := range teams {
			entry += "      - " + t + "\n"
		}
		return entry
	}
	return map[string]string{
		"none":                             "",
		"one":                              team("frozen", "a", "b"),
		"two":                              team("frozen", "a") + team("audited", "a"),
		"the second":                       team("frozen", "b") + team("audited", "a"),
		"all":                              "- projectName: frozen\n  labelSelector: {}\n",
		"no selector, which selects all":   "- projectName: frozen\n",
		"labels":                           "- projectName: frozen\n  labelSelector: {matchLabels: {team: a}}\n",
		"itself":                           team("web", "a") + team("frozen", "a"),
		"one that is not there":            team("gone", "a") + team("frozen", "a"),
		"one that is not there, of others": team("gone", "b") + team("frozen", "a"),
		"a selector that is none":          "- projectName: audited\n  labelSelector: {matchExpressions: [{key: team, operator: Near}]}\n" + team("frozen", "a"),
		"the same twice":                   team("frozen", "a") + team("frozen", "a"),
		"unknown keys":                     "- projectName: frozen\n  more: 1\n  labelSelector: {}\n",
		"null":                             "null",
	}
}

// TestGlobalProjects holds what arrives of a project that has global ones against what
// arrives of the project that Argo CD makes of both.
func TestGlobalProjects(t *testing.T) {
	projects := []*v1alpha1.AppProject{
		labelled("web", "a", func(spec *v1alpha1.AppProjectSpec) {
			spec.ClusterResourceBlacklist = []v1alpha1.ClusterResourceRestrictionItem{{Group: "*", Kind: "Namespace"}}
		}),
		globalProject("frozen"), globalProject("audited"),
	}
	for name, globals := range globalSettings() {
		for _, mode := range []stream.Mode{stream.Managed, stream.Autonomous} {
			t.Run(fmt.Sprintf("%s, %s", name, mode), func(t *testing.T) {
				merged := asArgoCD(t, globals, projects, "web")
				want := copiesOf(t, mode, nil, merged)[0]
				run(t, mode, func(w *linkEnv) {
					source, sink, prefix := sides(w, mode)
					w.put(source, settingsKey, settingsWith(globals))
					for _, p := range projects {
						w.put(source, projectKey(p.Name), p)
					}
					w.settle()
					var got v1alpha1.AppProject
					if !w.read(sink, projectKey(prefix+"web"), &got) {
						t.Fatal("the project did not arrive")
					}
					if diff := cmp.Diff(once(t, want.Spec), once(t, got.Spec)); diff != "" {
						t.Errorf("what arrived (-Argo CD's +ours)\n%s", diff)
					}
				})
			})
		}
	}
}

// once is a spec in which nothing is twice in a list.
func once(t *testing.T, spec v1alpha1.AppProjectSpec) map[string]any {
	t.Helper()
	var out map[string]any
	typed(t, spec, &out)
	for name, value := range out {
		if list, ok := value.([]any); ok {
			var kept []any
			for _, v := range list {
				if !slices.ContainsFunc(kept, func(k any) bool { return cmp.Equal(k, v) }) {
					kept = append(kept, v)
				}
			}
			out[name] = kept
		}
	}
	return out
}

// TestGlobalProjectsChange checks that what changes in the settings, in a global project
// or in the labels of a project arrives in all projects that it concerns.
func TestGlobalProjectsChange(t *testing.T) {
	for _, mode := range []stream.Mode{stream.Managed, stream.Autonomous} {
		t.Run(mode.String(), func(t *testing.T) {
			run(t, mode, func(w *linkEnv) {
				source, sink, prefix := sides(w, mode)
				frozen := func(kind string) *v1alpha1.AppProject {
					return open("frozen", func(spec *v1alpha1.AppProjectSpec) {
						spec.ClusterResourceBlacklist = []v1alpha1.ClusterResourceRestrictionItem{{Group: "*", Kind: kind}}
					})
				}
				const globals = "- projectName: frozen\n  labelSelector: {matchLabels: {team: a}}\n"
				has := func(when, web, shop string) {
					t.Helper()
					w.settle()
					for name, want := range map[string]string{"web": web, "shop": shop} {
						var p v1alpha1.AppProject
						if !w.read(sink, projectKey(prefix+name), &p) {
							t.Fatalf("%s: project %s is not there", when, name)
						}
						got := ""
						for _, item := range p.Spec.ClusterResourceBlacklist {
							got += item.Kind
						}
						if got != want {
							t.Errorf("%s: project %s denies %q, want %q", when, name, got, want)
						}
					}
				}
				none := func(*v1alpha1.AppProjectSpec) {}
				w.put(source, projectKey("web"), labelled("web", "a", none))
				w.put(source, projectKey("shop"), labelled("shop", "b", none))
				w.put(source, projectKey("frozen"), frozen("Node"))
				has("before", "", "")
				w.put(source, settingsKey, settingsWith(globals))
				has("settings", "Node", "")
				w.put(source, projectKey("frozen"), frozen("Secret"))
				has("another content", "Secret", "")
				w.put(source, projectKey("shop"), labelled("shop", "a", none))
				has("another label", "Secret", "Secret")
				w.put(source, settingsKey, settingsWith(globals+"no list"))
				w.put(source, projectKey("web"), labelled("web", "b", none))
				w.remove(source, projectKey("frozen"))
				has("settings that cannot be read", "Secret", "Secret")
				w.put(source, projectKey("frozen"), frozen("Role"))
				w.put(source, settingsKey, settingsWith(globals))
				has("settings that can be read again", "", "Role")
				w.remove(source, settingsKey)
				has("no settings", "", "")
			})
		})
	}
}

// TestGlobalProjectsThatCannotBeTold checks that a principal which starts with settings
// that it cannot read takes nothing away, and says why.
func TestGlobalProjectsThatCannotBeTold(t *testing.T) {
	run(t, stream.Managed, func(w *linkEnv) {
		w.put(w.hub, settingsKey, settingsWith("- projectName: frozen\n  labelSelector: {}\n"))
		w.put(w.hub, projectKey("web"), open("web", func(spec *v1alpha1.AppProjectSpec) { spec.Destinations = nil }))
		w.put(w.hub, projectKey("frozen"), globalProject("frozen")) // admits the agent
		w.settle()
		if !w.read(w.spoke, projectKey("web"), &v1alpha1.AppProject{}) {
			t.Fatal("the project is not on the spoke")
		}
		w.put(w.hub, settingsKey, settingsWith("{"))
		<-time.After(10 * time.Minute)
		if !w.read(w.spoke, projectKey("web"), &v1alpha1.AppProject{}) {
			t.Error("the project was taken away from the spoke")
		}
	})
}

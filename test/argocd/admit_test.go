package argocd

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	applisters "github.com/argoproj/argo-cd/v3/pkg/client/listers/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo"
	"github.com/argoproj/argo-cd/v3/util/db"
	"github.com/argoproj/argo-cd/v3/util/settings"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/argomesh/argomesh/stream"
)

// chance picks what generated projects and Applications are made of.
type chance struct{ *rand.Rand }

func (c chance) of(list ...string) string { return list[c.IntN(len(list))] }

func (c chance) some(most int, list ...string) []string {
	var out []string
	for range c.IntN(most + 1) {
		out = append(out, c.of(list...))
	}
	return out
}

var (
	repositoryPatterns = []string{
		"*", "https://git.test/*", "https://git.test/a", "https://git.test/a.git", "https://GIT.test/A", "https://git.test/*/b", "https://*.test/a", "git@git.test:a/b",
		"ssh://git@git.test/a/b.git", "git@git.test:*", "!https://git.test/a", "!https://git.test/*", "!*", "https://git.test/[", "!https://git.test/[", "https://git.test/{a,b}",
		"**", "https://**", "", "!", " https://git.test/a ", "https://user@git.test/a", "oci://git.test/a", "https://git.test/a/", "%zz", "!git@git.test:a/b",
	}
	repositoryURLs = []string{
		"https://git.test/a", "https://git.test/a.git", "https://git.test/A", "https://git.test/a/b", "https://git.test/b", "git@git.test:a/b", "git@git.test:a/b.git",
		"ssh://git@git.test/a/b", "https://user@git.test/a", "oci://git.test/a", "https://git.test/a/", "%zz", "http://git.test/a", "https://git.test/{a,b}",
	}
	clusterNames    = []string{"", agentName, "edge-*", "*", "!edge-1", "!edge-2", "!*", "edge-2", "{edge-1,edge-2}", "edge-[", "!edge-["}
	clusterServers  = []string{"", clusterServer, "*", "https://proxy:9090/*", "https://other", "!https://other", "!" + clusterServer, "!*", "https://proxy:9090/agents/edge-?"}
	inNamespaces    = []string{"", "*", "web", "w?b", "!web", "!kube-system", "!*", "team-*", "{web,shop}", "web["}
	sourcePatterns  = []string{"*", agentName, "edge-?", "edge-2", "/^edge-[0-9]$/", "/edge/", "/^other/", "!edge-1", "{edge-1,x}", "/(/", "edge-["}
	globalsOfTeam   = "- projectName: frozen\n  labelSelector: {matchLabels: {team: a}}\n"
	scopedTo        = "p-3"
	scopedURL       = "https://git.test/scoped"
	generatedNumber = 400
)

func (c chance) project(name string) *v1alpha1.AppProject {
	return open(name, func(spec *v1alpha1.AppProjectSpec) {
		spec.SourceNamespaces, spec.SourceRepos, spec.Destinations = c.some(2, sourcePatterns...), c.some(3, repositoryPatterns...), nil
		for range c.IntN(4) {
			spec.Destinations = append(spec.Destinations, v1alpha1.ApplicationDestination{
				Name: c.of(clusterNames...), Server: c.of(clusterServers...), Namespace: c.of(inNamespaces...),
			})
		}
		// Else nearly nothing would be admitted.
		if c.IntN(2) == 0 {
			spec.SourceNamespaces = append(spec.SourceNamespaces, agentName)
		}
		if c.IntN(2) == 0 {
			spec.SourceRepos = append(spec.SourceRepos, "*")
		}
		if c.IntN(2) == 0 {
			spec.Destinations = append(spec.Destinations, v1alpha1.ApplicationDestination{Server: "*", Namespace: "*"})
		}
		spec.PermitOnlyProjectScopedClusters = c.IntN(20) == 0
	})
}

func (c chance) application(name, project string) *v1alpha1.Application {
	app := guestbook(agentName)
	app.Name, app.Spec.Project, app.Spec.Sources = name, project, nil
	app.Spec.Destination = v1alpha1.ApplicationDestination{Name: agentName, Namespace: c.of("web", "kube-system", "team-a", "")}
	if c.IntN(4) == 0 {
		app.Spec.Destination.Name, app.Spec.Destination.Server = "", clusterServer
	}
	source := func() v1alpha1.ApplicationSource {
		return v1alpha1.ApplicationSource{RepoURL: c.of(append(repositoryURLs, scopedURL)...), Path: "p", TargetRevision: "HEAD"}
	}
	switch c.IntN(4) {
	case 0:
		app.Spec.Sources = v1alpha1.ApplicationSources{source(), source()}
	case 1:
		app.Spec.SourceHydrator = &v1alpha1.SourceHydrator{
			DrySource:  v1alpha1.DrySource{RepoURL: source().RepoURL, Path: "p", TargetRevision: "HEAD"},
			SyncSource: v1alpha1.SyncSource{RepoURL: c.of("", source().RepoURL), TargetBranch: "b", Path: "p"},
		}
	default:
		one := source()
		app.Spec.Source = &one
	}
	return app
}

// asked is what Argo CD on the hub is asked with.
type asked struct {
	t        *testing.T
	lister   applisters.AppProjectLister
	settings *settings.SettingsManager
	db       db.ArgoDB
}

func newAsked(t *testing.T, projects []*v1alpha1.AppProject, scoped *corev1.Secret) asked {
	t.Helper()
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, p := range projects {
		if err := index.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	client := fake.NewClientset(settingsWith(globalsOfTeam), scoped, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: argocd, Name: "argocd-secret", Labels: map[string]string{"app.kubernetes.io/part-of": "argocd"}},
		Data:       map[string][]byte{"server.secretkey": []byte("x")},
	}, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: argocd, Name: "cluster-" + agentName,
			Labels: map[string]string{"argocd.argoproj.io/secret-type": "cluster"}, Annotations: map[string]string{"managed-by": "argocd.argoproj.io"},
		},
		Data: map[string][]byte{"name": []byte(agentName), "server": []byte(clusterServer), "config": []byte("{}")},
	})
	manager := settings.NewSettingsManager(t.Context(), client, argocd)
	return asked{t, applisters.NewAppProjectLister(index), manager, db.NewDB(argocd, manager, client)}
}

// admits is what Argo CD says of an Application; why is empty when it admits it.
func (a asked) admits(app *v1alpha1.Application) (why string) {
	a.t.Helper()
	project, err := argo.GetAppProject(a.t.Context(), app, a.lister, argocd, a.settings, a.db)
	if err != nil {
		return err.Error()
	}
	conditions, err := argo.ValidatePermissions(a.t.Context(), &app.Spec, project, a.db)
	if err != nil {
		a.t.Fatal(err)
	}
	for _, c := range conditions {
		why += c.Message + "; "
	}
	return why
}

// admission are generated Applications and projects of a hub with settings, global projects
// and a repository that is scoped to one.
type admission struct {
	projects []*v1alpha1.AppProject
	apps     []*v1alpha1.Application
	scoped   *corev1.Secret
}

func (c chance) admission() admission {
	frozen := open("frozen", func(spec *v1alpha1.AppProjectSpec) {
		spec.SourceRepos, spec.Destinations = []string{"!https://git.test/b"}, []v1alpha1.ApplicationDestination{{Server: "*", Namespace: "!kube-system"}}
	})
	a := admission{projects: []*v1alpha1.AppProject{frozen}}
	for i := range generatedNumber {
		p := c.project(fmt.Sprint("p-", i))
		if c.IntN(4) == 0 {
			p.Labels = map[string]string{"team": "a"}
		}
		a.projects = append(a.projects, p)
		a.apps = append(a.apps, c.application(fmt.Sprint("app-", i), p.Name))
	}
	a.apps = append(a.apps, c.application("no-project", "nowhere"))
	a.scoped = &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: argocd, Name: "scoped", Labels: map[string]string{"argocd.argoproj.io/secret-type": "repository"}},
		Data:       map[string][]byte{"url": []byte(scopedURL), "project": []byte(scopedTo)},
	}
	return a
}

// refused is why the hub does not let an Application leave it, by name; empty for one that
// leaves.
func (a admission) refused(t *testing.T) map[string]string {
	t.Helper()
	why := map[string]string{}
	run(t, stream.Managed, func(w *linkEnv) {
		w.put(w.hub, settingsKey, settingsWith(globalsOfTeam))
		w.put(w.hub, stream.ResourceKey{Kind: stream.Secret, Namespace: argocd, Name: "scoped"}, a.scoped)
		for _, p := range a.projects {
			w.put(w.hub, projectKey(p.Name), p)
		}
		for _, app := range a.apps {
			w.put(w.hub, stream.ResourceKey{Kind: stream.Application, Namespace: agentName, Name: app.Name}, app)
		}
		<-time.After(time.Minute)
		for _, app := range a.apps {
			why[app.Name] = notSent(w, app.Name)
		}
	})
	return why
}

// TestAdmission holds what the hub lets leave of generated Applications against what Argo CD
// says of them with generated projects.
func TestAdmission(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	a := chance{rand.New(rand.NewPCG(seed, 0))}.admission() //nolint:gosec // it is a test's
	argoCD := newAsked(t, a.projects, a.scoped)
	refused := a.refused(t)
	admitted, wrong := 0, 0
	for _, app := range a.apps {
		want, ours := argoCD.admits(app), refused[app.Name]
		if (ours == "") != (want == "") {
			wrong++
			p, _ := argoCD.lister.AppProjects(argocd).Get(app.Spec.Project)
			t.Errorf("Argo CD says %q, we say %q\nof sources %+v %+v, destination %+v\nin project %+v", want, ours, app.Spec.GetSources(), app.Spec.SourceHydrator, app.Spec.Destination, p)
		}
		if want == "" {
			admitted++
		}
		if wrong > 5 {
			return
		}
	}
	if admitted < generatedNumber/50 || admitted > generatedNumber*49/50 {
		t.Errorf("%d of %d are admitted, which tells little", admitted, generatedNumber)
	}
}

// notSent is what the hub's condition says of an Application that does not leave it.
func notSent(w *linkEnv, name string) string {
	w.t.Helper()
	var app v1alpha1.Application
	if !w.read(w.hub, stream.ResourceKey{Kind: stream.Application, Namespace: agentName, Name: name}, &app) {
		w.t.Fatalf("Application %s is gone", name)
	}
	for _, c := range app.Status.Conditions {
		if c.Type == "ArgomeshError" && strings.HasPrefix(c.Message, "not sent: ") {
			return c.Message
		}
	}
	return ""
}

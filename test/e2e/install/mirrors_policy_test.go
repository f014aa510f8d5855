//go:build linux

package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/e2e/internal/mistake"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// The chart's policy refuses edits and deletes of mirrors, by the API and by argocd-server, and
// says where to make them. What argocd-server and others write beside passes, and so does the
// spoke's own.
func TestMirrorsRefuse(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm", "etcd", "kube-apiserver", "argocd", "redis-server")
	h := harnesstest.New(t)
	w := &env.RoleEnv{H: h, Audit: h.Path("audit.log")}
	start(t, w)
	t.Run("as the policy says", func(t *testing.T) { testMirrorPolicy(t, w) })
	t.Run("and argocd-server works", func(t *testing.T) { testMirrorsUnderArgoCD(t, w) })
	t.Run("mistakes", mistake.OfMirrors(w).Happen)
	t.Run("until they are released", func(t *testing.T) { testMirrorsReleased(t, w) })
	t.Run("as long as there is a hub", func(t *testing.T) { testMirrorsWithoutHub(t, w) })
}

// refreshing is the annotation by which an Argo CD controller is asked to look again.
const refreshing = "argocd.argoproj.io/refresh"

// marked is a mirror, made by hand, of an agent that is not registered: no link keeps it.
func marked(t *testing.T, w *env.RoleEnv, kind, namespace, name string, annotations map[string]any) *unstructured.Unstructured {
	t.Helper()
	hub, err := w.Hub.Resource(corev1.SchemeGroupVersion.WithResource("configmaps"), harness.ArgoCDNamespace).Get(t.Context(), "argomesh-hub", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	uid, _, _ := unstructured.NestedString(hub.Object, "data", "uid")
	all := map[string]any{
		"argomesh.io/source": `{"hash":"h","revision":1,"created":1,"agent":"edge-9","wrote":"w"}`, "argomesh.io/hub": uid,
		"argocd.argoproj.io/source-uid": "u",
	}
	maps.Copy(all, annotations)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	spec := map[string]any{"sourceRepos": []any{"*"}}
	if kind == "Application" {
		spec = map[string]any{
			"project": "edge-9-default", "destination": map[string]any{"name": "edge-9", "namespace": "web"},
			"source": map[string]any{"repoURL": "https://git.example.org/x", "path": "a", "directory": map[string]any{"recurse": true}},
		}
	}
	return env.Object("argoproj.io/v1alpha1", kind, namespace, name, map[string]any{"metadata": map[string]any{"annotations": all}, "spec": spec})
}

// as is a client for the Applications of a namespace, by another user with all rights.
func as(t *testing.T, w *env.RoleEnv, user, namespace string) dynamic.ResourceInterface {
	t.Helper()
	config := rest.CopyConfig(w.Hub.REST())
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(harness.Applications).Namespace(namespace)
}

func testMirrorPolicy(t *testing.T, w *env.RoleEnv) {
	const there = "theirs"
	ctx, dry := t.Context(), []string{metav1.DryRunAll}
	if err := w.Hub.EnsureNamespace(ctx, there); err != nil {
		t.Fatal(err)
	}
	apps, projects := w.Hub.Resource(harness.Applications, there), w.Hub.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	env.Eventually(t, "the identity of the hub", func() error {
		_, err := w.Hub.Resource(corev1.SchemeGroupVersion.WithResource("configmaps"), harness.ArgoCDNamespace).Get(ctx, "argomesh-hub", metav1.GetOptions{})
		return err
	})
	const sentence = "this Application belongs to the autonomous agent edge-9: change or delete it there"
	env.Create(t, apps, marked(t, w, "Application", there, "mirror", nil))
	env.Create(t, projects, marked(t, w, "AppProject", harness.ArgoCDNamespace, "edge-9-default", nil))
	for name, annotations := range map[string]map[string]any{
		"child":     {"argomesh.io/source": `{"hash":"h","revision":1,"created":1,"agent":"edge-8","child":true,"wrote":"w"}`},
		"damaged":   {"argomesh.io/source": "{}"},
		"another":   {"argomesh.io/hub": "another"},
		"unmarked":  {"argomesh.io/hub": nil},
		"of-people": {"argomesh.io/source": nil, "argocd.argoproj.io/source-uid": nil},
		"copy":      {"argocd.argoproj.io/principal-uid": "another"},
		"released":  {"argomesh.io/released": "true"},
	} {
		env.Create(t, apps, marked(t, w, "Application", there, name, annotations))
	}
	remove := func(where dynamic.ResourceInterface, name string) error {
		return where.Delete(ctx, name, metav1.DeleteOptions{DryRun: dry})
	}
	env.Eventually(t, "the policy in force", func() error { return mistake.BySentence(remove(apps, "mirror"), sentence) })

	for name, test := range map[string]struct {
		where          dynamic.ResourceInterface
		name, sentence string
	}{
		"a project":           {projects, "edge-9-default", "this AppProject belongs to the autonomous agent edge-9: change or delete it there"},
		"a child application": {apps, "child", "this Application is a child application of agent edge-8, shown here: change or delete it there, by its parent"},
		"a damaged record":    {apps, "damaged", "this Application belongs to the autonomous agent that it names: change or delete it there"},
	} {
		t.Run("refuses to delete "+name, func(t *testing.T) {
			if err := mistake.BySentence(remove(test.where, test.name), test.sentence); err != nil {
				t.Error(err)
			}
		})
	}
	for _, name := range []string{"another", "unmarked", "of-people", "copy", "released"} {
		t.Run("deletes "+name, func(t *testing.T) {
			if err := remove(apps, name); err != nil {
				t.Error(err)
			}
		})
	}
	for _, user := range []string{
		"system:serviceaccount:" + harness.ArgoCDNamespace + ":" + charts.Principal, "system:kube-controller-manager",
		"system:serviceaccount:kube-system:namespace-controller", "system:serviceaccount:kube-system:generic-garbage-collector",
	} {
		t.Run("deletes a mirror for "+user, func(t *testing.T) {
			if err := remove(as(t, w, user, there), "mirror"); err != nil {
				t.Error(err)
			}
		})
	}

	set := func(value any, fields ...string) func(map[string]any) {
		return func(o map[string]any) {
			if err := unstructured.SetNestedField(o, value, fields...); err != nil {
				t.Fatal(err)
			}
		}
	}
	without := func(key string) func(map[string]any) {
		return func(o map[string]any) { unstructured.RemoveNestedField(o, "metadata", "annotations", key) }
	}
	operation := set(map[string]any{"sync": map[string]any{"revision": "r"}}, "operation")
	form := set(map[string]any{"recurse": true, "jsonnet": map[string]any{}}, "spec", "source", "directory")
	to := set("web-2", "spec", "destination", "namespace")
	update := func(changes ...func(map[string]any)) error {
		o, err := apps.Get(ctx, "mirror", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, change := range changes {
			change(o.Object)
		}
		_, err = apps.Update(ctx, o, metav1.UpdateOptions{DryRun: dry})
		return err
	}
	type changes []func(map[string]any)
	for name, change := range map[string]changes{
		"of the spec":                     {to},
		"of the spec and its operation":   {to, operation},
		"of its sources":                  {form},
		"that takes the record":           {without("argomesh.io/source")},
		"that takes the mark":             {without("argomesh.io/hub")},
		"that takes the source":           {without("argocd.argoproj.io/source-uid")},
		"of the record":                   {set("{}", "metadata", "annotations", "argomesh.io/source")},
		"that makes it a copy":            {set("another", "metadata", "annotations", "argocd.argoproj.io/principal-uid")},
		"that takes all annotations":      {func(o map[string]any) { unstructured.RemoveNestedField(o, "metadata", "annotations") }},
		"of the spec of what it releases": {to, set("true", "metadata", "annotations", "argomesh.io/released")},
	} {
		t.Run("refuses a change "+name, func(t *testing.T) {
			if err := mistake.BySentence(update(change...), sentence); err != nil {
				t.Error(err)
			}
		})
	}
	for name, change := range map[string]changes{
		"an operation":                          {operation},
		"an operation, sources in another form": {operation, form},
		"a refresh":                             {set("normal", "metadata", "annotations", "argocd.argoproj.io/refresh")},
		"a label":                               {set("x", "metadata", "labels", "team")},
		"a finalizer":                           {set([]any{env.Cascade}, "metadata", "finalizers")},
		"a status":                              {set(map[string]any{"sync": map[string]any{"status": "Synced"}}, "status")},
		"that it is released":                   {set("true", "metadata", "annotations", "argomesh.io/released")},
	} {
		t.Run("lets pass "+name, func(t *testing.T) {
			if err := update(change...); err != nil {
				t.Error(err)
			}
		})
	}
}

// testMirrorsUnderArgoCD has argocd-server try what people do in the UI, on what a spoke shows.
func testMirrorsUnderArgoCD(t *testing.T, w *env.RoleEnv) {
	ctx := t.Context()
	repository, err := w.H.NewRepository(ctx, "repo", harness.GuestbookFiles())
	if err != nil {
		t.Fatal(err)
	}
	argocd, err := w.H.StartArgoCD(ctx, harness.ArgoCDConfig{ControlPlane: w.Hub, Server: true, ApplicationNamespaces: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := argocd.Login(ctx); err != nil {
		t.Fatal(err)
	}
	here := &env.Argo{Hub: w.Hub, Repository: repository}
	theirs, ours := w.Spoke.Resource(harness.Applications, "gitops"), w.Hub.Resource(harness.Applications, env.Autonomous)
	env.Create(t, w.Spoke.Resource(harness.AppProjects, "gitops"), env.Object("argoproj.io/v1alpha1", "AppProject", "gitops", "default", map[string]any{
		"spec": map[string]any{"sourceRepos": []any{"*"}, "destinations": []any{map[string]any{"server": "*", "namespace": "*"}}},
	}))
	app := here.Plain("own", "gitops", "")
	// As people write it, and as argocd-server's types do not.
	app.Object["spec"].(map[string]any)["syncPolicy"] = map[string]any{"automated": map[string]any{"prune": false}, "syncOptions": []any{}}
	env.Create(t, theirs, app)
	const sentence = "this Application belongs to the autonomous agent " + env.Autonomous + ": change or delete it there"
	env.Eventually(t, "the mirror, which is guarded", func() error {
		if _, err := w.Hub.Resource(harness.AppProjects, harness.ArgoCDNamespace).Get(ctx, env.Autonomous+"-default", metav1.GetOptions{}); err != nil {
			return err
		}
		return mistake.BySentence(ours.Delete(ctx, "own", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}), sentence)
	})
	for _, args := range [][]string{
		{"app", "set", env.Autonomous + "/own", "--sync-policy", "none", "--validate=false"},
		{"app", "set", env.Autonomous + "/own", "--revision", "other", "--validate=false"},
		{"app", "delete", env.Autonomous + "/own", "--yes", "--cascade=false"},
		{"proj", "set", env.Autonomous + "-default", "--description", "mine"},
	} {
		out, err := argocd.CLI(ctx, args...)
		want := sentence
		if args[0] == "proj" {
			want = strings.Replace(sentence, "Application", "AppProject", 1)
		}
		if text := fmt.Sprint(out, err); err == nil || !strings.Contains(text, want) {
			t.Errorf("argocd %s: %s, want %q", strings.Join(args, " "), text, want)
		}
	}
	if err := env.FieldIs(ctx, ours, "own", harness.Branch, "spec", "source", "targetRevision"); err != nil {
		t.Error(err)
	}
	if out, err := argocd.CLI(ctx, "app", "sync", env.Autonomous+"/own", "--async"); err != nil {
		t.Fatalf("argocd app sync: %v\n%s", err, out)
	}
	// argocd-server resolves the revision on the hub, so the spoke's controller is asked whether it
	// is the Application's. There is none, so the test is that.
	sync, err := env.FieldsOf(ctx, ours, "own", "operation", "sync")
	if err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the spoke's controller is asked", func() error { return env.FieldIs(ctx, theirs, "own", "normal", "metadata", "annotations", refreshing) })
	at := env.Get(t, theirs, "own").Object["spec"].(map[string]any)
	env.Patch(t, theirs, "own", map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{refreshing: nil}},
		"status": map[string]any{"sync": map[string]any{
			"status": "OutOfSync", "revision": sync["revision"], "comparedTo": map[string]any{"source": at["source"], "destination": at["destination"]},
		}},
	})
	env.Eventually(t, "the sync on the spoke", func() error {
		_, err := env.FieldsOf(ctx, theirs, "own", "operation")
		return err
	})
	env.Patch(t, theirs, "own", map[string]any{"spec": map[string]any{"source": map[string]any{"path": env.NewPath}}})
	env.Eventually(t, "a change of the spoke", func() error { return env.FieldIs(ctx, ours, "own", env.NewPath, "spec", "source", "path") })
	if err := theirs.Delete(ctx, "own", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the end of the mirror", func() error { return env.Gone(ctx, ours, "own") })
}

// testMirrorsReleased has agentctl give one mirror to the hub, beside another: the policy lets
// that pass, and people what they do with it, and the principal leaves it alone until it is a
// mirror again.
func testMirrorsReleased(t *testing.T, w *env.RoleEnv) {
	const given, kept, sentence = "given", "kept", "this Application belongs to the autonomous agent " + env.Autonomous + ": change or delete it there"
	ctx := t.Context()
	here := &env.Argo{Hub: w.Hub, Repository: &harness.Repository{URL: "https://git.example.org/x"}}
	theirs, ours := w.Spoke.Resource(harness.Applications, "gitops"), w.Hub.Resource(harness.Applications, env.Autonomous)
	to := func(namespace string) map[string]any { return mistake.Merged("spec.destination.namespace", namespace) }
	guarded := func(name string) error {
		return mistake.BySentence(ours.Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}), sentence)
	}
	for _, name := range []string{given, kept} {
		env.Create(t, theirs, here.Plain(name, "gitops", ""))
		env.Eventually(t, name+" is shown and guarded", func() error { return guarded(name) })
	}
	if out, err := w.H.Agentctl(ctx, w.Hub, "agent", "release-mirrors", env.Autonomous, given, "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	env.Patch(t, ours, given, to("of-the-hub"))
	env.Patch(t, theirs, given, to("of-the-spoke"))
	// What comes later has come, so what was to happen before has happened.
	env.Patch(t, theirs, kept, to("later"))
	env.Eventually(t, "the other one follows its spoke", func() error { return env.FieldIs(ctx, ours, kept, "later", "spec", "destination", "namespace") })
	if err := errors.Join(env.FieldIs(ctx, ours, given, "of-the-hub", "spec", "destination", "namespace"), guarded(kept)); err != nil {
		t.Error(err)
	}
	env.Eventually(t, "the hub says why it does not show the spoke's", func() error {
		return errors.Join(parkedAs(ctx, w.Hub.Resource(env.Agents, harness.ArgoCDNamespace), env.Autonomous, given, "NotOwned"),
			env.CheckFinds(ctx, w.H, w.Hub, harness.ArgoCDNamespace, env.Autonomous, "NotOwned"))
	})
	if err := ours.Delete(ctx, given, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("what was released is not people's to delete: %v", err)
	}
	env.Eventually(t, "it is a mirror again, and guarded", func() error {
		return errors.Join(env.FieldIs(ctx, ours, given, "of-the-spoke", "spec", "destination", "namespace"), guarded(given),
			env.CheckFindsNo(ctx, w.H, w.Hub, harness.ArgoCDNamespace, env.Autonomous, "NotOwned"))
	})
	for _, name := range []string{given, kept} {
		if err := theirs.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// parkedAs is a check that an Agent names an Application among those that are not applied.
func parkedAs(ctx context.Context, registry dynamic.ResourceInterface, agent, name, reason string) error {
	o, err := registry.Get(ctx, agent, metav1.GetOptions{})
	if err != nil {
		return err
	}
	parked, _, _ := unstructured.NestedSlice(o.Object, "status", "parked")
	for _, p := range parked {
		if one, _ := p.(map[string]any); one["name"] == name && one["reason"] == reason {
			return nil
		}
	}
	return fmt.Errorf("parked are %v", parked)
}

// testMirrorsWithoutHub takes away what identifies the hub, as the end of its namespace does.
func testMirrorsWithoutHub(t *testing.T, w *env.RoleEnv) {
	ctx := t.Context()
	if err := w.Principal.Stop(context.WithoutCancel(ctx)); err != nil {
		t.Error(err)
	}
	if err := w.Hub.Resource(corev1.SchemeGroupVersion.WithResource("configmaps"), harness.ArgoCDNamespace).Delete(ctx, "argomesh-hub", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "a mirror is anybody's to delete", func() error {
		return w.Hub.Resource(harness.Applications, "theirs").Delete(ctx, "mirror", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	})
}

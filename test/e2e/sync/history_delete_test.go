//go:build linux

package sync

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

var services = schema.GroupVersionResource{Version: "v1", Resource: "services"}

// workloads are the objects of a guestbook on edge-1, by kind, with their UIDs.
func workloads(t *testing.T, w *env.Argo, namespace string) map[string]string {
	t.Helper()
	uids := map[string]string{}
	for _, kind := range []schema.GroupVersionResource{env.Deployments, services, env.ConfigMaps} {
		o := env.Get(t, w.Edge1.Resource(kind, namespace), "guestbook")
		uids[kind.Resource] = string(o.GetUID())
		if o.GetDeletionTimestamp() != nil {
			uids[kind.Resource] += ", being deleted"
		}
	}
	return uids
}

// away runs f while the agent of edge-1 does not run.
func away(t *testing.T, w *env.Argo, f func()) {
	t.Helper()
	if err := w.Agents[env.Managed].Kill(); err != nil {
		t.Fatal(err)
	}
	f()
	if err := w.Agents[env.Managed].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// cascading is a guestbook of edge-1 that takes its workloads along.
func cascading(w *env.Argo, name string) *unstructured.Unstructured {
	app := w.Guestbook(name, env.Managed, env.Managed)
	app.SetFinalizers([]string{env.Cascade})
	return app
}

// TestHistoryReleaseWhileAway deletes an Application that would cascade, but without
// cascade, as argocd does it, while the agent is away. A copy that carries the
// finalizer of its source takes the workloads along; an agent that only hears of
// deletions as they happen keeps the copy for ever.
func TestHistoryReleaseWhileAway(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnArgo(t), t.Context()
	env.Create(t, w.OnHub(env.Managed), cascading(w, "left"))
	env.Eventually(t, "it is healthy on the hub", func() error { return env.Healthy(ctx, w.OnHub(env.Managed), "left") })
	before := workloads(t, w, "left")
	away(t, w, func() {
		if out, err := w.HubArgo.CLI(ctx, "app", "delete", env.Managed+"/left", "--cascade=false", "--yes"); err != nil {
			t.Fatalf("argocd app delete: %v\n%s", err, out)
		}
		env.Eventually(t, "the hub's object is gone", func() error { return env.Gone(ctx, w.OnHub(env.Managed), "left") })
	})
	env.Eventually(t, "the copy goes", func() error { return env.Gone(ctx, w.OnSpoke(env.Managed), "left") })
	if after := workloads(t, w, "left"); !maps.Equal(before, after) {
		t.Errorf("the workloads were %v and are %v", before, after)
	}
}

// hold keeps a Deployment of edge-1 from going, until release is called: the deletion
// of workloads takes as long as the test likes.
func hold(t *testing.T, w *env.Argo, namespace string) (release func()) {
	t.Helper()
	where := w.Edge1.Resource(env.Deployments, namespace)
	env.Patch(t, where, "guestbook", map[string]any{"metadata": map[string]any{"finalizers": []any{"e2e.argomesh.test/hold"}}})
	return func() {
		t.Helper()
		env.Patch(t, where, "guestbook", map[string]any{"metadata": map[string]any{"finalizers": nil}})
	}
}

// deletionBegun is a check that an object is there and being deleted.
func deletionBegun(o *unstructured.Unstructured, err error) error {
	if err == nil && o.GetDeletionTimestamp() == nil {
		err = fmt.Errorf("%s is not being deleted", o.GetName())
	}
	return err
}

// fence returns once a change made now has come to the spoke and its status back, so
// that what was said before on the same link has been heard.
func fence(t *testing.T, w *env.Argo, name string) {
	t.Helper()
	ctx := t.Context()
	env.Create(t, w.OnHub(env.Managed), w.Idle(name, env.Managed, env.Managed))
	env.Eventually(t, "the fence is on the spoke", func() error {
		_, err := w.OnSpoke(env.Managed).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	env.Patch(t, w.OnSpoke(env.Managed), name, map[string]any{"status": map[string]any{"health": map[string]any{"message": "fence"}}})
	env.Eventually(t, "the fence is back", func() error {
		return env.FieldIs(ctx, w.OnHub(env.Managed), name, "fence", "status", "health", "message")
	})
	if err := w.OnHub(env.Managed).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestHistoryFinalizerOrder follows a cascading delete by watches. An agent that
// mirrors finalizers arms each copy from the start, so that any delete cascades; a hub
// that lets go when the message is out shows an Application as gone whose workloads
// run.
func TestHistoryFinalizerOrder(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedArgo(t), t.Context()
	hub, spoke := w.OnHub(env.Managed), w.OnSpoke(env.Managed)
	hubSeen, spokeSeen := env.Record(t, hub), env.Record(t, spoke)
	env.Create(t, hub, cascading(w, "ordered"))
	env.Eventually(t, "it is healthy on the hub", func() error { return env.Healthy(ctx, hub, "ordered") })
	release := hold(t, w, "ordered")

	// No state of the spoke up to here may be armed.
	list, err := spoke.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	asked := env.RevisionOf(t, list.GetResourceVersion())
	if err := hub.Delete(ctx, "ordered", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the spoke deletes the workloads", func() error {
		return deletionBegun(w.Edge1.Resource(env.Deployments, "ordered").Get(ctx, "guestbook", metav1.GetOptions{}))
	})
	fence(t, w, "ordered-fence")
	if o := env.Get(t, hub, "ordered"); !env.CarriesCascade(o) {
		t.Errorf("the hub let go while workloads are there: finalizers %v", o.GetFinalizers())
	}
	if o := env.Get(t, spoke, "ordered"); !env.CarriesCascade(o) || o.GetDeletionTimestamp() == nil {
		t.Errorf("the spoke let go while workloads are there: finalizers %v", o.GetFinalizers())
	}
	release()
	env.Eventually(t, "the hub's object goes", func() error { return env.Gone(ctx, hub, "ordered") })
	if err := errors.Join(env.Gone(ctx, spoke, "ordered"), env.Gone(ctx, w.Edge1.Resource(env.Deployments, "ordered"), "guestbook")); err != nil {
		t.Errorf("the hub's object went first: %v", err)
	}

	hubSeen.CaughtUp(t, hub)
	spokeSeen.CaughtUp(t, spoke)
	for _, event := range hubSeen.History("ordered") {
		o := event.Object.(*unstructured.Unstructured)
		if event.Type != watch.Deleted && !env.CarriesCascade(o) {
			t.Errorf("the hub's object was without finalizer at %s", o.GetResourceVersion())
		}
	}
	states := spokeSeen.History("ordered")
	for _, event := range states {
		o := event.Object.(*unstructured.Unstructured)
		if env.RevisionOf(t, o.GetResourceVersion()) <= asked && env.CarriesCascade(o) {
			t.Errorf("the copy was armed at %s, before anybody asked", o.GetResourceVersion())
		}
		if o.GetDeletionTimestamp() != nil && event.Type != watch.Deleted && !env.CarriesCascade(o) {
			t.Errorf("the copy lost its finalizer at %s, before it went", o.GetResourceVersion())
		}
	}
	if last := states[len(states)-1]; last.Type != watch.Deleted {
		t.Errorf("the last of the copy is %s", last.Type)
	}
}

// TestHistoryReleaseWithHooks deletes, without cascade, an Application whose folder
// holds a hook for its end. The spoke's controller arms the copy with a finalizer of
// its own for that, which a plain delete trips.
func TestHistoryReleaseWithHooks(t *testing.T) {
	t.Parallel()
	releaseWithHooks(t, env.SharedArgo(t))
}

func releaseWithHooks(t *testing.T, w *env.Argo) {
	t.Helper()
	ctx := t.Context()
	const hook, armed = "last-words", "post-delete-finalizer.argocd.argoproj.io"
	files := harness.GuestbookFiles()
	files[harness.GuestbookPath+"/hook.yaml"] = `apiVersion: v1
kind: ConfigMap
metadata:
  name: ` + hook + `
  annotations: {argocd.argoproj.io/hook: PostDelete}
`
	repository, err := w.Harness.NewRepository(ctx, "hooks", files)
	if err != nil {
		t.Fatal(err)
	}
	hub, spoke := w.OnHub(env.Managed), w.OnSpoke(env.Managed)
	seen := map[string]*env.Recorder{}
	for _, name := range []string{"hooked", "hooked-cascading"} {
		app := w.Guestbook(name, env.Managed, env.Managed)
		if name == "hooked-cascading" {
			app = cascading(w, name)
		}
		app.Object["spec"].(map[string]any)["source"].(map[string]any)["repoURL"] = repository.URL
		env.Create(t, hub, app)
		seen[name] = env.Record(t, w.Edge1.Resource(env.ConfigMaps, name))
	}
	for name := range seen {
		env.Eventually(t, name+" is healthy on the hub, and its copy armed", func() error {
			o, err := spoke.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !slices.Contains(o.GetFinalizers(), armed) {
				return fmt.Errorf("finalizers %v", o.GetFinalizers())
			}
			return env.Healthy(ctx, hub, name)
		})
	}
	before := workloads(t, w, "hooked")
	for name := range seen {
		if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name := range seen {
		env.Eventually(t, "both objects of "+name+" go", func() error { return errors.Join(env.Gone(ctx, hub, name), env.Gone(ctx, spoke, name)) })
		seen[name].CaughtUp(t, w.Edge1.Resource(env.ConfigMaps, name))
	}
	if len(seen["hooked-cascading"].History(hook)) == 0 {
		t.Error("the hook of the one that cascades did not run: the test shows nothing")
	}
	if events := seen["hooked"].History(hook); len(events) > 0 {
		t.Errorf("the hook of the one that was released ran: %v", events)
	}
	if after := workloads(t, w, "hooked"); !maps.Equal(before, after) {
		t.Errorf("the workloads were %v and are %v", before, after)
	}
}

// TestHistoryRecreated puts another Application in the place of one that was deleted,
// under the same name. What goes by names alone takes the new one for the old: it
// deletes the new one's copy, or lets a cascade of the old run into it.
func TestHistoryRecreated(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnArgo(t), t.Context()
	hub, spoke := w.OnHub(env.Managed), w.OnSpoke(env.Managed)
	// again is the second Application of a name.
	again := func(name string) *unstructured.Unstructured {
		app := cascading(w, name)
		app.SetLabels(map[string]string{"life": "second"})
		return app
	}
	copyOf := func(app *unstructured.Unstructured) func() error {
		return func() error {
			o, err := spoke.Get(ctx, app.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if uid := o.GetAnnotations()[env.SourceUID]; uid != string(app.GetUID()) || o.GetLabels()["life"] != "second" {
				return fmt.Errorf("it is a copy of %s with labels %v, not of %s", uid, o.GetLabels(), app.GetUID())
			}
			if o.GetDeletionTimestamp() != nil {
				return errors.New("it is being deleted")
			}
			return env.Healthy(ctx, hub, app.GetName())
		}
	}
	// force takes an Application from the hub by its finalizers, as people do who do
	// not want to wait.
	force := func(name string) {
		t.Helper()
		if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		env.Patch(t, hub, name, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	}
	first := func(name string, app *unstructured.Unstructured) map[string]string {
		t.Helper()
		env.Create(t, hub, app)
		env.Eventually(t, name+" is healthy on the hub", func() error { return env.Healthy(ctx, hub, name) })
		return workloads(t, w, name)
	}

	t.Run("while connected", func(t *testing.T) {
		before := first("again-connected", w.Guestbook("again-connected", env.Managed, env.Managed))
		if err := hub.Delete(ctx, "again-connected", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "the copy is the second one's", copyOf(env.Create(t, hub, again("again-connected"))))
		if after := workloads(t, w, "again-connected"); !maps.Equal(before, after) {
			t.Errorf("the workloads were %v and are %v", before, after)
		}
	})
	t.Run("while away, by force", func(t *testing.T) {
		// No one on the spoke saw the first one's deletion, so no one may act on it.
		before := first("again-away", cascading(w, "again-away"))
		var second *unstructured.Unstructured
		away(t, w, func() {
			force("again-away")
			second = env.Create(t, hub, again("again-away"))
		})
		env.Eventually(t, "the copy is the second one's", copyOf(second))
		if after := workloads(t, w, "again-away"); !maps.Equal(before, after) {
			t.Errorf("the workloads were %v and are %v", before, after)
		}
	})
	t.Run("while the first one's cascade is under way", func(t *testing.T) {
		before := first("again-cascade", cascading(w, "again-cascade"))
		release := hold(t, w, "again-cascade")
		if err := hub.Delete(ctx, "again-cascade", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "the spoke deletes the workloads", func() error {
			return deletionBegun(w.Edge1.Resource(env.Deployments, "again-cascade").Get(ctx, "guestbook", metav1.GetOptions{}))
		})
		env.Patch(t, hub, "again-cascade", map[string]any{"metadata": map[string]any{"finalizers": nil}})
		second := env.Create(t, hub, again("again-cascade"))
		fence(t, w, "again-fence")
		// What was witnessed goes on, and the second one waits for its end.
		if o := env.Get(t, spoke, "again-cascade"); deletionBegun(o, nil) != nil || o.GetAnnotations()[env.SourceUID] == string(second.GetUID()) {
			t.Errorf("the copy that is being deleted has annotations %v and finalizers %v", o.GetAnnotations(), o.GetFinalizers())
		}
		release()
		env.Eventually(t, "the copy is the second one's", copyOf(second))
		for kind, uid := range workloads(t, w, "again-cascade") {
			if uid == before[kind] {
				t.Errorf("%s was to go with the first one, and is there", kind)
			}
		}
	})
}

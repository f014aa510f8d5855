//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argomesh/argomesh/test/harness"
)

var services = schema.GroupVersionResource{Version: "v1", Resource: "services"}

// workloads are the objects of a guestbook on edge-1, by kind, with their UIDs.
func (w *world) workloads(t *testing.T, namespace string) map[string]string {
	t.Helper()
	uids := map[string]string{}
	for _, kind := range []schema.GroupVersionResource{deployments, services, configMaps} {
		o := get(t, w.edge1.Resource(kind, namespace), "guestbook")
		uids[kind.Resource] = string(o.GetUID())
		if o.GetDeletionTimestamp() != nil {
			uids[kind.Resource] += ", being deleted"
		}
	}
	return uids
}

// away runs f while the agent of edge-1 does not run.
func (w *world) away(t *testing.T, f func()) {
	t.Helper()
	if err := w.agents[managed].Kill(); err != nil {
		t.Fatal(err)
	}
	f()
	if err := w.agents[managed].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// cascading is a guestbook of edge-1 that takes its workloads along.
func (w *world) cascading(name string) *unstructured.Unstructured {
	app := w.guestbook(name, managed, managed)
	app.SetFinalizers([]string{cascade})
	return app
}

// TestHistoryReleaseWhileAway deletes an Application that would cascade, but without
// cascade, as argocd does it, while the agent is away. A copy that carries the
// finalizer of its source takes the workloads along; an agent that only hears of
// deletions as they happen keeps the copy for ever.
func TestHistoryReleaseWhileAway(t *testing.T) {
	t.Parallel()
	w, ctx := theWorldAlone(t), t.Context()
	create(t, w.onHub(managed), w.cascading("left"))
	eventually(t, "it is healthy on the hub", func() error { return healthy(ctx, w.onHub(managed), "left") })
	before := w.workloads(t, "left")
	w.away(t, func() {
		if out, err := w.hubArgo.CLI(ctx, "app", "delete", managed+"/left", "--cascade=false", "--yes"); err != nil {
			t.Fatalf("argocd app delete: %v\n%s", err, out)
		}
		eventually(t, "the hub's object is gone", func() error { return gone(ctx, w.onHub(managed), "left") })
	})
	eventually(t, "the copy goes", func() error { return gone(ctx, w.onSpoke(managed), "left") })
	if after := w.workloads(t, "left"); !maps.Equal(before, after) {
		t.Errorf("the workloads were %v and are %v", before, after)
	}
}

// hold keeps a Deployment of edge-1 from going, until release is called: the deletion
// of workloads takes as long as the test likes.
func (w *world) hold(t *testing.T, namespace string) (release func()) {
	t.Helper()
	where := w.edge1.Resource(deployments, namespace)
	patch(t, where, "guestbook", map[string]any{"metadata": map[string]any{"finalizers": []any{"e2e.argomesh.test/hold"}}})
	return func() {
		t.Helper()
		patch(t, where, "guestbook", map[string]any{"metadata": map[string]any{"finalizers": nil}})
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
func (w *world) fence(t *testing.T, name string) {
	t.Helper()
	ctx := t.Context()
	create(t, w.onHub(managed), w.idle(name, managed, managed))
	eventually(t, "the fence is on the spoke", func() error {
		_, err := w.onSpoke(managed).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	patch(t, w.onSpoke(managed), name, map[string]any{"status": map[string]any{"health": map[string]any{"message": "fence"}}})
	eventually(t, "the fence is back", func() error { return field(ctx, w.onHub(managed), name, "fence", "status", "health", "message") })
	if err := w.onHub(managed).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func carriesCascade(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(o.GetFinalizers(), func(f string) bool { return strings.HasPrefix(f, cascade) })
}

// TestHistoryFinalizerOrder follows a cascading delete by watches. An agent that
// mirrors finalizers arms each copy from the start, so that any delete cascades; a hub
// that lets go when the message is out shows an Application as gone whose workloads
// run.
func TestHistoryFinalizerOrder(t *testing.T) {
	t.Parallel()
	w, ctx := theWorld(t), t.Context()
	hub, spoke := w.onHub(managed), w.onSpoke(managed)
	hubSeen, spokeSeen := record(t, hub), record(t, spoke)
	create(t, hub, w.cascading("ordered"))
	eventually(t, "it is healthy on the hub", func() error { return healthy(ctx, hub, "ordered") })
	release := w.hold(t, "ordered")

	// No state of the spoke up to here may be armed.
	list, err := spoke.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	asked := revisionOf(t, list.GetResourceVersion())
	if err := hub.Delete(ctx, "ordered", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the spoke deletes the workloads", func() error {
		return deletionBegun(w.edge1.Resource(deployments, "ordered").Get(ctx, "guestbook", metav1.GetOptions{}))
	})
	w.fence(t, "ordered-fence")
	if o := get(t, hub, "ordered"); !carriesCascade(o) {
		t.Errorf("the hub let go while workloads are there: finalizers %v", o.GetFinalizers())
	}
	if o := get(t, spoke, "ordered"); !carriesCascade(o) || o.GetDeletionTimestamp() == nil {
		t.Errorf("the spoke let go while workloads are there: finalizers %v", o.GetFinalizers())
	}
	release()
	eventually(t, "the hub's object goes", func() error { return gone(ctx, hub, "ordered") })
	if err := errors.Join(gone(ctx, spoke, "ordered"), gone(ctx, w.edge1.Resource(deployments, "ordered"), "guestbook")); err != nil {
		t.Errorf("the hub's object went first: %v", err)
	}

	hubSeen.caughtUp(t, hub)
	spokeSeen.caughtUp(t, spoke)
	for _, event := range hubSeen.history("ordered") {
		o := event.Object.(*unstructured.Unstructured)
		if event.Type != watch.Deleted && !carriesCascade(o) {
			t.Errorf("the hub's object was without finalizer at %s", o.GetResourceVersion())
		}
	}
	states := spokeSeen.history("ordered")
	for _, event := range states {
		o := event.Object.(*unstructured.Unstructured)
		if revisionOf(t, o.GetResourceVersion()) <= asked && carriesCascade(o) {
			t.Errorf("the copy was armed at %s, before anybody asked", o.GetResourceVersion())
		}
		if o.GetDeletionTimestamp() != nil && event.Type != watch.Deleted && !carriesCascade(o) {
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
	releaseWithHooks(t, theWorld(t))
}

func releaseWithHooks(t *testing.T, w *world) {
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
	repository, err := w.h.NewRepository(ctx, "hooks", files)
	if err != nil {
		t.Fatal(err)
	}
	hub, spoke := w.onHub(managed), w.onSpoke(managed)
	seen := map[string]*recorder{}
	for _, name := range []string{"hooked", "hooked-cascading"} {
		app := w.guestbook(name, managed, managed)
		if name == "hooked-cascading" {
			app = w.cascading(name)
		}
		app.Object["spec"].(map[string]any)["source"].(map[string]any)["repoURL"] = repository.URL
		create(t, hub, app)
		seen[name] = record(t, w.edge1.Resource(configMaps, name))
	}
	for name := range seen {
		eventually(t, name+" is healthy on the hub, and its copy armed", func() error {
			o, err := spoke.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !slices.Contains(o.GetFinalizers(), armed) {
				return fmt.Errorf("finalizers %v", o.GetFinalizers())
			}
			return healthy(ctx, hub, name)
		})
	}
	before := w.workloads(t, "hooked")
	for name := range seen {
		if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name := range seen {
		eventually(t, "both objects of "+name+" go", func() error { return errors.Join(gone(ctx, hub, name), gone(ctx, spoke, name)) })
		seen[name].caughtUp(t, w.edge1.Resource(configMaps, name))
	}
	if len(seen["hooked-cascading"].history(hook)) == 0 {
		t.Error("the hook of the one that cascades did not run: the test shows nothing")
	}
	if events := seen["hooked"].history(hook); len(events) > 0 {
		t.Errorf("the hook of the one that was released ran: %v", events)
	}
	if after := w.workloads(t, "hooked"); !maps.Equal(before, after) {
		t.Errorf("the workloads were %v and are %v", before, after)
	}
}

// TestHistoryRecreated puts another Application in the place of one that was deleted,
// under the same name. What goes by names alone takes the new one for the old: it
// deletes the new one's copy, or lets a cascade of the old run into it.
func TestHistoryRecreated(t *testing.T) {
	t.Parallel()
	w, ctx := theWorldAlone(t), t.Context()
	hub, spoke := w.onHub(managed), w.onSpoke(managed)
	// again is the second Application of a name.
	again := func(name string) *unstructured.Unstructured {
		app := w.cascading(name)
		app.SetLabels(map[string]string{"life": "second"})
		return app
	}
	copyOf := func(app *unstructured.Unstructured) func() error {
		return func() error {
			o, err := spoke.Get(ctx, app.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if uid := o.GetAnnotations()[sourceUID]; uid != string(app.GetUID()) || o.GetLabels()["life"] != "second" {
				return fmt.Errorf("it is a copy of %s with labels %v, not of %s", uid, o.GetLabels(), app.GetUID())
			}
			if o.GetDeletionTimestamp() != nil {
				return errors.New("it is being deleted")
			}
			return healthy(ctx, hub, app.GetName())
		}
	}
	// force takes an Application from the hub by its finalizers, as people do who do
	// not want to wait.
	force := func(name string) {
		t.Helper()
		if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		patch(t, hub, name, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	}
	first := func(name string, app *unstructured.Unstructured) map[string]string {
		t.Helper()
		create(t, hub, app)
		eventually(t, name+" is healthy on the hub", func() error { return healthy(ctx, hub, name) })
		return w.workloads(t, name)
	}

	t.Run("while connected", func(t *testing.T) {
		before := first("again-connected", w.guestbook("again-connected", managed, managed))
		if err := hub.Delete(ctx, "again-connected", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the copy is the second one's", copyOf(create(t, hub, again("again-connected"))))
		if after := w.workloads(t, "again-connected"); !maps.Equal(before, after) {
			t.Errorf("the workloads were %v and are %v", before, after)
		}
	})
	t.Run("while away, by force", func(t *testing.T) {
		// Nobody on the spoke saw the first one's deletion, so nobody may act on it.
		before := first("again-away", w.cascading("again-away"))
		var second *unstructured.Unstructured
		w.away(t, func() {
			force("again-away")
			second = create(t, hub, again("again-away"))
		})
		eventually(t, "the copy is the second one's", copyOf(second))
		if after := w.workloads(t, "again-away"); !maps.Equal(before, after) {
			t.Errorf("the workloads were %v and are %v", before, after)
		}
	})
	t.Run("while the first one's cascade is under way", func(t *testing.T) {
		before := first("again-cascade", w.cascading("again-cascade"))
		release := w.hold(t, "again-cascade")
		if err := hub.Delete(ctx, "again-cascade", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the spoke deletes the workloads", func() error {
			return deletionBegun(w.edge1.Resource(deployments, "again-cascade").Get(ctx, "guestbook", metav1.GetOptions{}))
		})
		patch(t, hub, "again-cascade", map[string]any{"metadata": map[string]any{"finalizers": nil}})
		second := create(t, hub, again("again-cascade"))
		w.fence(t, "again-fence")
		// What was witnessed goes on, and the second one waits for its end.
		if o := get(t, spoke, "again-cascade"); deletionBegun(o, nil) != nil || o.GetAnnotations()[sourceUID] == string(second.GetUID()) {
			t.Errorf("the copy that is being deleted has annotations %v and finalizers %v", o.GetAnnotations(), o.GetFinalizers())
		}
		release()
		eventually(t, "the copy is the second one's", copyOf(second))
		for kind, uid := range w.workloads(t, "again-cascade") {
			if uid == before[kind] {
				t.Errorf("%s was to go with the first one, and is there", kind)
			}
		}
	})
}

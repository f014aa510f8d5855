//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// neverHeld fails the test if the Agent ever showed held deletions since the record of
// Agents began.
func (r *remote) neverHeld(t *testing.T, agents *recorder) {
	t.Helper()
	for _, event := range agents.history(r.name) {
		if held, found, _ := unstructured.NestedMap(event.Object.(*unstructured.Unstructured).Object, "status", "deletionsHeld"); found {
			t.Errorf("the Agent showed deletions as held: %v", held)
			return
		}
	}
}

// heldFor is a check that at least so many deletions are held for a reason.
func (r *remote) heldFor(ctx context.Context, reason string, least int) error {
	agent, err := r.w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, r.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	got, _, _ := unstructured.NestedMap(agent.Object, "status", "deletionsHeld")
	if total, _ := got["total"].(int64); got["reason"] != reason || int(total) < least {
		return fmt.Errorf("the Agent shows %v", got)
	}
	return nil
}

// keepsHeld is a check that the spoke has what is held of what the hub no longer has, at
// least so much, and nothing else.
func (r *remote) keepsHeld(ctx context.Context, least int) error {
	agent, err := r.w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, r.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	list, err := r.spoke.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) < least {
		return harness.Permanent(fmt.Errorf("the spoke has %d Applications, want %d at least", len(list.Items), least))
	}
	if held, _, _ := unstructured.NestedInt64(agent.Object, "status", "deletionsHeld", "total"); int(held) != len(list.Items) {
		return fmt.Errorf("the spoke has %d Applications, and %d are held", len(list.Items), held)
	}
	return nil
}

// removeAll deletes the Applications with the names of first to last-1 from the hub.
func (r *remote) removeAll(t *testing.T, first, last int) {
	t.Helper()
	each(t, last-first, func(ctx context.Context, i int) error {
		return r.hub.Delete(ctx, fmt.Sprint("app-", first+i), metav1.DeleteOptions{})
	})
}

// removeAllThrough is removeAll while the API server may be away.
func (r *remote) removeAllThrough(ctx context.Context, first, last int) error {
	for i := first; i < last; i++ {
		if err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			err := r.hub.Delete(ctx, fmt.Sprint("app-", i), metav1.DeleteOptions{})
			return err == nil || apierrors.IsNotFound(err), nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func (r *remote) createApps(t *testing.T, n int) {
	t.Helper()
	createAll(t, r.hub, n, func(i int) *unstructured.Unstructured { return r.application(fmt.Sprint("app-", i)) })
}

// TestHistorySeenDeletions deletes Applications one after the other, as people and tools
// do. What counts only what is absent asks somebody about each of a thousand of them.
func TestHistorySeenDeletions(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "kubectl")
	w, ctx := theQuietWorldAlone(t), t.Context()
	r := w.connect(t, "cleared", "managed")
	seen := record(t, w.hub.Resource(agents, harness.ArgoCDNamespace))
	hub, spoke := record(t, r.hub), record(t, r.spoke)
	equal := func(what string) {
		t.Helper()
		eventually(t, what, func() error { return r.agree(hub, spoke) })
	}

	const apps = 1000
	r.createApps(t, apps)
	equal("both sides are equal at first")
	eventually(t, "the history has begun", func() error { return r.begun(ctx) })
	kubectl, err := w.h.Kubectl(ctx, t.TempDir(), w.hub.Kubeconfig, "--namespace", r.name, "delete", "applications.argoproj.io", "--all", "--wait=false")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ended := time.Now()
	equal("the spoke has none")
	t.Logf("kubectl deleted %d Applications in %s, and the spoke had none %s later, which is to be 20s at most", apps, ended.Sub(began), time.Since(ended))
	if left := len(spoke.objects()); left != 0 {
		t.Errorf("after that the spoke has %d Applications", left)
	}

	// While the agent is away, and half of them before it is.
	const few = 60
	r.createApps(t, few)
	equal("both sides are equal again")
	r.removeAll(t, 0, 20)
	r.network.Cut()
	r.removeAll(t, 20, 40)
	r.network.Mend()
	r.removeAll(t, 40, 50)
	equal("the spoke has what is left")

	// Another one under the name of each: the copies become theirs, and are not made anew.
	copies := map[string]types.UID{}
	for name, o := range spoke.objects() {
		copies[name] = o.GetUID()
	}
	r.network.Cut()
	r.removeAll(t, 50, few)
	each(t, few-50, func(ctx context.Context, i int) error {
		_, err := r.hub.Create(ctx, r.application(fmt.Sprint("app-", 50+i)), metav1.CreateOptions{})
		return err
	})
	r.network.Mend()
	equal("the spoke has the second ones")
	for name, o := range spoke.objects() {
		if o.GetUID() != copies[name] {
			t.Errorf("the copy %s was made anew", name)
		}
	}
	seen.caughtUp(t, w.hub.Resource(agents, harness.ArgoCDNamespace))
	r.neverHeld(t, seen)
}

// TestHistoryUnseenDeletions deletes Applications while nobody sees it to the end: the
// principal is killed half-way, or it is frozen until its watch cannot go on. What it did
// not see it cannot tell from a loss.
func TestHistoryUnseenDeletions(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcdctl")
	w, ctx := theQuietWorldAlone(t), t.Context()
	const half = 100
	for name, unseen := range map[string]func(t *testing.T, r *remote, apps int) (least int){
		"killed": func(t *testing.T, r *remote, apps int) int {
			if err := w.principal.Kill(); err != nil {
				t.Fatal(err)
			}
			r.removeAll(t, half, apps)
			if err := w.principal.Start(ctx); err != nil {
				t.Fatal(err)
			}
			return apps - half - 10
		},
		// In the midst of the deletions its connection breaks. It goes on from where its watch
		// stood, of which the API server that comes last knows nothing any more (410): its own
		// cache begins with what was there when it started.
		"frozen": func(t *testing.T, r *remote, apps int) int {
			removed := make(chan error, 1)
			go func() { removed <- r.removeAllThrough(ctx, half, apps) }()
			left := 0
			eventually(t, "the deletions are under way", func() error {
				list, err := r.hub.List(ctx, metav1.ListOptions{})
				if err == nil && len(list.Items) > apps-half-50 {
					err = fmt.Errorf("the hub has %d", len(list.Items))
				}
				return err
			})
			if err := errors.Join(w.principal.Signal(syscall.SIGSTOP), w.hub.Server.Restart(ctx)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the API server is back", func() error {
				list, err := r.hub.List(ctx, metav1.ListOptions{})
				if err == nil {
					left = len(list.Items)
				}
				return err
			})
			if left == 0 {
				t.Fatal("all was deleted before the watch broke")
			}
			if err := errors.Join(<-removed, w.hub.Server.Restart(ctx), w.principal.Signal(syscall.SIGCONT)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the principal lists again, for its watch cannot go on", func() error {
				n, err := metric(ctx, w.principal.AdminAddress, "argomesh_store_expired_watches_total")
				if err == nil && n == 0 {
					err = errors.New("no watch has expired")
				}
				return err
			})
			return left
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, apps := w.connect(t, "half-"+name, "managed"), map[string]int{"killed": 200, "frozen": 1000}[name]
			r.createApps(t, apps)
			eventually(t, "both sides are equal at first", func() error { return r.same(ctx) })
			eventually(t, "the history has begun", func() error { return r.begun(ctx) })
			r.removeAll(t, 0, half)
			eventually(t, "half of them are gone", func() error { return r.same(ctx) })

			least := unseen(t, r, apps)
			eventually(t, "the others are held", func() error { return r.heldFor(ctx, "TooMany", least) })
			eventually(t, "what was seen is gone, and nothing else", func() error { return r.keepsHeld(ctx, least) })
			if out, err := w.h.Agentctl(ctx, w.hub, "agent", "accept-deletions", r.name, "--yes"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			eventually(t, "both sides are equal", func() error { return r.same(ctx) })
		})
	}
}

// TestHistoryPlaceDeleted deletes what the Applications of an agent stand on: their
// namespace, and the definition of their kind. The API server then says of each that it
// was deleted, as if somebody had asked for it by name.
func TestHistoryPlaceDeleted(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "kube-controller-manager")
	ctx, h := t.Context(), harnesstest.AtOnce(t)
	w := &quietWorld{h: h}
	manifests, err := quietManifests(h)
	if err != nil {
		t.Fatal(err)
	}
	if w.hub, err = h.StartControlPlane(ctx, harness.ControlPlaneConfig{
		Name: "hub", Manifests: manifests, Controllers: []string{"namespace-controller"},
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.hub.EnsureNamespace(ctx, harness.ArgoCDNamespace); err != nil {
		t.Fatal(err)
	}
	if w.spoke, err = startQuietControlPlane(ctx, h, "spoke", w.hub.Etcd); err != nil {
		t.Fatal(err)
	}
	if err := w.startPrincipal(ctx, "", nil); err != nil {
		t.Fatal(err)
	}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	const apps = 60
	for _, c := range []struct {
		name     string
		resource schema.GroupVersionResource
		object   string
	}{
		{"place-namespace", schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "place-namespace"},
		{"place-definition", definitions, "applications.argoproj.io"}, // last
	} {
		t.Run(c.name, func(t *testing.T) {
			r := w.connect(t, c.name, "managed")
			r.createApps(t, apps)
			eventually(t, "both sides are equal at first", func() error { return r.same(ctx) })
			eventually(t, "the history has begun", func() error { return r.begun(ctx) })
			if err := w.hub.Resource(c.resource, "").Delete(ctx, c.object, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the hub has none", func() error {
				list, err := r.hub.List(ctx, metav1.ListOptions{})
				if err == nil && len(list.Items) > 0 {
					return fmt.Errorf("it has %d", len(list.Items))
				}
				return nil // or no such kind
			})
			// What the namespace controller deletes comes in parts, of which the first fifth is
			// not too much.
			eventually(t, "they are held", func() error { return r.heldFor(ctx, "TooMany", apps-apps/5) })
			list, err := r.spoke.List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Items) < apps-apps/5 {
				t.Errorf("the spoke has %d of %d Applications", len(list.Items), apps)
			}
		})
	}
}

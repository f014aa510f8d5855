//go:build linux

package history

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

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// heldFor is a check that at least so many deletions are held for a reason.
func heldFor(ctx context.Context, r *env.BareAgent, reason string, least int) error {
	agent, err := r.Env.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, r.Name, metav1.GetOptions{})
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
func keepsHeld(ctx context.Context, r *env.BareAgent, least int) error {
	agent, err := r.Env.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	list, err := r.Spoke.List(ctx, metav1.ListOptions{})
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
func removeAll(t *testing.T, r *env.BareAgent, first, last int) {
	t.Helper()
	env.Each(t, last-first, func(ctx context.Context, i int) error {
		return r.Hub.Delete(ctx, fmt.Sprint("app-", first+i), metav1.DeleteOptions{})
	})
}

// removeAllThrough is removeAll while the API server may be away.
func removeAllThrough(ctx context.Context, r *env.BareAgent, first, last int) error {
	for i := first; i < last; i++ {
		if err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			err := r.Hub.Delete(ctx, fmt.Sprint("app-", i), metav1.DeleteOptions{})
			return err == nil || apierrors.IsNotFound(err), nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func createApps(t *testing.T, r *env.BareAgent, n int) {
	t.Helper()
	env.CreateAll(t, r.Hub, n, func(i int) *unstructured.Unstructured { return r.Application(fmt.Sprint("app-", i)) })
}

// TestHistorySeenDeletions deletes Applications one after the other, as people and tools
// do. What counts only what is absent asks someone about each of a thousand of them.
func TestHistorySeenDeletions(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "kubectl")
	w, ctx := env.OwnBare(t), t.Context()
	r := w.Connect(t, "cleared", "managed")
	seen := env.Record(t, w.Hub.Resource(env.Agents, harness.ArgoCDNamespace))
	hub, spoke := env.Record(t, r.Hub), env.Record(t, r.Spoke)
	equal := func(what string) {
		t.Helper()
		env.Eventually(t, what, func() error { return r.Agree(hub, spoke) })
	}

	const apps = 1000
	createApps(t, r, apps)
	equal("both sides are equal at first")
	env.Eventually(t, "the history has begun", func() error { return begun(ctx, r) })
	kubectl, err := w.Harness.Kubectl(ctx, t.TempDir(), w.Hub.Kubeconfig, "--namespace", r.Name, "delete", "applications.argoproj.io", "--all", "--wait=false")
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
	if left := len(spoke.Objects()); left != 0 {
		t.Errorf("after that the spoke has %d Applications", left)
	}

	// While the agent is away, and half of them before it is.
	const few = 60
	createApps(t, r, few)
	equal("both sides are equal again")
	removeAll(t, r, 0, 20)
	r.Network.Cut()
	removeAll(t, r, 20, 40)
	r.Network.Mend()
	removeAll(t, r, 40, 50)
	equal("the spoke has what is left")

	// Another one under the name of each: the copies become theirs, and are not made again.
	copies := map[string]types.UID{}
	for name, o := range spoke.Objects() {
		copies[name] = o.GetUID()
	}
	r.Network.Cut()
	removeAll(t, r, 50, few)
	env.Each(t, few-50, func(ctx context.Context, i int) error {
		_, err := r.Hub.Create(ctx, r.Application(fmt.Sprint("app-", 50+i)), metav1.CreateOptions{})
		return err
	})
	r.Network.Mend()
	equal("the spoke has the second ones")
	for name, o := range spoke.Objects() {
		if o.GetUID() != copies[name] {
			t.Errorf("the copy %s was made anew", name)
		}
	}
	seen.CaughtUp(t, w.Hub.Resource(env.Agents, harness.ArgoCDNamespace))
	r.NeverHeld(t, seen)
}

// TestHistoryUnseenDeletions deletes Applications while no one sees it to the end: the
// principal is killed half-way, or it is frozen until its watch cannot go on. What it did
// not see it cannot tell from a loss.
func TestHistoryUnseenDeletions(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcdctl")
	w, ctx := env.OwnBare(t), t.Context()
	const half = 100
	for name, unseen := range map[string]func(t *testing.T, r *env.BareAgent, apps int) (least int){
		"killed": func(t *testing.T, r *env.BareAgent, apps int) int {
			if err := w.Principal.Kill(); err != nil {
				t.Fatal(err)
			}
			removeAll(t, r, half, apps)
			if err := w.Principal.Start(ctx); err != nil {
				t.Fatal(err)
			}
			return apps - half - 10
		},
		// In the midst of the deletions its connection breaks. It goes on from where its watch
		// stood, of which the API server that comes last knows nothing any more (410): its own
		// cache begins with what was there when it started.
		"frozen": func(t *testing.T, r *env.BareAgent, apps int) int {
			removed := make(chan error, 1)
			go func() { removed <- removeAllThrough(ctx, r, half, apps) }()
			left := 0
			env.Eventually(t, "the deletions are under way", func() error {
				list, err := r.Hub.List(ctx, metav1.ListOptions{})
				if err == nil && len(list.Items) > apps-half-50 {
					err = fmt.Errorf("the hub has %d", len(list.Items))
				}
				return err
			})
			if err := errors.Join(w.Principal.Signal(syscall.SIGSTOP), w.Hub.Server.Restart(ctx)); err != nil {
				t.Fatal(err)
			}
			env.Eventually(t, "the API server is back", func() error {
				list, err := r.Hub.List(ctx, metav1.ListOptions{})
				if err == nil {
					left = len(list.Items)
				}
				return err
			})
			if left == 0 {
				t.Fatal("all was deleted before the watch broke")
			}
			if err := errors.Join(<-removed, w.Hub.Server.Restart(ctx), w.Principal.Signal(syscall.SIGCONT)); err != nil {
				t.Fatal(err)
			}
			env.Eventually(t, "the principal lists again, for its watch cannot go on", func() error {
				n, err := env.Metric(ctx, w.Principal.AdminAddress, "argomesh_store_expired_watches_total")
				if err == nil && n == 0 {
					err = errors.New("no watch has expired")
				}
				return err
			})
			return left
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, apps := w.Connect(t, "half-"+name, "managed"), map[string]int{"killed": 200, "frozen": 1000}[name]
			createApps(t, r, apps)
			env.Eventually(t, "both sides are equal at first", func() error { return same(ctx, r) })
			env.Eventually(t, "the history has begun", func() error { return begun(ctx, r) })
			removeAll(t, r, 0, half)
			env.Eventually(t, "half of them are gone", func() error { return same(ctx, r) })

			least := unseen(t, r, apps)
			env.Eventually(t, "the others are held", func() error { return heldFor(ctx, r, "TooMany", least) })
			env.Eventually(t, "what was seen is gone, and nothing else", func() error { return keepsHeld(ctx, r, least) })
			if out, err := w.Harness.Agentctl(ctx, w.Hub, "agent", "accept-deletions", r.Name, "--yes"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			env.Eventually(t, "both sides are equal", func() error { return same(ctx, r) })
		})
	}
}

// TestHistoryPlaceDeleted deletes what the Applications of an agent stand on: their
// namespace, and the definition of their kind. The API server then says of each that it
// was deleted, as if someone had asked for it by name.
func TestHistoryPlaceDeleted(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "kube-controller-manager")
	ctx, h := t.Context(), harnesstest.AtOnce(t)
	w := env.NewBare(h)
	manifests, err := env.BareManifests(h)
	if err != nil {
		t.Fatal(err)
	}
	if w.Hub, err = h.StartControlPlane(ctx, harness.ControlPlaneConfig{
		Name: "hub", Manifests: manifests, Controllers: []string{"namespace-controller"},
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.Hub.EnsureNamespace(ctx, harness.ArgoCDNamespace); err != nil {
		t.Fatal(err)
	}
	if w.Spoke, err = env.StartBareControlPlane(ctx, h, "spoke", w.Hub.Etcd); err != nil {
		t.Fatal(err)
	}
	if err := w.StartPrincipal(ctx, "", nil); err != nil {
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
			r := w.Connect(t, c.name, "managed")
			createApps(t, r, apps)
			env.Eventually(t, "both sides are equal at first", func() error { return same(ctx, r) })
			env.Eventually(t, "the history has begun", func() error { return begun(ctx, r) })
			if err := w.Hub.Resource(c.resource, "").Delete(ctx, c.object, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			env.Eventually(t, "the hub has none", func() error {
				list, err := r.Hub.List(ctx, metav1.ListOptions{})
				if err == nil && len(list.Items) > 0 {
					return fmt.Errorf("it has %d", len(list.Items))
				}
				return nil // or no such kind
			})
			// What the namespace controller deletes comes in parts, of which the first fifth is
			// not too much.
			env.Eventually(t, "they are held", func() error { return heldFor(ctx, r, "TooMany", apps-apps/5) })
			list, err := r.Spoke.List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Items) < apps-apps/5 {
				t.Errorf("the spoke has %d of %d Applications", len(list.Items), apps)
			}
		})
	}
}

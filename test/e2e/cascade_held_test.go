//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// TestMassCascade asks for the workloads of more Applications than anybody means to
// lose. What passes on each deletion as it comes empties the spokes before a person
// looks; what holds back all of them keeps people from work.
func TestMassCascade(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "kube-controller-manager")
	w := startCascadeWorld(t)
	t.Run("kubectl delete namespace", w.testNamespaceDeleted)
	t.Run("12 of 20", w.testMassCascade)
	t.Run("11 of 100", w.testFewOfMany)
	t.Run("one half before a restart, one after", w.testCascadeRestart)
	t.Run("two agents, each below", w.testHubCascade)
	t.Run("the Agent is deleted", w.testAgentCascade)
	t.Run("the definition is deleted", w.testDefinitionDeleted) // the last: there are none any more
}

// startCascadeWorld starts a quiet world of its own, on whose hub a namespace that is
// deleted takes its objects along.
func startCascadeWorld(t *testing.T) *quietWorld {
	t.Helper()
	ctx, w := t.Context(), &quietWorld{h: harnesstest.AtOnce(t)}
	manifests, err := quietManifests(w.h)
	if err != nil {
		t.Fatal(err)
	}
	if w.hub, err = w.h.StartControlPlane(ctx, harness.ControlPlaneConfig{
		Name: "hub", Manifests: manifests, Controllers: []string{"namespace-controller"},
	}); err != nil {
		t.Fatal(err)
	}
	if w.spoke, err = startQuietControlPlane(ctx, w.h, "spoke", w.hub.Etcd); err != nil {
		t.Fatal(err)
	}
	if err := w.hub.EnsureNamespace(ctx, harness.ArgoCDNamespace); err != nil {
		t.Fatal(err)
	}
	identity, err := w.identify(ctx, principalID)
	if err != nil {
		t.Fatal(err)
	}
	if w.principal, err = w.h.StartPrincipal(ctx, harness.PrincipalConfig{ControlPlane: w.hub, WorkloadAPI: identity}); err != nil {
		t.Fatal(err)
	}
	return w
}

// cascadingAll makes so many Applications that would take their workloads along, and
// waits until the spoke has them. They are as old as an hour.
func (r *remote) cascadingAll(t *testing.T, n int) {
	t.Helper()
	createAll(t, r.hub, n, func(i int) *unstructured.Unstructured {
		app := r.application(fmt.Sprint("app-", i))
		app.SetFinalizers([]string{cascade})
		return app
	})
	eventually(t, "the spoke has them", func() error { return r.numbers(t.Context(), n, n, 0) })
	if err := r.w.hub.Age(t.Context(), harness.Applications, r.name, time.Hour); err != nil {
		t.Fatal(err)
	}
	// Nothing changes its age, so a process looks once.
	if err := r.w.principal.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent is back", func() error { return r.connected(t.Context(), true) })
	eventually(t, "it has its history again", func() error { return r.begun(t.Context()) })
}

// deleteApps deletes those of the hub from one number to before another.
func (r *remote) deleteApps(t *testing.T, from, to int) {
	t.Helper()
	each(t, to-from, func(ctx context.Context, i int) error {
		return r.hub.Delete(ctx, fmt.Sprint("app-", from+i), metav1.DeleteOptions{})
	})
}

// numbers is a check of how many Applications there are on the hub and on the spoke, and
// how many of the latter are being deleted.
func (r *remote) numbers(ctx context.Context, hub, spoke, deleting int) error {
	onHub, err := r.hub.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	onSpoke, err := r.spoke.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	going := 0
	for _, app := range onSpoke.Items {
		if app.GetDeletionTimestamp() != nil {
			going++
		}
	}
	if len(onHub.Items) != hub || len(onSpoke.Items) != spoke || going != deleting {
		return fmt.Errorf("the hub has %d Applications, the spoke %d, of which %d are being deleted; want %d, %d, %d",
			len(onHub.Items), len(onSpoke.Items), going, hub, spoke, deleting)
	}
	return nil
}

// finish does on the spoke what Argo CD's controller does when the workloads are gone.
func (r *remote) finish(ctx context.Context) error {
	list, err := r.spoke.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if app := &list.Items[i]; app.GetDeletionTimestamp() != nil {
			app.SetFinalizers(nil)
			_, err = r.spoke.Update(ctx, app, metav1.UpdateOptions{})
			err = errors.Join(err)
		}
	}
	return err
}

// heldCascades returns how many deletions the Agent shows as held that would take
// workloads along, with a condition that names both ways out.
func (r *remote) heldCascades(ctx context.Context) (int, error) {
	agent, err := r.w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, r.name, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	with, _, _ := unstructured.NestedInt64(agent.Object, "status", "deletionsHeld", "withWorkloads")
	condition := conditionIn(agent, "DeletionsHeld")
	message, _ := condition["message"].(string)
	if with == 0 || condition["status"] != "True" || condition["reason"] != "CascadeHeld" ||
		!strings.Contains(message, "agentctl agent accept-deletions "+r.name) || !strings.Contains(message, "agentctl agent keep-workloads "+r.name) {
		return 0, fmt.Errorf("the Agent shows %d deletions with workloads, condition %v", with, condition)
	}
	return int(with), nil
}

func (r *remote) holdsCascades(ctx context.Context, want int) error {
	got, err := r.heldCascades(ctx)
	if err == nil && got != want {
		err = fmt.Errorf("%d are held, want %d", got, want)
	}
	return err
}

func (w *quietWorld) agentctl(t *testing.T, args ...string) {
	t.Helper()
	if out, err := w.h.Agentctl(t.Context(), w.hub, args...); err != nil {
		t.Fatalf("agentctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// A person deletes a namespace, and the namespace controller all that is in it.
func (w *quietWorld) testNamespaceDeleted(t *testing.T) {
	ctx, r := t.Context(), w.connect(t, "doomed", "managed")
	r.cascadingAll(t, 3)
	seen := record(t, r.spoke)
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if err := w.hub.Resource(namespaces, "").Delete(ctx, r.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are held", func() error { return r.holdsCascades(ctx, 3) })
	// Another connection, and another process of the hub, do not let go.
	if err := errors.Join(r.agent.Restart(ctx), w.principal.Restart(ctx)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent is back", func() error { return r.connected(ctx, true) })
	eventually(t, "all are still held", func() error { return r.holdsCascades(ctx, 3) })
	seen.caughtUp(t, r.spoke)
	if err := r.numbers(ctx, 3, 3, 0); err != nil || len(seen.writes()) > 0 {
		t.Fatalf("the spoke was touched: %v, %v", seen.writes(), err)
	}

	w.agentctl(t, "agent", "keep-workloads", r.name, "app-1", "--yes")
	if err := r.numbers(ctx, 2, 2, 0); err != nil {
		t.Error(err)
	}
	w.agentctl(t, "agent", "keep-workloads", r.name, "--yes")
	// No controller of the spoke is there: a copy with a finalizer would stay.
	if err := r.numbers(ctx, 0, 0, 0); err != nil {
		t.Error(err)
	}
	eventually(t, "nothing is held any more", func() error { return r.holds(ctx, "", 0) })
}

// What an ApplicationSet does that comes to generate fewer.
func (w *quietWorld) testMassCascade(t *testing.T) {
	ctx, r := t.Context(), w.connect(t, "mass", "managed")
	r.cascadingAll(t, 20)
	r.deleteApps(t, 0, 12)
	held := 0
	eventually(t, "what was not sent yet is held", func() (err error) {
		held, err = r.heldCascades(ctx)
		return errors.Join(err, r.numbers(ctx, 20, 20, 12-held))
	})
	if held < 2 {
		t.Fatalf("%d of 12 are held, want those after the tenth at least", held)
	}
	if err := w.principal.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent is back", func() error { return r.connected(ctx, true) })
	eventually(t, "they are still held", func() error { return r.holdsCascades(ctx, held) })
	eventually(t, "those that were sent are done", func() error {
		return errors.Join(r.finish(ctx), r.numbers(ctx, 8+held, 8+held, 0))
	})

	w.agentctl(t, "agent", "accept-deletions", r.name, "--yes")
	eventually(t, "the others are deleted with their workloads", func() error {
		return r.numbers(ctx, 8+held, 8+held, held)
	})
	eventually(t, "they are done", func() error { return errors.Join(r.finish(ctx), r.numbers(ctx, 8, 8, 0)) })
	eventually(t, "nothing is held any more", func() error { return r.holds(ctx, "", 0) })
}

// Eleven are counted, and go without anybody being asked.
func (w *quietWorld) testFewOfMany(t *testing.T) {
	ctx, r := t.Context(), w.connect(t, "busy", "managed")
	r.cascadingAll(t, 100)
	r.deleteApps(t, 0, 11)
	eventually(t, "they go", func() error {
		if held, err := r.heldCascades(ctx); err == nil {
			return harness.Permanent(fmt.Errorf("%d are held", held))
		}
		return errors.Join(r.finish(ctx), r.numbers(ctx, 89, 89, 0))
	})
}

// Six are gone when the principal is killed; six more make it twelve of twenty.
func (w *quietWorld) testCascadeRestart(t *testing.T) {
	ctx, r := t.Context(), w.connect(t, "halves", "managed")
	r.cascadingAll(t, 20)
	r.deleteApps(t, 0, 6)
	eventually(t, "six are done", func() error { return errors.Join(r.finish(ctx), r.numbers(ctx, 14, 14, 0)) })
	eventually(t, "the Agent remembers them", func() error {
		agent, err := w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, r.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		gone, _, _ := unstructured.NestedSlice(agent.Object, "status", "cascades", "gone")
		var sum int64
		for _, g := range gone {
			one, _ := g.(map[string]any)
			n, _ := one["withWorkloads"].(int64)
			sum += n
		}
		if sum != 6 {
			return fmt.Errorf("status.cascades.gone is %v", gone)
		}
		return nil
	})
	if err := w.principal.Kill(); err != nil {
		t.Fatal(err)
	}
	r.network.Cut()
	if err := w.principal.Start(ctx); err != nil {
		t.Fatal(err)
	}
	r.deleteApps(t, 6, 12)
	r.network.Mend()
	eventually(t, "the other six are held", func() error { return r.holdsCascades(ctx, 6) })
	if err := r.numbers(ctx, 14, 14, 0); err != nil {
		t.Error(err)
	}
	w.agentctl(t, "agent", "accept-deletions", r.name, "--yes")
	eventually(t, "they are done", func() error { return errors.Join(r.finish(ctx), r.numbers(ctx, 8, 8, 0)) })
}

// Eight of ten of one agent are not too many, and neither are those of another.
func (w *quietWorld) testHubCascade(t *testing.T) {
	ctx := t.Context()
	w.settled(t) // what other agents have counts as well
	remotes := []*remote{w.connect(t, "half-1", "managed"), w.connect(t, "half-2", "managed")}
	for _, r := range remotes {
		r.cascadingAll(t, 10)
		r.network.Cut()
	}
	for _, r := range remotes {
		r.deleteApps(t, 0, 8)
	}
	for _, r := range remotes {
		r.network.Mend()
	}
	for _, r := range remotes {
		eventually(t, r.name+": all are held", func() error { return r.holdsCascades(ctx, 8) })
		if err := r.numbers(ctx, 10, 10, 0); err != nil {
			t.Error(err)
		}
	}
	w.agentctl(t, "agent", "keep-workloads", "half-1", "--yes")
	w.agentctl(t, "agent", "accept-deletions", "half-2", "--yes")
	eventually(t, "one agent has released them", func() error { return remotes[0].numbers(ctx, 2, 2, 0) })
	eventually(t, "the other one's workloads go", func() error { return remotes[1].numbers(ctx, 10, 10, 8) })
}

// A person deletes an Agent with all that it has, which is no mistake however much it is.
func (w *quietWorld) testAgentCascade(t *testing.T) {
	const apps = 12
	ctx, r := t.Context(), w.connect(t, "departs", "managed")
	r.cascadingAll(t, apps)
	registry := w.hub.Resource(agents, harness.ArgoCDNamespace)
	seen := record(t, registry)
	w.agentctl(t, "agent", "delete", r.name, "--cascade", "--yes", "--wait=false")
	eventually(t, "all are deleted with their workloads", func() error { return r.numbers(ctx, apps, apps, apps) })
	eventually(t, "they are done", func() error { return errors.Join(r.finish(ctx), r.numbers(ctx, 0, 0, 0)) })
	eventually(t, "the Agent is gone", func() error { return absent(registry.Get(ctx, r.name, metav1.GetOptions{})) })
	seen.caughtUp(t, registry)
	r.neverHeld(t, seen)
}

// A person uninstalls Argo CD's definitions, and the API server deletes all Applications.
func (w *quietWorld) testDefinitionDeleted(t *testing.T) {
	ctx, r := t.Context(), w.connect(t, "undefined", "managed")
	r.cascadingAll(t, 2)
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if err := w.hub.Resource(definitions, "").Delete(ctx, "applications.argoproj.io", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are held", func() error { return r.holdsCascades(ctx, 2) })
	if err := r.numbers(ctx, 2, 2, 0); err != nil {
		t.Error(err)
	}
	w.agentctl(t, "agent", "accept-deletions", r.name, "--yes")
	eventually(t, "they are deleted with their workloads", func() error { return r.numbers(ctx, 2, 2, 2) })
}

//go:build linux

package history

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

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// TestMassCascade asks for the workloads of more Applications than anybody means to
// lose. What passes on each deletion as it comes empties the spokes before a person
// looks; what holds back all of them keeps people from work.
func TestMassCascade(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "kube-controller-manager")
	w := startCascadeEnv(t)
	t.Run("kubectl delete namespace", func(t *testing.T) { testNamespaceDeleted(t, w) })
	t.Run("12 of 20", func(t *testing.T) { testMassCascade(t, w) })
	t.Run("11 of 100", func(t *testing.T) { testFewOfMany(t, w) })
	t.Run("one half before a restart, one after", func(t *testing.T) { testCascadeRestart(t, w) })
	t.Run("two agents, each below", func(t *testing.T) { testHubCascade(t, w) })
	t.Run("the Agent is deleted", func(t *testing.T) { testAgentCascade(t, w) })
	t.Run("the definition is deleted", func(t *testing.T) { testDefinitionDeleted(t, w) }) // the last: there are none any more
}

// startCascadeEnv starts a Bare of its own, on whose hub a namespace that is
// deleted takes its objects along.
func startCascadeEnv(t *testing.T) *env.Bare {
	t.Helper()
	ctx, w := t.Context(), env.NewBare(harnesstest.AtOnce(t))
	manifests, err := env.BareManifests(w.Harness)
	if err != nil {
		t.Fatal(err)
	}
	if w.Hub, err = w.Harness.StartControlPlane(ctx, harness.ControlPlaneConfig{
		Name: "hub", Manifests: manifests, Controllers: []string{"namespace-controller"},
	}); err != nil {
		t.Fatal(err)
	}
	if w.Spoke, err = env.StartBareControlPlane(ctx, w.Harness, "spoke", w.Hub.Etcd); err != nil {
		t.Fatal(err)
	}
	if err := w.Hub.EnsureNamespace(ctx, harness.ArgoCDNamespace); err != nil {
		t.Fatal(err)
	}
	identity, err := w.Identify(ctx, env.PrincipalID)
	if err != nil {
		t.Fatal(err)
	}
	if w.Principal, err = w.Harness.StartPrincipal(ctx, harness.PrincipalConfig{ControlPlane: w.Hub, WorkloadAPI: identity}); err != nil {
		t.Fatal(err)
	}
	return w
}

// cascadingAll makes so many Applications that would take their workloads along, and
// waits until the spoke has them. They are as old as an hour.
func cascadingAll(t *testing.T, r *env.BareAgent, n int) {
	t.Helper()
	env.CreateAll(t, r.Hub, n, func(i int) *unstructured.Unstructured {
		app := r.Application(fmt.Sprint("app-", i))
		app.SetFinalizers([]string{env.Cascade})
		return app
	})
	env.Eventually(t, "the spoke has them", func() error { return numbers(t.Context(), r, n, n, 0) })
	if err := r.Env.Hub.Age(t.Context(), harness.Applications, r.Name, time.Hour); err != nil {
		t.Fatal(err)
	}
	// Nothing changes its age, so a process looks once.
	if err := r.Env.Principal.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the agent is back", func() error { return r.Connected(t.Context(), true) })
	env.Eventually(t, "it has its history again", func() error { return begun(t.Context(), r) })
}

// deleteApps deletes those of the hub from one number to before another.
func deleteApps(t *testing.T, r *env.BareAgent, from, to int) {
	t.Helper()
	env.Each(t, to-from, func(ctx context.Context, i int) error {
		return r.Hub.Delete(ctx, fmt.Sprint("app-", from+i), metav1.DeleteOptions{})
	})
}

// numbers is a check of how many Applications there are on the hub and on the spoke, and
// how many of the latter are being deleted.
func numbers(ctx context.Context, r *env.BareAgent, hub, spoke, deleting int) error {
	onHub, err := r.Hub.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	onSpoke, err := r.Spoke.List(ctx, metav1.ListOptions{})
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
func finish(ctx context.Context, r *env.BareAgent) error {
	list, err := r.Spoke.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if app := &list.Items[i]; app.GetDeletionTimestamp() != nil {
			app.SetFinalizers(nil)
			_, err = r.Spoke.Update(ctx, app, metav1.UpdateOptions{})
			err = errors.Join(err)
		}
	}
	return err
}

// heldCascades returns how many deletions the Agent shows as held that would take
// workloads along, with a condition that names both ways out.
func heldCascades(ctx context.Context, r *env.BareAgent) (int, error) {
	agent, err := r.Env.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	with, _, _ := unstructured.NestedInt64(agent.Object, "status", "deletionsHeld", "withWorkloads")
	condition := env.ConditionIn(agent, "DeletionsHeld")
	message, _ := condition["message"].(string)
	if with == 0 || condition["status"] != "True" || condition["reason"] != "CascadeHeld" ||
		!strings.Contains(message, "agentctl agent accept-deletions "+r.Name) || !strings.Contains(message, "agentctl agent keep-workloads "+r.Name) {
		return 0, fmt.Errorf("the Agent shows %d deletions with workloads, condition %v", with, condition)
	}
	return int(with), nil
}

func holdsCascades(ctx context.Context, r *env.BareAgent, want int) error {
	got, err := heldCascades(ctx, r)
	if err == nil && got != want {
		err = fmt.Errorf("%d are held, want %d", got, want)
	}
	return err
}

func agentctl(t *testing.T, w *env.Bare, args ...string) {
	t.Helper()
	if out, err := w.Harness.Agentctl(t.Context(), w.Hub, args...); err != nil {
		t.Fatalf("agentctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// A person deletes a namespace, and the namespace controller all that is in it.
func testNamespaceDeleted(t *testing.T, w *env.Bare) {
	ctx, r := t.Context(), w.Connect(t, "doomed", "managed")
	cascadingAll(t, r, 3)
	seen := env.Record(t, r.Spoke)
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if err := w.Hub.Resource(namespaces, "").Delete(ctx, r.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "all are held", func() error { return holdsCascades(ctx, r, 3) })
	// Another connection, and another process of the hub, do not let go.
	if err := errors.Join(r.Agent.Restart(ctx), w.Principal.Restart(ctx)); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the agent is back", func() error { return r.Connected(ctx, true) })
	env.Eventually(t, "all are still held", func() error { return holdsCascades(ctx, r, 3) })
	seen.CaughtUp(t, r.Spoke)
	if err := numbers(ctx, r, 3, 3, 0); err != nil || len(seen.Writes()) > 0 {
		t.Fatalf("the spoke was touched: %v, %v", seen.Writes(), err)
	}

	agentctl(t, w, "agent", "keep-workloads", r.Name, "app-1", "--yes")
	if err := numbers(ctx, r, 2, 2, 0); err != nil {
		t.Error(err)
	}
	agentctl(t, w, "agent", "keep-workloads", r.Name, "--yes")
	// No controller of the spoke is there: a copy with a finalizer would stay.
	if err := numbers(ctx, r, 0, 0, 0); err != nil {
		t.Error(err)
	}
	env.Eventually(t, "nothing is held any more", func() error { return holds(ctx, r, "", 0) })
}

// What an ApplicationSet does that comes to generate fewer.
func testMassCascade(t *testing.T, w *env.Bare) {
	ctx, r := t.Context(), w.Connect(t, "mass", "managed")
	cascadingAll(t, r, 20)
	deleteApps(t, r, 0, 12)
	held := 0
	env.Eventually(t, "what was not sent yet is held", func() (err error) {
		held, err = heldCascades(ctx, r)
		return errors.Join(err, numbers(ctx, r, 20, 20, 12-held))
	})
	if held < 2 {
		t.Fatalf("%d of 12 are held, want those after the tenth at least", held)
	}
	if err := w.Principal.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the agent is back", func() error { return r.Connected(ctx, true) })
	env.Eventually(t, "they are still held", func() error { return holdsCascades(ctx, r, held) })
	env.Eventually(t, "agentctl check finds it", func() error {
		return env.CheckFinds(ctx, w.Harness, w.Hub, harness.ArgoCDNamespace, r.Name, "CascadeHeld")
	})
	env.Eventually(t, "those that were sent are done", func() error {
		return errors.Join(finish(ctx, r), numbers(ctx, r, 8+held, 8+held, 0))
	})

	agentctl(t, w, "agent", "accept-deletions", r.Name, "--yes")
	env.Eventually(t, "the others are deleted with their workloads", func() error {
		return numbers(ctx, r, 8+held, 8+held, held)
	})
	env.Eventually(t, "they are done", func() error { return errors.Join(finish(ctx, r), numbers(ctx, r, 8, 8, 0)) })
	env.Eventually(t, "nothing is held any more", func() error {
		return errors.Join(holds(ctx, r, "", 0), env.CheckFindsNo(ctx, w.Harness, w.Hub, harness.ArgoCDNamespace, r.Name, "CascadeHeld"))
	})
}

// Eleven are counted, and go without anybody being asked.
func testFewOfMany(t *testing.T, w *env.Bare) {
	ctx, r := t.Context(), w.Connect(t, "busy", "managed")
	cascadingAll(t, r, 100)
	deleteApps(t, r, 0, 11)
	env.Eventually(t, "they go", func() error {
		if held, err := heldCascades(ctx, r); err == nil {
			return harness.Permanent(fmt.Errorf("%d are held", held))
		}
		return errors.Join(finish(ctx, r), numbers(ctx, r, 89, 89, 0))
	})
}

// Six are gone when the principal is killed; six more make it twelve of twenty.
func testCascadeRestart(t *testing.T, w *env.Bare) {
	ctx, r := t.Context(), w.Connect(t, "halves", "managed")
	cascadingAll(t, r, 20)
	deleteApps(t, r, 0, 6)
	env.Eventually(t, "six are done", func() error { return errors.Join(finish(ctx, r), numbers(ctx, r, 14, 14, 0)) })
	env.Eventually(t, "the Agent remembers them", func() error {
		agent, err := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, r.Name, metav1.GetOptions{})
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
	if err := w.Principal.Kill(); err != nil {
		t.Fatal(err)
	}
	r.Network.Cut()
	if err := w.Principal.Start(ctx); err != nil {
		t.Fatal(err)
	}
	deleteApps(t, r, 6, 12)
	r.Network.Mend()
	env.Eventually(t, "the other six are held", func() error { return holdsCascades(ctx, r, 6) })
	if err := numbers(ctx, r, 14, 14, 0); err != nil {
		t.Error(err)
	}
	agentctl(t, w, "agent", "accept-deletions", r.Name, "--yes")
	env.Eventually(t, "they are done", func() error { return errors.Join(finish(ctx, r), numbers(ctx, r, 8, 8, 0)) })
}

// Eight of ten of one agent are not too many, and neither are those of another.
func testHubCascade(t *testing.T, w *env.Bare) {
	ctx := t.Context()
	w.Settled(t) // what other agents have counts as well
	remotes := []*env.BareAgent{w.Connect(t, "half-1", "managed"), w.Connect(t, "half-2", "managed")}
	for _, r := range remotes {
		cascadingAll(t, r, 10)
		r.Network.Cut()
	}
	for _, r := range remotes {
		deleteApps(t, r, 0, 8)
	}
	for _, r := range remotes {
		r.Network.Mend()
	}
	for _, r := range remotes {
		env.Eventually(t, r.Name+": all are held", func() error { return holdsCascades(ctx, r, 8) })
		if err := numbers(ctx, r, 10, 10, 0); err != nil {
			t.Error(err)
		}
	}
	agentctl(t, w, "agent", "keep-workloads", "half-1", "--yes")
	agentctl(t, w, "agent", "accept-deletions", "half-2", "--yes")
	env.Eventually(t, "one agent has released them", func() error { return numbers(ctx, remotes[0], 2, 2, 0) })
	env.Eventually(t, "the other one's workloads go", func() error { return numbers(ctx, remotes[1], 10, 10, 8) })
}

// A person deletes an Agent with all that it has, which is no mistake however much it is.
func testAgentCascade(t *testing.T, w *env.Bare) {
	const apps = 12
	ctx, r := t.Context(), w.Connect(t, "departs", "managed")
	cascadingAll(t, r, apps)
	registry := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace)
	seen := env.Record(t, registry)
	agentctl(t, w, "agent", "delete", r.Name, "--cascade", "--yes", "--wait=false")
	env.Eventually(t, "all are deleted with their workloads", func() error { return numbers(ctx, r, apps, apps, apps) })
	env.Eventually(t, "they are done", func() error { return errors.Join(finish(ctx, r), numbers(ctx, r, 0, 0, 0)) })
	env.Eventually(t, "the Agent is gone", func() error { return absent(registry.Get(ctx, r.Name, metav1.GetOptions{})) })
	seen.CaughtUp(t, registry)
	r.NeverHeld(t, seen)
}

// A person uninstalls Argo CD's definitions, and the API server deletes all Applications.
func testDefinitionDeleted(t *testing.T, w *env.Bare) {
	ctx, r := t.Context(), w.Connect(t, "undefined", "managed")
	cascadingAll(t, r, 2)
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if err := w.Hub.Resource(definitions, "").Delete(ctx, "applications.argoproj.io", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "all are held", func() error { return holdsCascades(ctx, r, 2) })
	if err := numbers(ctx, r, 2, 2, 0); err != nil {
		t.Error(err)
	}
	agentctl(t, w, "agent", "accept-deletions", r.Name, "--yes")
	env.Eventually(t, "they are deleted with their workloads", func() error { return numbers(ctx, r, 2, 2, 2) })
}

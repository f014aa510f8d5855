package mirror_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/departures"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

const ignoreSync = "argocd-agent.argoproj-labs.io/ignore-sync"

func departure(t *testing.T, store backends.Store, mode stream.Mode) *departures.Teardown {
	t.Helper()
	agent, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	return &departures.Teardown{Store: store, Rules: ownership.Rules{
		Marks: copies.Marks{
			Map: mapping.Map{
				Side: stream.Hub, Mode: mode, Agent: agent, Namespace: "argocd", ClusterServer: "https://proxy/agents/edge-1",
			}, Children: true,
		},
	}}
}

// departureEnv makes objects on a hub and tells what is left of them.
type departureEnv struct {
	t     *testing.T
	store *memory.Store
}

func (w departureEnv) make(kind stream.Kind, namespace, name string, meta, rest m) stream.ResourceKey {
	w.t.Helper()
	metadata := m{"namespace": namespace, "name": name}
	maps.Copy(metadata, meta)
	fields := m{"apiVersion": "argoproj.io/v1alpha1", "kind": string(kind), "metadata": metadata}
	maps.Copy(fields, rest)
	key := stream.ResourceKey{Kind: kind, Namespace: namespace, Name: name}
	if _, err := w.store.Create(w.t.Context(), key, text(w.t, fields)); err != nil {
		w.t.Fatal(err)
	}
	return key
}

func (w departureEnv) delete(key stream.ResourceKey) {
	w.t.Helper()
	if err := w.store.Delete(w.t.Context(), key, backends.Preconditions{}); err != nil {
		w.t.Fatal(err)
	}
}

// left tells of each object whether it is being deleted, and its finalizers.
func (w departureEnv) left() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, kind := range []stream.Kind{stream.Application, stream.AppProject} {
		for _, o := range w.store.List(kind, "") {
			meta := parse(w.t, o)["metadata"].(m)
			state := "stays"
			if meta["deletionTimestamp"] != nil {
				state = "leaves"
			}
			for _, f := range listOf(meta["finalizers"]) {
				state += fmt.Sprint(" ", f)
			}
			out[o.Key.Name] = state
		}
	}
	return out
}

func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}

// until calls f until it waits for nothing, and returns what it waited for.
func until(t *testing.T, f func() (string, error)) (waited []string) {
	t.Helper()
	for range 20 {
		waiting, err := f()
		if err != nil {
			t.Fatal(err)
		}
		if waiting == "" {
			return waited
		}
		waited = append(waited, waiting)
	}
	t.Fatalf("it still waits: %v", waited)
	return nil
}

const foreignFinalizer = "example.org/mine"

func recordOf(agent string, child bool) m {
	return m{"argocd.argoproj.io/source-uid": "u-1", "argomesh.io/source": fmt.Sprintf(`{"agent":%q,"child":%t}`, agent, child)}
}

func TestOrphanOfAManagedAgent(t *testing.T) {
	w := departureEnv{t, memory.New(memory.Config{})}
	all := []any{cascade, "post-delete-finalizer.argocd.argoproj.io/cleanup", foreignFinalizer}
	deleting := func(name string, meta, rest m) {
		meta["finalizers"] = all
		w.delete(w.make(stream.Application, "edge-1", name, meta, rest))
	}
	other := m{"spec": m{"destination": m{"name": "edge-2"}}}
	w.make(stream.Application, "edge-1", "stays", m{"finalizers": []any{cascade}}, spec("one"))
	w.make(stream.Application, "edge-1", "child", m{"annotations": recordOf("edge-1", true), "finalizers": []any{cascade}}, spec("one"))
	w.make(stream.Application, "edge-1", "child-of-another", m{"annotations": recordOf("edge-2", true)}, spec("one"))
	w.make(stream.Application, "edge-2", "elsewhere", m{"annotations": recordOf("edge-1", true)}, spec("one"))
	w.make(stream.AppProject, "argocd", "project", m{"finalizers": []any{cascade}}, nil)
	deleting("deleting", m{}, spec("one"))
	deleting("deleting-child", m{"annotations": recordOf("edge-1", true)}, spec("one"))
	deleting("deleting-mirror", m{"annotations": recordOf("edge-1", false)}, spec("one"))
	deleting("deleting-ignored", m{"labels": m{ignoreSync: "true"}}, spec("one"))
	deleting("deleting-of-another", m{}, other)
	w.delete(w.make(stream.Application, "edge-1", "deleting-and-free", m{"finalizers": []any{cascade}}, spec("one")))
	d := departure(t, w.store, stream.Managed)
	waited := until(t, func() (string, error) { return d.Orphan(t.Context()) })
	if diff := cmp.Diff([]string{"5 objects to leave the hub, or to be let go"}, waited); diff != "" {
		t.Errorf("Orphan() waits (-want +got)\n%s", diff)
	}
	untouched := "leaves " + cascade + " post-delete-finalizer.argocd.argoproj.io/cleanup " + foreignFinalizer
	want := map[string]string{
		"stays": "stays " + cascade, "child-of-another": "stays", "elsewhere": "stays", "project": "stays " + cascade,
		"deleting": "leaves " + foreignFinalizer, "deleting-child": "leaves " + foreignFinalizer, "deleting-mirror": "leaves " + foreignFinalizer,
		"deleting-ignored": untouched, "deleting-of-another": untouched,
	}
	if diff := cmp.Diff(want, w.left()); diff != "" {
		t.Errorf("what is left (-want +got)\n%s", diff)
	}
}

func TestOrphanOfAnAutonomousAgent(t *testing.T) {
	w := departureEnv{t, memory.New(memory.Config{})}
	cascades := watchCascades(t, w.store)
	w.make(stream.Application, "edge-1", "mirror", m{"annotations": recordOf("edge-1", false), "finalizers": []any{cascade}}, nil)
	w.make(stream.Application, "edge-1", "own", m{"finalizers": []any{cascade}}, nil)
	w.make(stream.Application, "edge-10", "of-another", m{"annotations": recordOf("edge-10", false)}, nil)
	w.make(stream.Application, "edge-1", "held", m{"annotations": recordOf("edge-1", false), "finalizers": []any{foreignFinalizer, cascade}}, nil)
	w.make(stream.AppProject, "argocd", "edge-1-web", m{"annotations": recordOf("edge-1", false), "finalizers": []any{cascade}}, nil)
	w.make(stream.AppProject, "argocd", "edge-1-0-web", m{"annotations": recordOf("edge-1-0", false)}, nil)
	w.make(stream.AppProject, "argocd", "edge-1-own", nil, nil)
	d := departure(t, w.store, stream.Autonomous)
	until(t, func() (string, error) { return d.Orphan(t.Context()) })
	want := map[string]string{
		"own": "stays " + cascade, "of-another": "stays", "held": "leaves " + foreignFinalizer, "edge-1-0-web": "stays", "edge-1-own": "stays",
	}
	if diff := cmp.Diff(want, w.left()); diff != "" {
		t.Errorf("what is left (-want +got)\n%s", diff)
	}
	if cascades() != 0 {
		t.Error("a mirror was deleted with a cascade finalizer")
	}
	if waiting, err := d.Cascade(t.Context(), time.Now()); waiting != "" || err != nil {
		t.Errorf("Cascade() = %q, %v: the hub owns nothing", waiting, err)
	}
}

func TestCascadeOfAManagedAgent(t *testing.T) {
	const early, moment, late = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T00:01:01Z"
	clock := early
	now := func() time.Time {
		at, err := time.Parse(time.RFC3339, clock)
		if err != nil {
			t.Error(err)
		}
		return at
	}
	w := departureEnv{t, memory.New(memory.Config{Now: now})}
	background := cascade + "/background"
	w.make(stream.Application, "edge-1", "plain", nil, spec("one"))
	w.make(stream.Application, "edge-1", "by-server", nil, m{"spec": m{"destination": m{"server": "https://proxy/agents/edge-1"}}})
	w.make(stream.Application, "edge-1", "in-background", m{"finalizers": []any{background}}, spec("one"))
	w.make(stream.Application, "edge-1", "elsewhere", nil, m{"spec": m{"destination": m{"name": "edge-2"}}})
	w.make(stream.Application, "edge-1", "ignored", m{"labels": m{ignoreSync: "true"}}, spec("one"))
	w.make(stream.Application, "edge-1", "child", m{"annotations": recordOf("edge-1", true)}, spec("one"))
	w.make(stream.Application, "edge-1", "mirror", m{"annotations": recordOf("edge-1", false)}, spec("one"))
	w.make(stream.Application, "edge-2", "of-another", nil, spec("one"))
	w.make(stream.AppProject, "argocd", "project", nil, nil)
	w.delete(w.make(stream.Application, "edge-1", "without-cascade", m{"finalizers": []any{foreignFinalizer}}, spec("one")))
	clock = moment
	w.make(stream.Application, "edge-1", "in-that-second", nil, spec("one"))
	clock = late
	w.make(stream.Application, "edge-1", "later", nil, spec("one"))

	d := departure(t, w.store, stream.Managed)
	deleted, err := time.Parse(time.RFC3339, moment)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // it is level-based: nothing comes of a second look
		waiting, err := d.Cascade(t.Context(), deleted)
		if waiting != "5 Applications to be removed on the spoke" || err != nil {
			t.Errorf("Cascade() = %q, %v", waiting, err)
		}
	}
	want := map[string]string{
		"plain": "leaves " + cascade, "by-server": "leaves " + cascade, "in-background": "leaves " + background, "in-that-second": "leaves " + cascade,
		"without-cascade": "leaves " + foreignFinalizer,
		"elsewhere":       "stays", "ignored": "stays", "child": "stays", "mirror": "stays", "of-another": "stays", "project": "stays", "later": "stays",
	}
	if diff := cmp.Diff(want, w.left()); diff != "" {
		t.Errorf("what is left (-want +got)\n%s", diff)
	}
	for _, o := range w.store.List(stream.Application, "edge-1") { // the spoke is done
		app := parse(t, o)
		if delete(app["metadata"].(m), "finalizers"); app["metadata"].(m)["deletionTimestamp"] != nil {
			if _, err := w.store.Update(t.Context(), o, text(t, app)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if waiting, err := d.Cascade(t.Context(), deleted); waiting != "" || err != nil {
		t.Errorf("Cascade() = %q, %v after the spoke is done", waiting, err)
	}
}

// TestDepartureWithAnUnrulyStore: conflicts are read and planned again, failures
// are told and harm nothing, and what another writer undoes is done again.
func TestDepartureWithAnUnrulyStore(t *testing.T) {
	var mu sync.Mutex // guards calls and failing
	calls, failing := map[memory.Op]int{}, error(nil)
	w := departureEnv{t, memory.New(memory.Config{Fault: func(op memory.Op, _ stream.ResourceKey) error {
		mu.Lock()
		defer mu.Unlock()
		calls[op]++
		switch {
		case op == memory.OpCreate || op == memory.OpRead:
			return nil
		case failing != nil:
			return failing
		case calls[op]%3 == 0:
			return stream.ErrConflict
		}
		return nil
	}})}
	for i := range 200 {
		w.make(stream.Application, "edge-1", fmt.Sprint("a-", i), m{"annotations": recordOf("edge-1", false), "finalizers": []any{cascade}}, nil)
	}
	d := departure(t, w.store, stream.Autonomous)
	mu.Lock()
	failing = stream.ErrUnavailable
	mu.Unlock()
	if _, err := d.Orphan(t.Context()); !errors.Is(err, stream.ErrUnavailable) {
		t.Errorf("Orphan() = %v", err)
	}
	if got := len(w.left()); got != 200 {
		t.Errorf("%d objects are left", got)
	}
	mu.Lock()
	failing = nil
	mu.Unlock()
	until(t, func() (string, error) { return d.Orphan(t.Context()) })
	if diff := cmp.Diff(map[string]string{}, w.left()); diff != "" {
		t.Errorf("what is left (-want +got)\n%s", diff)
	}
	lagging := memory.New(memory.Config{Lag: true})
	if _, err := departure(t, lagging, stream.Managed).Cascade(t.Context(), time.Now()); !errors.Is(err, stream.ErrUnavailable) {
		t.Errorf("Cascade() before the cache has synced = %v", err)
	}
}

// TestDepartingLink deletes an agent with a cascade while it is connected: only
// that passes. What changes, comes or goes on the hub meanwhile stays on the spoke as it is.
func TestDepartingLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, spoke := opened(t, memory.New(memory.Config{}), "default"), memory.New(memory.Config{})
		stores := func() [2]*memory.Store { return [2]*memory.Store{hub.Open(), spoke.Open()} }
		r := newPair(t, options{stores: stores(), children: true})
		r.connect()
		project := stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: "p"}
		if _, err := r.hub.store.Create(r.ctx, project, text(t, m{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": m{"namespace": "argocd", "name": "p"},
			"spec": m{"sourceNamespaces": []any{"*"}, "destinations": []any{m{"name": "*", "namespace": "*"}}},
		})); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b", "vanishes", "ignored"} {
			r.create(r.hub, name, nil, spec("one"))
		}
		r.child("child")
		pass(2 * time.Second)
		deleted := time.Now()
		r.cancel(nil)
		r.wait.Wait()

		r = newPair(t, options{stores: stores(), children: true, departing: true})
		pass(2 * time.Second)
		r.remove(r.hub, "vanishes")
		r.update(r.hub, "ignored", func(app m) { app["metadata"].(m)["labels"] = m{ignoreSync: "true"} })
		r.create(r.hub, "later", nil, spec("one"))
		r.update(r.hub, "a", func(app m) { app["spec"].(m)["source"].(m)["path"] = "two" })
		if err := r.hub.store.Delete(r.ctx, project, backends.Preconditions{}); err != nil {
			t.Fatal(err)
		}
		r.connect()
		pass(time.Minute)
		d := departure(t, r.hub.store, stream.Managed)
		waiting, err := d.Cascade(r.ctx, deleted)
		if waiting != "2 Applications to be removed on the spoke" || err != nil {
			t.Fatalf("Cascade() = %q, %v", waiting, err)
		}
		pass(time.Minute)
		state := func(e end) map[string]string { return departureEnv{t, e.store}.left() }
		want := map[string]string{
			"a": "leaves " + cascade, "b": "leaves " + cascade, "vanishes": "stays", "ignored": "stays", "p": "stays", "child": "stays " + cascade,
		}
		if diff := cmp.Diff(want, state(r.spoke)); diff != "" {
			t.Errorf("the spoke during the cascade (-want +got)\n%s", diff)
		}
		if got := at(r.get(r.spoke, "a"), "spec", "source", "path"); got != "one" {
			t.Errorf("a change passed: path %v", got)
		}
		for _, name := range []string{"a", "b"} { // Argo CD is done
			r.update(r.spoke, name, func(app m) { delete(app["metadata"].(m), "finalizers") })
		}
		pass(time.Minute)
		if waiting, err := d.Cascade(r.ctx, deleted); waiting != "" || err != nil {
			t.Errorf("Cascade() = %q, %v in the end", waiting, err)
		}
		r.cancel(nil) // the link ends
		r.wait.Wait()
		until(t, func() (string, error) { return d.Orphan(t.Context()) })
		if diff := cmp.Diff(map[string]string{"default": "stays", "ignored": "stays", "later": "stays"}, state(r.hub)); diff != "" {
			t.Errorf("the hub in the end (-want +got)\n%s", diff)
		}
		if got := slices.Sorted(maps.Keys(state(r.spoke))); !slices.Equal(got, []string{"child", "ignored", "p", "vanishes"}) {
			t.Errorf("the spoke in the end has %v", got)
		}
	})
}

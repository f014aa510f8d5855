package mirror_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/shares"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

// divided is a hub whose Applications are two agents' by their destination.
type divided struct {
	t      *testing.T
	hub    *memory.Store
	shares *shares.Partition
	agents map[string]*pair

	mu   sync.Mutex // guards told
	told map[string]func(stream.ResourceKey)
}

func newDivided(t *testing.T) *divided {
	t.Helper()
	return newDividedWith(t, options{})
}

// newDividedWith shows children of each agent, if it does, in the namespace of its name.
func newDividedWith(t *testing.T, o options) *divided {
	t.Helper()
	d := &divided{t: t, hub: opened(t, memory.New(memory.Config{}), "default"), agents: map[string]*pair{}, told: map[string]func(stream.ResourceKey){}}
	d.shares = shares.New(d.hub)
	d.hub.Subscribe(func(key stream.ResourceKey) {
		if key.Kind == stream.Application {
			d.tell(key, d.shares.Changed(key)...)
		}
	})
	d.shares.Assign(d.owner())
	for _, name := range []string{"edge-1", "edge-2"} {
		d.agents[name] = newPair(t, options{
			children: o.children, adopt: o.adopt, projects: o.projects,
			stores: [2]*memory.Store{d.hub, memory.New(memory.Config{})},
			configure: func(side stream.Side, cfg *mirror.Config) {
				cfg.Rules.Agent, cfg.Rules.ClusterServer = kit.Agent(t, name), "https://proxy/agents/"+name
				cfg.Rules.Namespaces = []string{"team"}
				if side == stream.Hub {
					cfg.Rules.ByDestination = true
					if o.children {
						cfg.Rules.ChildNamespace = name
					}
					cfg.Store, cfg.Subscribe = d.shares.For(cfg.Rules.Agent), d.subscribe(name)
				}
			},
		})
	}
	return d
}

// owner is by the name or the server of the destination.
func (d *divided) owner() mapping.Owner {
	names := map[string]identity.AgentName{}
	for _, name := range []string{"edge-1", "edge-2"} {
		names[name], names["https://proxy/agents/"+name] = kit.Agent(d.t, name), kit.Agent(d.t, name)
	}
	return func(p mapping.Placement) identity.AgentName {
		switch {
		case !p.Child.IsZero() && p.Namespace == p.Child.String():
			return p.Child
		case p.Namespace == "edge-1", p.Namespace == "edge-2": // not admitted
			return identity.AgentName{}
		case p.Name != "":
			return names[p.Name]
		}
		return names[p.Server]
	}
}

func (d *divided) tell(key stream.ResourceKey, names ...identity.AgentName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range names {
		if tell := d.told[name.String()]; tell != nil {
			tell(key)
		}
	}
}

func (d *divided) subscribe(name string) func(func(stream.ResourceKey)) func() {
	return func(changed func(stream.ResourceKey)) func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.told[name] = changed
		return func() {}
	}
}

// here is the hub, or a spoke, in one of its namespaces.
func (d *divided) here(namespace string) end { return end{store: d.hub, namespace: namespace} }

func (d *divided) spoke(name, namespace string) end {
	return end{store: d.agents[name].spoke.store, namespace: namespace}
}

func to(destination m) m {
	return m{"spec": m{"project": "default", "destination": destination, "source": m{"path": "one"}}}
}

// Every Application goes to the agent that its destination names and to no other, and
// comes back from there alone.
func TestByDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDivided(t)
		one, two := d.agents["edge-1"], d.agents["edge-2"]
		one.connect()
		two.connect()
		one.create(d.here("argocd"), "a", nil, to(m{"name": "edge-1", "namespace": "web"}))
		one.create(d.here("team"), "a", nil, to(m{"server": "https://proxy/agents/edge-2", "namespace": "web"}))
		one.create(d.here("team"), "push", nil, to(m{"name": "in-cluster", "namespace": "web"}))
		one.create(d.here("elsewhere"), "b", nil, to(m{"name": "edge-1", "namespace": "web"}))
		one.create(d.here("team"), "both", nil, to(m{"name": "edge-1", "server": "https://proxy/agents/edge-2"}))
		before := one.get(d.here("team"), "push")
		pass(time.Second)
		holds := func(agent string, want ...string) {
			t.Helper()
			var got []string
			for _, o := range d.agents[agent].spoke.store.List(stream.Application, "") {
				got = append(got, o.Key.Namespace+"/"+o.Key.Name)
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Fatalf("%s holds %q, want %q", agent, got, want)
			}
		}
		holds("edge-1", "argocd/a")
		holds("edge-2", "team/a")
		if got := conditionOf(one.get(d.here("team"), "both")); !strings.Contains(got, "names agent edge-1 and a server") {
			t.Errorf("an Application with two destinations says %q", got)
		}
		if after := one.get(d.here("team"), "push"); at(after, "metadata", "resourceVersion") != at(before, "metadata", "resourceVersion") {
			t.Error("an Application that is no agent's was written")
		}

		healthy := func(app m) { app["status"] = m{"health": m{"status": "Healthy"}} }
		two.update(d.spoke("edge-2", "team"), "a", healthy)
		pass(time.Second)
		if got := at(one.get(d.here("team"), "a"), "status", "health", "status"); got != "Healthy" {
			t.Errorf("the hub shows %v", got)
		}

		// An agent that has got hold of another one's copy, and says so.
		copied := one.get(d.spoke("edge-1", "argocd"), "a")
		healthy(copied)
		meta, _ := copied["metadata"].(m)
		delete(meta, "uid")
		delete(meta, "resourceVersion")
		two.create(d.spoke("edge-2", "argocd"), "a", m{"annotations": meta["annotations"]}, m{"spec": copied["spec"], "status": copied["status"]})
		pass(time.Minute)
		if got := at(one.get(d.here("argocd"), "a"), "status", "health", "status"); got != nil {
			t.Errorf("edge-2 wrote the status of edge-1's Application: %v", got)
		}
		if two.get(d.spoke("edge-2", "argocd"), "a") == nil {
			t.Error("edge-1's copy is not edge-2's to remove")
		}

		// A deletion with workloads reaches the one it is meant for.
		one.update(d.here("team"), "a", func(app m) { app["metadata"].(m)["finalizers"] = []any{cascade} })
		pass(time.Second)
		one.remove(d.here("team"), "a")
		pass(time.Second)
		if at(two.get(d.spoke("edge-2", "team"), "a"), "metadata", "deletionTimestamp") == nil {
			t.Fatal("the deletion did not come to edge-2")
		}
		two.update(d.spoke("edge-2", "team"), "a", func(app m) { delete(app["metadata"].(m), "finalizers") })
		pass(time.Minute)
		if one.get(d.here("team"), "a") != nil {
			t.Error("the hub still has what is gone")
		}
		holds("edge-1", "argocd/a")
	})
}

// A new destination is a release on one spoke and a create on the other, and what was
// asked of the first is not asked of the second.
func TestMoveToAnotherAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDivided(t)
		one, two := d.agents["edge-1"], d.agents["edge-2"]
		cascades := watchCascades(t, d.agents["edge-1"].spoke.store)
		one.connect()
		cut, _ := two.connect()
		here := d.here("team")
		// The finalizer is the hub's word on deletions, of which there is none.
		one.create(here, "a", m{"finalizers": []any{cascade}}, to(m{"name": "edge-1"}))
		pass(time.Second)
		one.update(d.spoke("edge-1", "team"), "a", func(app m) { app["status"] = m{"health": m{"status": "Degraded"}} })
		one.update(here, "a", func(app m) { app["operation"] = m{"sync": m{"revision": "1"}} })
		pass(time.Second)
		if at(one.get(d.spoke("edge-1", "team"), "a"), "operation") == nil {
			t.Fatal("the operation did not come to edge-1")
		}
		move := func(agent string) {
			one.update(here, "a", func(app m) { app["spec"].(m)["destination"] = m{"name": agent} })
		}
		move("edge-2")
		pass(time.Minute)
		if one.get(d.spoke("edge-1", "team"), "a") != nil {
			t.Error("edge-1 still has it")
		}
		if two.get(d.spoke("edge-2", "team"), "a") == nil {
			t.Fatal("edge-2 does not have it")
		}
		app := one.get(here, "a")
		if message, _ := at(app, "status", "operationState", "message").(string); app["operation"] != nil || !strings.Contains(message, "sent to agent edge-1") {
			t.Errorf("the operation ends with %q", message)
		}
		if at(two.get(d.spoke("edge-2", "team"), "a"), "operation") != nil {
			t.Error("edge-2 runs what was asked of edge-1")
		}

		// While edge-2 is away, edge-1 gets it again, and runs an operation; then edge-2
		// has it once more, with the copy that it never lost.
		cut()
		move("edge-1")
		pass(time.Second)
		one.update(here, "a", func(app m) { app["operation"] = m{"sync": m{"revision": "2"}} })
		pass(time.Second)
		if at(one.get(d.spoke("edge-1", "team"), "a"), "operation", "sync", "revision") != "2" {
			t.Fatal("the second operation did not come to edge-1")
		}
		move("edge-2")
		pass(time.Second)
		two.connect()
		pass(time.Minute)
		if got := at(two.get(d.spoke("edge-2", "team"), "a"), "operation"); got != nil {
			t.Errorf("edge-2 runs %v", got)
		}
		if message, _ := at(one.get(here, "a"), "status", "operationState", "message").(string); !strings.Contains(message, "sent to agent edge-1") {
			t.Errorf("the operation ends with %q", message)
		}

		// No destination that is an agent's: released, and the hub's own from then on.
		move("in-cluster")
		pass(time.Minute)
		for agent, r := range d.agents {
			if r.get(d.spoke(agent, "team"), "a") != nil {
				t.Errorf("%s still has it", agent)
			}
		}
		if got := cascades(); got != 0 {
			t.Errorf("%d copies went with their workloads", got)
		}
	})
}

// Through a share nothing is read, listed or written that is not in it.
func TestSharesKeepToThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, ctx := memory.New(memory.Config{}), t.Context()
		d := &divided{t: t, hub: hub}
		make1 := func(name, destination string) backends.Object {
			key := stream.ResourceKey{Kind: stream.Application, Namespace: "argocd", Name: name}
			o, err := hub.Create(ctx, key, text(t, m{
				"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": m{"namespace": "argocd", "name": name},
				"spec": m{"destination": m{"name": destination}},
			}))
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		mine, theirs := make1("mine", "edge-1"), make1("theirs", "edge-2")
		shares := shares.New(hub)
		share := shares.For(kit.Agent(t, "edge-1"))
		if _, there := share.Get(mine.Key); there {
			t.Error("before anything is assigned, something is there")
		}
		select {
		case <-share.Synced():
			t.Error("before anything is assigned, the share is synced")
		default:
		}
		shares.Assign(d.owner())
		<-share.Synced()
		if list := share.List(stream.Application, ""); len(list) != 1 || list[0].Key != mine.Key {
			t.Errorf("List() = %v", list)
		}
		if len(share.List(stream.Application, "elsewhere")) != 0 {
			t.Error("another namespace shows something")
		}
		if _, there := share.Get(theirs.Key); there {
			t.Error("Get() shows another agent's")
		}
		if _, err := share.Read(ctx, theirs.Key); !errors.Is(err, stream.ErrNotFound) {
			t.Errorf("Read() = %v", err)
		}
		if _, err := share.Update(ctx, theirs, theirs.Raw); !errors.Is(err, stream.ErrConflict) {
			t.Errorf("Update() = %v", err)
		}
		if err := share.Delete(ctx, theirs.Key, backends.Preconditions{}); !errors.Is(err, stream.ErrNotFound) {
			t.Errorf("Delete() = %v", err)
		}
		if _, err := share.Create(ctx, stream.ResourceKey{Kind: stream.Application, Namespace: "argocd", Name: "new"}, mine.Raw); !errors.Is(err, stream.ErrRefused) {
			t.Errorf("Create() = %v", err)
		}

		// Mirrors of the agent's children alone, in its own namespace, and never over what is there.
		mirrorOf := func(namespace, name, agent, annotations string) error {
			_, err := share.Create(ctx, stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: name}, []byte(
				`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":"`+namespace+`","name":"`+name+
					`","annotations":{"argocd.argoproj.io/source-uid":"u","argomesh.io/source":"{\"child\":true,\"agent\":\"`+agent+`\"}"`+annotations+
					`}},"spec":{"destination":{"name":"edge-1"}}}`))
			return err
		}
		if err := mirrorOf("edge-1", "child", "edge-1", ""); err != nil {
			t.Errorf("a child's mirror is refused: %v", err)
		}
		for what, err := range map[string]error{
			"in another namespace":         mirrorOf("edge-2", "c", "edge-1", ""),
			"in Argo CD's":                 mirrorOf("argocd", "c", "edge-1", ""),
			"another agent's":              mirrorOf("edge-1", "c", "edge-2", ""),
			"in another agent's namespace": mirrorOf("edge-2", "c", "edge-2", ""),
			"given to the hub":             mirrorOf("edge-1", "c", "edge-1", `,"argomesh.io/released":"true"`),
			"a copy":                       mirrorOf("edge-1", "c", "edge-1", `,"argocd.argoproj.io/principal-uid":"h"`),
		} {
			if !errors.Is(err, stream.ErrRefused) {
				t.Errorf("a mirror %s: %v", what, err)
			}
		}
		foreign := stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: "own"}
		if _, err := hub.Create(ctx, foreign, []byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":"edge-1","name":"own"},"spec":{}}`)); err != nil {
			t.Fatal(err)
		}
		if err := mirrorOf("edge-1", "own", "edge-1", ""); !errors.Is(err, stream.ErrRefused) || !strings.Contains(err.Error(), "of its own") {
			t.Errorf("over an Application of the hub: %v", err)
		}
		for _, key := range []stream.ResourceKey{{Kind: stream.Application, Namespace: "edge-1", Name: "child"}, foreign} {
			if err := hub.Delete(ctx, key, backends.Preconditions{}); err != nil {
				t.Fatal(err)
			}
		}

		// Moved away after it was read: the write is tested on what was read.
		raw := strings.Replace(string(mine.Raw), "edge-1", "edge-2", 1)
		if _, err := hub.Update(ctx, mine, []byte(raw)); err != nil {
			t.Fatal(err)
		}
		if got := shares.Changed(mine.Key); len(got) != 2 {
			t.Errorf("those concerned by a move are %v", got)
		}
		if _, err := share.Update(ctx, mine, mine.Raw); !errors.Is(err, stream.ErrConflict) {
			t.Errorf("Update() of what was moved = %v", err)
		}
		if len(share.List(stream.Application, "")) != 0 {
			t.Error("what was moved is still listed")
		}
		news := shares.Assign(func(mapping.Placement) identity.AgentName { return kit.Agent(t, "edge-1") })
		if len(news[kit.Agent(t, "edge-1")]) != 2 || len(news[kit.Agent(t, "edge-2")]) != 2 {
			t.Errorf("Assign() = %v", news)
		}
		if len(share.List(stream.Application, "")) != 2 {
			t.Error("what was assigned is not listed")
		}
	})
}

package mirror_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
)

const skipKey = "argocd.argoproj.io/skip-reconcile"

// automated is an Application that Argo CD synchronizes by itself.
func automated(path string) m {
	app := spec(path)
	app["spec"].(m)["syncPolicy"] = m{"automated": m{"prune": true}}
	return app
}

// freezer is a process's way to its API server. It stops a process before its next call of
// an Op, until it is thawed.
type freezer struct {
	backends.Store
	at     atomic.Pointer[memory.Op]
	frozen chan struct{} // closed when it is
	thawed chan struct{}
	thaw   func()
}

func newFreezer(store backends.Store) *freezer {
	f := &freezer{Store: store, frozen: make(chan struct{}), thawed: make(chan struct{})}
	f.thaw = sync.OnceFunc(func() { close(f.thawed) })
	return f
}

func (f *freezer) stop(op memory.Op) { f.at.Store(&op) }

func (f *freezer) pass(op memory.Op) {
	if at := f.at.Load(); at != nil && *at == op && f.at.CompareAndSwap(at, nil) {
		close(f.frozen)
		<-f.thawed
	}
}

func (f *freezer) Create(ctx context.Context, key stream.ResourceKey, raw []byte, opts ...backends.WriteOption) (backends.Object, error) {
	f.pass(memory.OpCreate)
	return f.Store.Create(context.WithoutCancel(ctx), key, raw, opts...) // it left before
}

func (f *freezer) Update(ctx context.Context, old backends.Object, raw []byte, opts ...backends.WriteOption) (backends.Object, error) {
	f.pass(memory.OpUpdate)
	return f.Store.Update(context.WithoutCancel(ctx), old, raw, opts...)
}

// fencePair is a hub and a spoke of which two agents in turn hold the Lease.
type fencePair struct {
	*pair
	holder atomic.Pointer[string]
	asked  atomic.Int64 // by all agents, who holds it
	// freezer is the first agent's.
	freezer *freezer
	// acted counts states of Applications that Argo CD would deploy.
	acted atomic.Int64
	mu    sync.Mutex // guards paths
	paths []string   // of Applications of the spoke, as they were written
}

func newFenceRig(t *testing.T) *fencePair {
	t.Helper()
	f := &fencePair{}
	f.hold("first")
	f.pair = newPair(t, options{
		spoke: memory.Config{Journal: func(a memory.Accepted) {
			app := parse(t, a.Object)
			if path, is := at(app, "spec", "source", "path").(string); is {
				f.mu.Lock()
				f.paths = append(f.paths, path)
				f.mu.Unlock()
			}
			if at(app, "spec", "syncPolicy", "automated") != nil && at(app, "metadata", "annotations", skipKey) != "true" && at(app, "metadata", "finalizers") == nil {
				f.acted.Add(1)
			}
		}},
		configure: func(side stream.Side, cfg *mirror.Config) {
			if side == stream.Spoke {
				f.freezer = newFreezer(cfg.Store)
				cfg.Store, cfg.Fence = f.freezer, f.fence("first")
			}
		},
	})
	t.Cleanup(f.freezer.thaw)
	return f
}

// awaitFrozen returns when the first agent is frozen.
func (f *fencePair) awaitFrozen() {
	f.t.Helper()
	select {
	case <-f.freezer.frozen:
	case <-time.After(time.Minute):
		f.t.Fatal("the agent does not come to where it is to freeze")
	}
}

func (f *fencePair) hold(name string) { f.holder.Store(&name) }

var errTakenOver = errors.New("another process holds the Lease")

// fence is what the Lease says to one agent.
func (f *fencePair) fence(name string) func(context.Context) error {
	return func(context.Context) error {
		f.asked.Add(1)
		if *f.holder.Load() != name {
			return errTakenOver
		}
		return nil
	}
}

// takeOver has the second agent take the place of the first, which does not notice.
func (f *fencePair) takeOver() {
	f.t.Helper()
	f.takeOverWith(f.spoke.store.Open())
}

// takeOverWith is takeOver with a Store for the second agent.
func (f *fencePair) takeOverWith(store backends.Store) {
	f.t.Helper()
	f.hold("second")
	configure := func(_ stream.Side, cfg *mirror.Config) { cfg.Store, cfg.Fence = store, f.fence("second") }
	f.spoke = f.start(stream.Spoke, stream.Managed, "argocd", f.spoke.store, options{configure: configure})
	f.connect()
	pass(time.Second)
}

// path is that of the spoke's Application a; empty when there is none.
func (f *fencePair) path() string {
	path, _ := at(f.get(f.spoke, "a"), "spec", "source", "path").(string)
	return path
}

// An Application is created, and its deletion with its workloads is asked for, while the
// agent that creates it is frozen: before it sends that, and before it lets Argo CD at it.
// Whatever it still does when its successor is done, Argo CD never acts.
func TestFrozenAgentCreates(t *testing.T) {
	for name, at := range map[string]memory.Op{"before the create": memory.OpCreate, "before the update": memory.OpUpdate} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenceRig(t)
				f.connect()
				f.freezer.stop(at)
				f.create(f.hub, "a", m{"finalizers": []any{cascade}}, automated("one"))
				f.awaitFrozen()
				f.takeOver()
				f.remove(f.hub, "a")
				pass(time.Minute)
				// As Argo CD does when it has deleted the workloads.
				f.update(f.spoke, "a", func(app m) { delete(app["metadata"].(m), "finalizers") })
				pass(time.Second)
				if f.get(f.hub, "a") != nil || f.get(f.spoke, "a") != nil {
					t.Errorf("hub %v, spoke %v, want both gone", f.get(f.hub, "a"), f.get(f.spoke, "a"))
				}
				f.acted.Store(0)
				f.freezer.thaw()
				pass(time.Minute)
				if n := f.acted.Load(); n != 0 {
					t.Errorf("Argo CD could act %d times on what was deleted", n)
				}
				if app := f.get(f.spoke, "a"); app != nil {
					t.Errorf("it stays: %v", app)
				}
			})
		})
	}
}

// An update is sent while its agent is frozen, and its successor does something else with
// the copy. Whatever the successor wrote stays. Where it had nothing to write, since the
// hub withdrew what the update was to bring, the update comes about late, and is undone
// before a minute is over.
func TestFrozenAgentUpdates(t *testing.T) {
	path := func(to string) func(app m) {
		return func(app m) { app["spec"].(m)["source"].(m)["path"] = to }
	}
	nothing := func(*fencePair) {}
	for name, tt := range map[string]struct {
		before, after func(f *fencePair) // there is a successor
		late          bool               // the update comes about
		want          string             // the path in the end; empty when the copy is gone
	}{
		"a newer spec": {nothing, func(f *fencePair) { f.update(f.hub, "a", path("three")) }, false, "three"},
		"the same":     {nothing, nothing, false, "two"},
		"gone with its workloads": {nothing, func(f *fencePair) {
			f.update(f.hub, "a", func(app m) { app["metadata"].(m)["finalizers"] = []any{cascade} })
			f.remove(f.hub, "a")
			pass(time.Minute)
			// As Argo CD does when it has deleted the workloads.
			f.update(f.spoke, "a", func(app m) { delete(app["metadata"].(m), "finalizers") })
		}, false, ""},
		"gone, and made anew": {func(f *fencePair) { f.remove(f.hub, "a") }, func(f *fencePair) {
			pass(time.Minute)
			f.create(f.hub, "a", nil, automated("one"))
		}, false, "one"},
		"taken back to what it was": {func(f *fencePair) { f.update(f.hub, "a", path("one")) }, nothing, true, "one"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenceRig(t)
				f.connect()
				f.create(f.hub, "a", nil, automated("one"))
				pass(time.Minute)
				f.freezer.stop(memory.OpUpdate)
				f.update(f.hub, "a", path("two"))
				f.awaitFrozen()
				tt.before(f)
				f.takeOver()
				tt.after(f)
				pass(time.Minute)
				if got := f.path(); got != tt.want {
					t.Fatalf("before the first goes on the path is %q, want %q", got, tt.want)
				}
				f.mu.Lock()
				f.paths = nil
				f.mu.Unlock()
				f.freezer.thaw()
				pass(time.Minute)
				f.mu.Lock()
				late := slices.Contains(f.paths, "two")
				f.mu.Unlock()
				if late != tt.late {
					t.Errorf("the update came about late: %t, want %t", late, tt.late)
				}
				if got := f.path(); got != tt.want || !f.stats(f.hub).Agreed {
					t.Errorf("in the end the path is %q, want %q; both sides agree: %t", got, tt.want, f.stats(f.hub).Agreed)
				}
			})
		})
	}
}

// Its successor says that nothing is there only if that is so, and not only in its cache:
// the hub's Application ends with that word, and what the first agent created would be
// no one's by then.
func TestSuccessorWithAnOldCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenceRig(t)
		f.connect()
		f.freezer.stop(memory.OpUpdate)
		later := &oldCache{Store: f.spoke.store.Open(), hides: f.spoke.key("a")}
		f.create(f.hub, "a", m{"finalizers": []any{cascade}}, automated("one"))
		f.awaitFrozen()
		f.remove(f.hub, "a")
		f.takeOverWith(later)
		if f.get(f.hub, "a") == nil {
			t.Error("the hub's Application is gone, and its copy is there")
		}
		if copied := f.get(f.spoke, "a"); at(copied, "metadata", "deletionTimestamp") == nil {
			t.Errorf("the copy is not being deleted: %v", copied)
		}
		f.update(f.spoke, "a", func(app m) { delete(app["metadata"].(m), "finalizers") })
		f.acted.Store(0)
		f.freezer.thaw()
		pass(time.Minute)
		if n := f.acted.Load(); n != 0 {
			t.Errorf("Argo CD could act %d times on what was deleted", n)
		}
	})
}

// oldCache is a Store whose cache has yet to show one object.
type oldCache struct {
	backends.Store
	hides stream.ResourceKey
}

func (o *oldCache) Get(key stream.ResourceKey) (backends.Object, bool) {
	if key == o.hides {
		return backends.Object{}, false
	}
	return o.Store.Get(key)
}

func (o *oldCache) List(kind stream.Kind, namespace string) []backends.Object {
	return slices.DeleteFunc(o.Store.List(kind, namespace), func(b backends.Object) bool { return b.Key == o.hides })
}

// What an agent left unconfirmed its successor lets Argo CD at, if the hub still has it.
func TestSuccessorConfirms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenceRig(t)
		f.connect()
		f.freezer.stop(memory.OpUpdate)
		f.create(f.hub, "a", nil, automated("one"))
		f.awaitFrozen()
		if f.acted.Load() != 0 {
			t.Error("Argo CD could act before the fence was asked")
		}
		f.takeOver()
		if f.acted.Load() != 1 || !f.stats(f.hub).Agreed {
			t.Errorf("Argo CD could act on %d states, both sides agree: %v", f.acted.Load(), f.stats(f.hub).Agreed)
		}
		f.freezer.thaw()
		pass(time.Minute)
		app := f.get(f.spoke, "a")
		if f.acted.Load() != 1 || at(app, "metadata", "annotations", skipKey) != nil {
			t.Errorf("after %d states it is %v", f.acted.Load(), app)
		}
	})
}

// While no one can say whose turn it is, the Application waits, named on the hub.
func TestCreateWaitsForTheFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenceRig(t)
		f.connect()
		f.hold("nobody")
		f.create(f.hub, "a", nil, automated("one"))
		f.create(f.hub, "manual", nil, spec("one"))
		pass(time.Minute)
		if f.acted.Load() != 0 || at(f.get(f.spoke, "a"), "metadata", "annotations", skipKey) != "true" {
			t.Errorf("Argo CD could act on %v", f.get(f.spoke, "a"))
		}
		if at(f.get(f.spoke, "manual"), "metadata", "annotations", skipKey) != nil {
			t.Error("what Argo CD does not act on by itself waits")
		}
		if n := len(f.stats(f.hub).Parked); n == 0 {
			t.Error("nothing is parked")
		}
		f.hold("first")
		pass(30 * time.Second)
		app := f.get(f.spoke, "a")
		if at(app, "metadata", "annotations", skipKey) != nil || !f.stats(f.hub).Agreed {
			t.Errorf("30 s later the spoke has %v", app)
		}
	})
}

// Anyone who keeps an Application out of reconciliation goes on doing so.
func TestFenceLeavesTheOwnersWord(t *testing.T) {
	for said, want := range map[string]struct {
		asked int64
		said  any
	}{"true": {0, "true"}, "false": {1, "false"}} {
		t.Run(said, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenceRig(t)
				f.connect()
				f.create(f.hub, "a", m{"annotations": m{skipKey: said}}, automated("one"))
				pass(time.Second)
				if got := at(f.get(f.spoke, "a"), "metadata", "annotations", skipKey); got != want.said || f.asked.Load() != want.asked {
					t.Errorf("the copy says %v, and the fence was asked %d times", got, f.asked.Load())
				}
				if !f.stats(f.hub).Agreed {
					t.Error("the sides do not agree")
				}
			})
		})
	}
}

// A second one in the place of an Application that is made again waits as well.
func TestRecreatedIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenceRig(t)
		f.connect()
		recreated := m{"annotations": m{"argocd.argoproj.io/source-uid-mismatch-policy": "recreate"}}
		f.create(f.hub, "a", recreated, automated("one"))
		pass(time.Second)
		first := at(f.get(f.spoke, "a"), "metadata", "uid")
		f.remove(f.hub, "a")
		f.create(f.hub, "a", recreated, automated("two"))
		pass(time.Second)
		app := f.get(f.spoke, "a")
		if at(app, "metadata", "uid") == first || at(app, "spec", "source", "path") != "two" || at(app, "metadata", "annotations", skipKey) != nil {
			t.Errorf("the spoke has %v", app)
		}
		if n := f.asked.Load(); n != 2 {
			t.Errorf("the fence was asked %d times, want once for each", n)
		}
	})
}

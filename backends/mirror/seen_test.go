package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
)

// Applications of the hub that someone deletes one after the other go from the spoke,
// however many they are; what is only absent does not.
func TestSeenDeletions(t *testing.T) {
	const apps, deleted = 40, 30
	app := func(i int) string { return fmt.Sprint("app-", i) }
	each := func(f func(name string)) {
		for i := range deleted {
			f(app(i))
		}
	}
	remove := func(r *pair, _ func()) { each(func(name string) { r.remove(r.hub, name) }) }
	// gap is a watch of the hub's cache that breaks, and a list.
	gap := func(r *pair) { r.hub.store.Restore(r.hub.store.Snapshot(), 0) }
	for name, c := range map[string]struct {
		lag       bool // the hub's cache follows when the test says so
		configure func(*mirror.Config)
		older     bool // the spoke does not check what a Delete names
		delete    func(r *pair, cut func())
		wait      time.Duration // zero means 20s
		absent    int           // so many count as absences: if more than ten, at most ten go, and the others are held
	}{
		"as they happen": {delete: remove},
		"while the agent is away": {delete: func(r *pair, cut func()) {
			cut()
			synctest.Wait()
			remove(r, nil)
			pass(time.Minute)
			r.connect()
		}},
		"the agent is cut off half-way": {delete: func(r *pair, cut func()) {
			for i := range deleted {
				r.remove(r.hub, app(i))
				if i == deleted/2 {
					cut()
				}
			}
			pass(time.Second)
			r.connect()
		}},
		"the cache is far behind": {lag: true, delete: func(r *pair, _ func()) {
			remove(r, nil)
			pass(time.Minute)
			for r.hub.store.Deliver(1) > 0 {
				synctest.Wait()
			}
		}},
		"the watch breaks, and a list shows them no more": {lag: true, absent: deleted, delete: func(r *pair, _ func()) {
			remove(r, nil)
			gap(r)
			r.hub.store.Deliver(-1)
		}},
		"the watch breaks half-way": {lag: true, absent: 12, delete: func(r *pair, _ func()) {
			remove(r, nil)
			r.hub.store.Deliver(deleted - 12)
			synctest.Wait()
			gap(r)
			r.hub.store.Deliver(-1)
		}},
		"the agent is older": {older: true, absent: deleted, delete: remove},
		"nobody confirms":    {absent: deleted, delete: remove, configure: func(cfg *mirror.Config) { cfg.Confirm = nil }},
		"their namespace goes": {absent: deleted, delete: remove, configure: func(cfg *mirror.Config) {
			cfg.Confirm = func(_ context.Context, d []backends.Deletion) ([]bool, error) { return make([]bool, len(d)), nil }
		}},
		"the API server does not answer for a while": {delete: remove, configure: func(cfg *mirror.Config) {
			confirm, began := cfg.Confirm, time.Now()
			cfg.Confirm = func(ctx context.Context, d []backends.Deletion) ([]bool, error) {
				if time.Since(began) < 8*time.Second {
					return nil, errors.New("away")
				}
				return confirm(ctx, d)
			}
		}},
		"the API server never answers": {absent: deleted, wait: time.Minute, delete: remove, configure: func(cfg *mirror.Config) {
			cfg.Confirm = func(context.Context, []backends.Deletion) ([]bool, error) { return nil, errors.New("away") }
		}},
		"a label goes by which they are selected": {
			configure: func(cfg *mirror.Config) { cfg.Rules.Selector, _ = labels.Parse("tier=edge") }, absent: deleted,
			delete: func(r *pair, _ func()) {
				each(func(name string) { r.update(r.hub, name, func(o m) { delete(o["metadata"].(m), "labels") }) })
				remove(r, nil) // they were not the agent's any more
			},
		},
		"a destination goes": {absent: deleted, delete: func(r *pair, _ func()) {
			each(func(name string) {
				r.update(r.hub, name, func(o m) { o["spec"].(m)["destination"] = m{"name": "elsewhere"} })
			})
		}},
		"by force, in the midst of a cascade": {delete: func(r *pair, cut func()) {
			cut()
			synctest.Wait()
			each(func(name string) {
				r.update(r.hub, name, func(o m) { o["metadata"].(m)["finalizers"] = []any{cascade} })
				r.remove(r.hub, name)
				r.update(r.hub, name, func(o m) { delete(o["metadata"].(m), "finalizers") })
			})
			r.connect()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options{sees: true, hub: memory.Config{Lag: c.lag}, configure: func(side stream.Side, cfg *mirror.Config) {
					if side == stream.Hub && c.configure != nil {
						c.configure(cfg)
					}
				}, before: func(hub, _ *memory.Store) { hub.Deliver(-1) }}
				r := newPair(t, o)
				for i := range apps {
					r.create(r.hub, app(i), m{"labels": m{"tier": "edge"}}, spec("v1"))
				}
				r.hub.store.Deliver(-1)
				r.options.sees = !c.older
				cut, _ := r.connect()
				pass(time.Minute)
				if got := len(r.spoke.store.List(stream.Application, "")); got != apps {
					t.Fatalf("at first the spoke has %d Applications", got)
				}
				c.delete(r, cut)
				wait := c.wait
				if wait == 0 {
					wait = 20 * time.Second
				}
				pass(wait)
				// How many absences are checked before the guard sees that they are too
				// many is a matter of when each is noticed.
				least, most := 0, 0
				if c.absent > 10 {
					least, most = c.absent-10, c.absent
				}
				held := len(r.withheld())
				if held < least || held > most {
					t.Errorf("%d are held, want %d to %d", held, least, most)
				}
				if got, want := len(r.spoke.store.List(stream.Application, "")), apps-deleted+held; got != want {
					t.Errorf("the spoke has %d Applications, want %d", got, want)
				}
			})
		})
	}
}

// While it is being found out what the deletions are, they are not shown as held.
func TestSeenDeletionsAreNotHeldFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Int64
		var r *pair
		r = newPair(t, options{sees: true, configure: func(side stream.Side, cfg *mirror.Config) {
			if side == stream.Spoke {
				return
			}
			confirm := cfg.Confirm
			cfg.Confirm = func(ctx context.Context, d []backends.Deletion) ([]bool, error) {
				<-time.After(2 * time.Second) // of virtual time: an API server that is slow
				return confirm(ctx, d)
			}
			cfg.HistoryChanged = func() {
				r.wait.Go(func() {
					if s, err := r.hub.Stats(r.ctx); err == nil {
						held.Add(int64(s.Withheld.Total))
					}
				})
			}
		}})
		for i := range 30 {
			r.create(r.hub, fmt.Sprint("app-", i), nil, spec("v1"))
		}
		r.connect()
		pass(time.Second)
		for i := range 25 {
			r.remove(r.hub, fmt.Sprint("app-", i))
		}
		pass(10 * time.Second)
		if got := len(r.spoke.store.List(stream.Application, "")); got != 5 || held.Load() > 0 {
			t.Errorf("the spoke has %d Applications, want 5; %d were shown as held meanwhile", got, held.Load())
		}
	})
}

// Another Application under the name of one that was deleted is an Apply, and what was
// seen of the first one says nothing of the end of the second.
func TestSeenDeletionsAndRecreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const apps = 30
		r := newPair(t, options{sees: true, hub: memory.Config{Lag: true}, before: func(hub, _ *memory.Store) { hub.Deliver(-1) }})
		app := func(i int) string { return fmt.Sprint("app-", i) }
		each := func(f func(string)) {
			for i := range apps {
				f(app(i))
			}
		}
		each(func(name string) { r.create(r.hub, name, nil, spec("first")) })
		r.hub.store.Deliver(-1)
		r.connect()
		pass(time.Second)
		copies := map[string]any{}
		each(func(name string) { copies[name] = at(r.get(r.spoke, name), "metadata", "uid") })
		each(func(name string) {
			r.remove(r.hub, name)
			r.create(r.hub, name, nil, spec("second"))
		})
		r.hub.store.Deliver(-1)
		pass(20 * time.Second)
		each(func(name string) {
			o := r.get(r.spoke, name)
			if at(o, "spec", "source", "path") != "second" || at(o, "metadata", "uid") != copies[name] {
				t.Errorf("%s on the spoke is %v, want the same copy with the second's content", name, o)
			}
		})
		// The cache has not seen them come when they go by a list.
		each(func(name string) { r.remove(r.hub, name) })
		r.hub.store.Restore(r.hub.store.Snapshot(), 0)
		r.hub.store.Deliver(-1)
		pass(20 * time.Second)
		if got, want := len(r.withheld()), apps-10; got != want {
			t.Errorf("%d are held, want %d", got, want)
		}
	})
}

// A history that does not continue makes absences of what was seen in it, and of what
// is being confirmed; so does another process of the hub.
func TestSeenDeletionsEnd(t *testing.T) {
	for name, end := range map[string]func(r *pair, h *hubHistory){
		"the history does not continue": func(r *pair, h *hubHistory) {
			h.set("the hub was restored", nil)
			r.connect()
		},
		"the principal is another one": func(r *pair, _ *hubHistory) {
			r.hub = r.start(stream.Hub, stream.Managed, "edge-1", r.hub.store, r.options)
			r.connect()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hubHistory{}
				r := newPair(t, options{sees: true, configure: h.configure})
				for i := range 30 {
					r.create(r.hub, fmt.Sprint("app-", i), nil, spec("v1"))
				}
				cut, _ := r.connect()
				pass(time.Second)
				cut()
				synctest.Wait()
				for i := range 25 {
					r.remove(r.hub, fmt.Sprint("app-", i))
				}
				pass(time.Second)
				end(r, h)
				pass(20 * time.Second)
				if got := len(r.withheld()); got != 25 {
					t.Errorf("%d are held, want 25", got)
				}
				if got := len(r.spoke.store.List(stream.Application, "")); got != 30 {
					t.Errorf("the spoke has %d Applications, want all 30", got)
				}
			})
		})
	}
}

// The mirrors of an autonomous agent stay guarded: a Delete of its spoke says nothing
// that the hub could believe.
func TestAutonomousDeletionsStayGuarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{mode: stream.Autonomous, sees: true})
		for i := range 30 {
			r.create(r.spoke, fmt.Sprint("app-", i), nil, spec("v1"))
		}
		r.connect()
		pass(time.Second)
		for i := range 25 {
			r.remove(r.spoke, fmt.Sprint("app-", i))
		}
		pass(20 * time.Second)
		if got := r.stats(r.hub).Withheld.Total; got == 0 {
			t.Error("nothing is held")
		}
		if got := len(r.hub.store.List(stream.Application, "")); got < 20 {
			t.Errorf("the hub shows %d Applications", got)
		}
	})
}

package mirror_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/cascades"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// counted is a hub that counts what is to go with its workloads.
type counted struct {
	cascades *cascades.Counter
	doomed   map[string]string // namespaces of the hub that are being deleted, and why
}

func newCounted() *counted {
	return &counted{cascades: cascades.New(func(identity.AgentName) {}), doomed: map[string]string{}}
}

// pair starts an agent of that hub.
func (c *counted) pair(t *testing.T, agent string, o options, kept cascades.State) *pair {
	t.Helper()
	name, err := identity.ParseAgentName(agent)
	if err != nil {
		t.Fatal(err)
	}
	if o.mode != stream.Autonomous {
		c.cascades.Limit(name, cascades.Few, o.departing, kept)
	}
	o.configure = func(side stream.Side, cfg *mirror.Config) {
		cfg.Rules.Agent = name
		if side != stream.Hub {
			return
		}
		cfg.Cascades = c.cascades
		cfg.TerminatingNamespaces = func(_ context.Context, namespaces []string) (map[string]string, error) {
			out := map[string]string{}
			for _, namespace := range namespaces {
				out[namespace] = c.doomed[namespace]
			}
			return out, nil
		}
	}
	r := newPair(t, o)
	r.hub.namespace = agent
	return r
}

// cascading makes so many Applications that would take their workloads along.
func (r *pair) cascading(apps int) {
	r.t.Helper()
	for i := range apps {
		app := spec("v1")
		app["spec"].(m)["destination"].(m)["name"] = r.hub.namespace
		r.create(r.hub, fmt.Sprint("app-", i), m{"finalizers": []any{cascade}}, app)
	}
}

// finish does what the controllers of the spoke do with what is being deleted.
func (r *pair) finish() {
	r.t.Helper()
	for _, o := range r.spoke.store.List(stream.Application, "") {
		if at(parse(r.t, o), "metadata", "deletionTimestamp") != nil {
			r.update(r.spoke, o.Key.Name, func(app m) { delete(app["metadata"].(m), "finalizers") })
		}
	}
}

// left are the numbers of Applications of the hub and the spoke, and of those on the
// spoke that are not being deleted.
func (r *pair) left() (left [3]int) {
	for i, e := range []end{r.hub, r.spoke} {
		for _, o := range e.store.List(stream.Application, "") {
			left[i]++
			if i == 1 && at(parse(r.t, o), "metadata", "deletionTimestamp") == nil {
				left[2]++
			}
		}
	}
	return left
}

func (r *pair) wantLeft(what string, want [3]int) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.left()); diff != "" {
		r.t.Fatalf("%s: on the hub, the spoke, and there to stay (-want +got):\n%s", what, diff)
	}
}

// Twelve of twenty wait for a person, who lets them go, also when the hub has another
// process meanwhile.
func TestMassCascadeIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newCounted()
		r := hub.pair(t, "edge-1", options{}, cascades.State{})
		r.connect()
		r.cascading(20)
		pass(time.Hour)
		for i := range 12 {
			r.remove(r.hub, fmt.Sprint("app-", i))
		}
		pass(time.Minute)
		w := r.stats(r.hub).Withheld
		if w.Cascades == "" || len(w.Ending) < 2 || w.Total != len(w.Ending) {
			t.Fatalf("Withheld = %+v", w)
		}
		r.finish()
		pass(time.Minute)
		stay := 8 + len(w.Ending)
		r.wantLeft("held", [3]int{stay, stay, stay})

		// Another process of the hub goes on with what the Agent keeps.
		name, _ := identity.ParseAgentName("edge-1")
		kept, known := hub.cascades.State(name)
		if !known || kept.Held == "" {
			t.Fatalf("State() = %+v, %t", kept, known)
		}
		r.cancel(nil)
		r.wait.Wait()
		hub = newCounted()
		r = hub.pair(t, "edge-1", options{stores: [2]*memory.Store{r.hub.store.Open(), r.spoke.store.Open()}}, kept)
		r.connect()
		pass(time.Hour)
		r.wantLeft("held by another process", [3]int{stay, stay, stay})

		r.hub.Accept(r.stats(r.hub).Withheld.ID)
		pass(time.Minute)
		r.finish()
		pass(time.Minute)
		r.wantLeft("accepted", [3]int{8, 8, 8})
		if w := r.stats(r.hub).Withheld; w.Total != 0 {
			t.Errorf("after that Withheld = %+v", w)
		}
		for i := range 4 {
			r.remove(r.hub, fmt.Sprint("app-", 12+i))
		}
		pass(time.Minute)
		r.finish()
		pass(time.Minute)
		r.wantLeft("four more, after those were accepted", [3]int{4, 4, 4})
	})
}

// Eleven of a hundred wait until they are counted, and go.
func TestCascadesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCounted().pair(t, "edge-1", options{}, cascades.State{})
		cut, _ := r.connect()
		r.cascading(100)
		pass(time.Hour)
		cut()
		synctest.Wait()
		for i := range 11 {
			r.remove(r.hub, fmt.Sprint("app-", i))
		}
		synctest.Wait() // of those that it has not heard of ten may be sent
		r.connect()
		pass(9 * time.Second)
		r.wantLeft("before it is clear that no more come", [3]int{100, 100, 100})
		pass(2 * time.Second)
		r.wantLeft("counted", [3]int{100, 100, 89})
		r.finish()
		pass(time.Minute)
		r.wantLeft("done", [3]int{89, 89, 89})
	})
}

// Two agents, each with fewer than may be too many; together they are more than half
// of what the hub has.
func TestMassCascadeOfAHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newCounted()
		var rigs []*pair
		for _, name := range []string{"edge-1", "edge-2"} {
			r := hub.pair(t, name, options{}, cascades.State{})
			r.cascading(10)
			rigs = append(rigs, r)
		}
		pass(time.Hour)
		for _, r := range rigs {
			cut, _ := r.connect()
			pass(time.Second)
			cut()
		}
		synctest.Wait()
		for _, r := range rigs {
			for i := range 8 {
				r.remove(r.hub, fmt.Sprint("app-", i))
			}
		}
		synctest.Wait()
		for _, r := range rigs {
			r.connect()
		}
		pass(time.Hour)
		for i, r := range rigs {
			if w := r.stats(r.hub).Withheld; len(w.Ending) != 8 {
				t.Fatalf("of agent %d Withheld = %+v", i, w)
			}
			r.wantLeft("held", [3]int{10, 10, 10})
		}
		// Each is accepted by itself.
		rigs[0].hub.Accept(rigs[0].stats(rigs[0].hub).Withheld.ID)
		pass(time.Minute)
		rigs[0].wantLeft("accepted", [3]int{10, 10, 2})
		rigs[1].wantLeft("not accepted", [3]int{10, 10, 10})
	})
}

// Who deletes a namespace did not name the Applications in it.
func TestDoomedPlaceIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newCounted()
		r := hub.pair(t, "edge-1", options{}, cascades.State{})
		r.connect()
		r.cascading(2)
		pass(time.Second)
		hub.doomed["edge-1"] = "namespace edge-1 is being deleted"
		r.remove(r.hub, "app-0")
		r.remove(r.hub, "app-1")
		pass(time.Hour)
		r.wantLeft("held", [3]int{2, 2, 2})
		w := r.stats(r.hub).Withheld
		if w.Cascades != hub.doomed["edge-1"] || len(w.Ending) != 2 {
			t.Fatalf("Withheld = %+v", w)
		}
		r.hub.Accept(w.ID)
		pass(time.Minute)
		r.wantLeft("accepted", [3]int{2, 2, 0})
	})
}

// Where it is switched off nothing is held, for its place neither, also when that comes
// later.
func TestHoldSwitchedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newCounted()
		r := hub.pair(t, "edge-1", options{}, cascades.State{})
		r.connect()
		r.cascading(20)
		pass(time.Hour)
		hub.doomed["edge-1"] = "namespace edge-1 is being deleted"
		for i := range 12 {
			r.remove(r.hub, fmt.Sprint("app-", i))
		}
		pass(time.Hour)
		r.wantLeft("held", [3]int{20, 20, 20})
		name, _ := identity.ParseAgentName("edge-1")
		hub.cascades.Limit(name, 0, false, cascades.State{})
		pass(time.Minute)
		r.wantLeft("switched off", [3]int{20, 20, 8})
	})
}

// An autonomous agent's Applications are its spoke's to delete, and no one counts them.
func TestAutonomousIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newCounted()
		r := hub.pair(t, "edge-1", options{mode: stream.Autonomous}, cascades.State{})
		r.connect()
		for i := range 20 {
			app := spec("v1")
			app["spec"].(m)["destination"] = m{"name": "in-cluster", "namespace": "web"}
			r.create(r.spoke, fmt.Sprint("app-", i), m{"finalizers": []any{cascade}}, app)
		}
		pass(time.Hour)
		r.wantLeft("shown", [3]int{20, 20, 20})
		for i := range 2 {
			r.remove(r.hub, fmt.Sprint("app-", i)) // a mirror comes back
			r.remove(r.spoke, fmt.Sprint("app-", 10+i))
		}
		pass(time.Minute)
		r.finish()
		pass(time.Minute)
		r.wantLeft("deleted", [3]int{18, 18, 18})
		name, _ := identity.ParseAgentName("edge-1")
		if state, known := hub.cascades.State(name); known {
			t.Errorf("State() = %+v", state)
		}
	})
}

// What is held can go without its workloads, all of it or one. No one holds that back
// for its number, and the hub's Applications end when the spoke has let go.
func TestKeepWorkloads(t *testing.T) {
	keep := func(app m) {
		app["metadata"].(m)["annotations"] = m{ownership.KeepWorkloadsKey: "true"}
	}
	for name, departing := range map[string]bool{"held": false, "of an Agent that goes": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := newCounted()
				r := hub.pair(t, "edge-1", options{}, cascades.State{})
				r.cascading(20)
				cut, _ := r.connect()
				pass(time.Hour)
				cut()
				synctest.Wait()
				if departing {
					r.cancel(nil)
					r.wait.Wait()
					hub = newCounted()
					hub.doomed["edge-1"] = "namespace argocd is being deleted"
					r = hub.pair(t, "edge-1", options{departing: true, stores: [2]*memory.Store{r.hub.store.Open(), r.spoke.store.Open()}}, cascades.State{})
				}
				for i := range 15 {
					r.remove(r.hub, fmt.Sprint("app-", i))
				}
				synctest.Wait() // of those that it has not heard of ten may be sent
				cut, _ = r.connect()
				pass(time.Minute)
				if w := r.stats(r.hub).Withheld; len(w.Ending) != 15 {
					t.Fatalf("Withheld = %+v", w)
				}
				r.update(r.hub, "app-3", keep)
				pass(time.Minute)
				r.wantLeft("one", [3]int{19, 19, 19})
				// An ApplicationSet takes away what is not of its template.
				cut()
				synctest.Wait()
				r.update(r.hub, "app-4", keep)
				synctest.Wait()
				r.update(r.hub, "app-4", func(app m) { delete(app["metadata"].(m), "annotations") })
				for i := range 15 {
					if i != 3 && i != 4 {
						r.update(r.hub, fmt.Sprint("app-", i), keep)
					}
				}
				r.connect()
				pass(time.Minute)
				r.wantLeft("all", [3]int{5, 5, 5})
				if w := r.stats(r.hub).Withheld; w.Total != 0 {
					t.Errorf("after that Withheld = %+v", w)
				}
			})
		})
	}
}

// What the spoke has begun to delete is not called back: the hub's Application is there
// until the spoke is done.
func TestKeepWorkloadsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCounted().pair(t, "edge-1", options{}, cascades.State{})
		r.connect()
		r.cascading(1)
		pass(time.Second)
		r.remove(r.hub, "app-0")
		pass(time.Second)
		r.update(r.hub, "app-0", func(app m) { app["metadata"].(m)["annotations"] = m{ownership.KeepWorkloadsKey: "true"} })
		pass(time.Minute)
		r.wantLeft("under way", [3]int{1, 1, 0})
		if got := at(r.get(r.spoke, "app-0"), "metadata", "finalizers"); got == nil {
			t.Error("the copy has lost its finalizer in the middle of its cascade")
		}
		r.finish()
		pass(time.Minute)
		r.wantLeft("done", [3]int{0, 0, 0})
	})
}

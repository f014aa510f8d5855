package mirror_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

const (
	refresh = "argocd.argoproj.io/refresh"
	source  = "argocd.argoproj.io/source-uid"
)

// child makes an Application on the spoke, as another one's sync would.
func (r *pair) child(name string) {
	r.t.Helper()
	r.create(r.spoke, name, m{
		"labels": m{"team": "x"}, "annotations": m{"note": "n", "argocd.argoproj.io/tracking-id": "parent:…"}, "finalizers": []any{cascade},
	}, m{
		"spec":   m{"project": "shop", "destination": m{"server": "https://kubernetes.default.svc", "namespace": "web"}},
		"status": m{"health": m{"status": "Healthy"}},
	})
}

// revision is the resourceVersion of an object, by which it is told whether it was
// written at all.
func (r *pair) revision(e end, name string) any {
	r.t.Helper()
	return at(r.get(e, name), "metadata", "resourceVersion")
}

func TestChildIsShownReadOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{children: true})
		r.connect()
		r.child("c")
		untouched := r.revision(r.spoke, "c")
		pass(time.Second)
		want := m{"project": "shop", "destination": m{"name": "edge-1", "namespace": "web"}}
		check := func(when string) m {
			t.Helper()
			app := r.get(r.hub, "c")
			if app == nil {
				t.Fatalf("%s: the hub shows nothing", when)
			}
			if diff := cmp.Diff(any(want), app["spec"]); diff != "" {
				t.Errorf("%s: the spec of the mirror (-want +got)\n%s", when, diff)
			}
			meta := app["metadata"].(m)
			if meta["finalizers"] != nil || meta["deletionTimestamp"] != nil {
				t.Errorf("%s: the mirror has finalizers %v, and is being deleted since %v", when, meta["finalizers"], meta["deletionTimestamp"])
			}
			if diff := cmp.Diff(any(m{"team": "x"}), meta["labels"]); diff != "" {
				t.Errorf("%s: labels of the mirror (-want +got)\n%s", when, diff)
			}
			annotations := meta["annotations"].(m)
			if annotations["note"] != "n" || annotations["argocd.argoproj.io/tracking-id"] != nil || annotations[refresh] != nil {
				t.Errorf("%s: annotations of the mirror %v", when, annotations)
			}
			if annotations[source] != at(r.get(r.spoke, "c"), "metadata", "uid") {
				t.Errorf("%s: the mirror is of %v", when, annotations[source])
			}
			if got := at(app, "status", "health", "status"); got != "Healthy" {
				t.Errorf("%s: the mirror shows health %v", when, got)
			}
			if got := conditionOf(app); got != "" {
				t.Errorf("%s: a condition: %s", when, got)
			}
			if h, s := r.stats(r.hub), r.stats(r.spoke); !h.Agreed || !s.Agreed || h.Applications != 0 {
				t.Errorf("%s: hub %+v, spoke %+v", when, h, s)
			}
			if got := r.revision(r.spoke, "c"); got != untouched {
				t.Errorf("%s: the child was written on the spoke", when)
			}
			return app
		}
		check("made")

		r.update(r.hub, "c", func(app m) {
			app["spec"].(m)["project"] = "other"
			app["status"] = m{"health": m{"status": "Missing"}}
			app["metadata"].(m)["labels"].(m)["team"] = "y"
			app["metadata"].(m)["finalizers"] = []any{cascade}
		})
		pass(time.Minute)
		check("edited on the hub")

		pass(10 * time.Minute)
		r.remove(r.hub, "c")
		pass(time.Minute)
		check("deleted on the hub")

		r.update(r.hub, "c", func(app m) { app["metadata"].(m)["finalizers"] = []any{cascade} })
		r.remove(r.hub, "c")
		pass(time.Minute)
		check("deleted on the hub with a cascade")

		r.update(r.hub, "c", func(app m) {
			app["metadata"].(m)["annotations"].(m)[refresh] = "hard"
			app["metadata"].(m)["annotations"].(m)["argocd.argoproj.io/hydrate"] = "normal"
		})
		pass(time.Minute)
		check("refreshed on the hub")

		pass(10 * time.Minute)
		r.update(r.hub, "c", func(app m) {
			delete(app["status"].(m), "operationState") // as argocd-server does
			app["operation"] = m{"sync": m{"revision": "HEAD"}}
		})
		pass(time.Second)
		refused := func(when string) {
			t.Helper()
			app := check(when)
			state, _ := at(app, "status", "operationState").(m)
			message, _ := state["message"].(string)
			if app["operation"] != nil || state["phase"] != "Error" || state["finishedAt"] == nil ||
				!strings.HasSuffix(message, "it is a child application of the spoke, shown read-only; sync its parent") {
				t.Errorf("%s: operation %v, state %v", when, app["operation"], state)
			}
		}
		refused("synced on the hub")
		pass(time.Hour)
		refused("an hour after the sync on the hub")

		r.update(r.spoke, "c", func(app m) {
			// By the spoke's clock that is before the refusal, which the hub's has timed.
			app["status"].(m)["operationState"] = m{"phase": "Succeeded", "startedAt": "1999-01-01T00:00:00Z", "finishedAt": "1999-01-01T00:00:01Z"}
		})
		untouched = r.revision(r.spoke, "c")
		pass(time.Second)
		if got := at(check("synced on the spoke"), "status", "operationState", "phase"); got != "Succeeded" {
			t.Errorf("after a sync on the spoke the mirror shows %v", got)
		}

		r.update(r.spoke, "c", func(app m) { delete(app["metadata"].(m), "finalizers") })
		r.remove(r.spoke, "c")
		pass(time.Second)
		if app := r.get(r.hub, "c"); app != nil {
			t.Errorf("the child is gone, and the hub shows %v", app)
		}
	})
}

// TestChildrenAreShownOnlyIfAsked switches it on and off, from one connection to
// the next, with and without a restart of both processes. Whatever the hub shows,
// the spoke's own Applications are never touched.
func TestChildrenAreShownOnlyIfAsked(t *testing.T) {
	for name, restart := range map[string]bool{"new connections": false, "new processes": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, spoke := memory.New(memory.Config{}), memory.New(memory.Config{})
				r := newPair(t, options{stores: [2]*memory.Store{hub, spoke}})
				r.child("c")
				untouched := r.revision(r.spoke, "c")
				for i, children := range []bool{false, true, true, false, true} {
					if restart && i > 0 {
						r.cancel(nil)
						r.wait.Wait()
						r = newPair(t, options{stores: [2]*memory.Store{hub.Open(), spoke.Open()}})
					}
					r.options.children = children
					r.connect() // it takes over from the one before
					pass(time.Minute)
					if shown := r.get(r.hub, "c") != nil; shown != children {
						t.Errorf("connection %d: shown = %t", i, shown)
					}
					if got := r.revision(r.spoke, "c"); got != untouched {
						t.Errorf("connection %d: the child was written on the spoke", i)
					}
					if h, s := r.stats(r.hub), r.stats(r.spoke); !h.Agreed || !s.Agreed {
						t.Errorf("connection %d: hub %+v, spoke %+v", i, h, s)
					}
				}
			})
		})
	}
}

// TestSpokeThatShowsChildrenUnasked: what the hub shows is the hub's to say.
func TestSpokeThatShowsChildrenUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{unasked: true})
		r.connect()
		r.child("c")
		pass(time.Minute)
		entry := stream.EntryKey{Collection: stream.Children, Name: "c"}
		if r.get(r.hub, "c") != nil || r.stats(r.spoke).Parked[entry].Kind != stream.RefusalNotOwned {
			t.Errorf("the hub shows %v, parked is %v", r.get(r.hub, "c"), r.stats(r.spoke).Parked)
		}
	})
}

// TestChildBecomesTheHubsAndBack lets the owner of an Application of the spoke
// change. No workload goes with it, and what is the hub's is not overwritten.
func TestChildBecomesTheHubsAndBack(t *testing.T) {
	own := m{"spec": m{"project": "shop", "destination": m{"name": "edge-1", "namespace": "web"}, "source": m{"path": "hub"}}}
	tests := map[string]struct {
		adopt func(r *pair) // makes the hub's Application
	}{
		"the hub's Application takes the place of the mirror": {func(r *pair) {
			r.child("c")
			pass(time.Second)
			r.update(r.hub, "c", func(app m) { // kubectl replace
				meta := app["metadata"].(m)
				delete(meta, "annotations")
				delete(app, "status")
				app["spec"] = own["spec"]
			})
		}},
		"it was there before the child": {func(r *pair) {
			cut := r.hub.Pause // not yet sent
			cut(true)
			r.create(r.hub, "c", nil, own)
			r.child("c")
			pass(time.Second)
			if s := r.stats(r.spoke); s.Parked[stream.EntryKey{Collection: stream.Children, Name: "c"}].Kind != stream.RefusalNotOwned {
				r.t.Errorf("parked are %v", s.Parked)
			}
			cut(false)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPair(t, options{children: true, adopt: []string{"application/c"}, projects: []string{"shop"}})
				cascades := watchCascades(t, r.spoke.store)
				r.connect()
				test.adopt(r)
				uid := at(r.get(r.spoke, "c"), "metadata", "uid")
				pass(time.Minute)
				hub, spoke := r.get(r.hub, "c"), r.get(r.spoke, "c")
				if at(spoke, "spec", "source", "path") != "hub" || at(spoke, "metadata", "uid") != uid ||
					at(spoke, "metadata", "annotations", source) != at(hub, "metadata", "uid") {
					t.Fatalf("the spoke did not adopt the hub's Application: %v", spoke)
				}
				if at(spoke, "metadata", "finalizers") != nil || at(spoke, "status", "health", "status") != "Healthy" {
					t.Errorf("adopted, the copy has finalizers %v and status %v", at(spoke, "metadata", "finalizers"), spoke["status"])
				}
				if at(hub, "metadata", "annotations") != nil || at(hub, "status", "health", "status") != "Healthy" {
					t.Errorf("the hub's Application has annotations %v and status %v", at(hub, "metadata", "annotations"), hub["status"])
				}
				if h, s := r.stats(r.hub), r.stats(r.spoke); !h.Agreed || !s.Agreed || len(s.Parked) != 0 || h.Applications != 1 {
					t.Errorf("managed: hub %+v, spoke %+v", h, s)
				}

				// The hub gives it up, and it is the spoke's again.
				r.remove(r.hub, "c")
				pass(time.Minute)
				app, spoke := r.get(r.hub, "c"), r.get(r.spoke, "c")
				if at(spoke, "metadata", "uid") != uid || at(spoke, "spec", "source", "path") == "hub" || at(spoke, "metadata", "annotations", source) != nil {
					t.Errorf("given back, the spoke has %v", spoke)
				}
				if app == nil || at(app, "metadata", "annotations", source) != uid {
					t.Errorf("given back to the spoke, it is not shown as a child: %v", app)
				}
				if h, s := r.stats(r.hub), r.stats(r.spoke); !h.Agreed || !s.Agreed || h.Applications != 0 {
					t.Errorf("a child: hub %+v, spoke %+v", h, s)
				}
				if cascades() != 0 {
					t.Error("something was deleted together with its workloads")
				}
			})
		})
	}
}

// TestHubApplicationThatIsNotSentIsInTheWay: the hub's goes before the spoke's,
// even one that the agent does not get.
func TestHubApplicationThatIsNotSentIsInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{children: true})
		r.create(r.hub, "c", m{"labels": m{"argocd-agent.argoproj-labs.io/ignore-sync": "true"}}, spec("hub"))
		r.child("c")
		hub, spoke := r.revision(r.hub, "c"), r.revision(r.spoke, "c")
		r.connect()
		pass(time.Hour)
		if r.revision(r.hub, "c") != hub || r.revision(r.spoke, "c") != spoke {
			t.Errorf("hub %v, spoke %v", r.get(r.hub, "c"), r.get(r.spoke, "c"))
		}
		r.remove(r.hub, "c")
		pass(6 * time.Minute) // the refused entry is tried again
		if at(r.get(r.hub, "c"), "metadata", "annotations", source) == nil {
			t.Error("the child is not shown once the way is free")
		}
	})
}

// TestOwnersChangeAtRandom lets the hub and the spoke make, replace and delete
// Applications of the same few names, while the link comes and goes. In the end
// each name is what the rules say, and no workload went that no one asked for.
func TestOwnersChangeAtRandom(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a schedule, not a secret
				var faulty atomic.Bool
				var mu sync.Mutex // guards random
				draw := func(n int) int {
					mu.Lock()
					defer mu.Unlock()
					return random.IntN(n)
				}
				unruly := memory.Config{Fault: func(memory.Op, stream.ResourceKey) error {
					if faulty.Load() && draw(4) == 0 {
						return []error{stream.ErrConflict, stream.ErrUnavailable}[draw(2)]
					}
					return nil
				}}
				r := newPair(t, options{children: true, hub: unruly, spoke: unruly, adopt: []string{"application/*"}})
				cascades := watchCascades(t, r.spoke.store)
				names := []string{"a", "b", "c"}
				cut, _ := r.connect()
				for range 60 {
					faulty.Store(false) // people are not faulty
					synctest.Wait()
					name := names[draw(len(names))]
					hub, spoke := r.get(r.hub, name), r.get(r.spoke, name)
					switch draw(8) {
					case 0, 1: // someone makes it on the hub, or takes the mirror's place
						meta := m{}
						if draw(2) == 0 {
							meta["annotations"] = m{mismatchPolicy: "recreate"}
						}
						if hub == nil {
							r.create(r.hub, name, meta, spec(fmt.Sprint(draw(100))))
							break
						}
						r.update(r.hub, name, func(app m) { delete(app["metadata"].(m), "annotations") })
					case 2:
						if hub != nil {
							r.remove(r.hub, name)
						}
					case 3: // a parent makes it on the spoke
						if spoke == nil {
							r.create(r.spoke, name, nil, m{"spec": m{"project": "default", "destination": m{"name": "in-cluster"}}, "status": m{}})
						}
					case 4:
						if spoke != nil {
							r.remove(r.spoke, name)
						}
					case 5:
						cut()
						pass(time.Millisecond)
					case 6:
						cut()
						cut, _ = r.connect()
					case 7:
						faulty.Store(draw(2) == 0)
						pass(time.Duration(draw(3000)) * time.Millisecond)
					}
					faulty.Store(draw(3) == 0)
					pass(time.Millisecond)
				}
				faulty.Store(false)
				cut()
				r.connect()
				pass(20 * time.Minute) // what was refused is tried again, or forgotten
				for _, name := range names {
					hub, spoke := r.get(r.hub, name), r.get(r.spoke, name)
					hubs, spokes := at(hub, "metadata", "annotations", source), at(spoke, "metadata", "annotations", source)
					switch {
					case hub == nil && spoke == nil:
					case hub == nil || spoke == nil:
						t.Errorf("%s: hub %v, spoke %v", name, hub, spoke)
					case hubs == nil && spokes == at(hub, "metadata", "uid"): // the hub's
						if at(hub, "spec", "source", "path") != at(spoke, "spec", "source", "path") {
							t.Errorf("%s: the hub's is %v, the copy %v", name, hub["spec"], spoke["spec"])
						}
					case spokes == nil && hubs == at(spoke, "metadata", "uid"): // a child
					default:
						t.Errorf("%s belongs to nobody: hub %v, spoke %v", name, hub, spoke)
					}
				}
				if h, s := r.stats(r.hub), r.stats(r.spoke); !h.Agreed || !s.Agreed || len(h.Parked)+len(s.Parked) != 0 {
					t.Errorf("hub %+v, spoke %+v", h, s)
				}
				if cascades() != 0 {
					t.Error("something was deleted together with its workloads")
				}
			})
		})
	}
}

// TestReconciliationOfAChildMayWait: it is told as seldom as that of a copy.
func TestReconciliationOfAChildMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{children: true})
		r.connect()
		r.child("c")
		pass(time.Second)
		first := r.reconcile("c")
		pass(9 * time.Minute)
		r.reconcile("c")
		pass(time.Minute)
		if got := r.reconciledAt("c"); got != first {
			t.Errorf("the hub shows %v, want %s", got, first)
		}
		held := r.reconcile("c")
		pass(time.Second)
		if got := r.reconciledAt("c"); got != first {
			t.Errorf("the hub shows %v, want %s", got, first)
		}
		pass(10 * time.Second)
		if got := r.reconciledAt("c"); got != held {
			t.Errorf("the hub shows %v, want %s", got, held)
		}
	})
}

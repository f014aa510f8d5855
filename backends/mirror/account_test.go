package mirror_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
)

// meter counts what an API server took, and keeps its names in order.
type meter struct {
	mu            sync.Mutex // guards what follows
	writes, bytes int
	names         []string
}

func (c *meter) journal(a memory.Accepted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !a.Gone {
		c.writes++
		c.bytes += a.Object.Size()
		c.names = append(c.names, a.Object.Key.Name)
	}
}

func (c *meter) reset() (writes, bytes int, names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	writes, bytes, names = c.writes, c.bytes, c.names
	c.writes, c.bytes, c.names = 0, 0, nil
	return writes, bytes, names
}

// limited gives the peer of one side a budget.
func limited(on stream.Side, l budget.Limits) func(stream.Side, *mirror.Config) {
	return func(side stream.Side, cfg *mirror.Config) {
		if side == on {
			cfg.Budget = budget.NewPeer("edge-1", l, nil, time.Now())
		}
	}
}

// rewrite answers each answer with the next version of the same entry, so that there is
// always one more, until ctx of the attacker ends.
func (a *attacker) rewrite(name string, size int, version *atomic.Int64) stream.Event {
	n := version.Add(1)
	data := fmt.Appendf(nil, `{"spec":{"project":"default","destination":{},"source":{"path":"%d-%s"}}}`, n, strings.Repeat("a", size))
	return stream.Event{
		ID: fmt.Sprint("e", n), Verb: stream.Apply, Key: stream.EntryKey{Collection: stream.Applications, Name: name}, Revision: uint64(n),
		Version: stream.Version{SourceUID: "u-" + name, Hash: stream.HashOf(data)}, Data: data,
	}
}

// flood rewrites objects at full speed for d and returns how many events were answered.
func (a *attacker) flood(names []string, size int, d time.Duration) int {
	a.t.Helper()
	var version atomic.Int64
	pending := map[string]string{}
	answered := 0
	for until := time.Now().Add(d); time.Now().Before(until); {
		results := a.results()
		for _, name := range names {
			if id, waits := pending[name]; waits {
				if _, done := results[id]; !done {
					continue
				}
				answered++
			}
			e := a.rewrite(name, size, &version)
			pending[name] = e.ID
			a.say(stream.Batch{Events: []stream.Event{e}})
		}
		pass(10 * time.Millisecond)
		if version.Load()%100 == 0 {
			a.say(stream.Heartbeat{}) // else it is taken for gone
		}
	}
	return answered
}

// TestRewritingIsBoundByTheBudget: a peer that rewrites a few objects at full speed costs
// the API server its burst and its rate times the time, and one object under way.
func TestRewritingIsBoundByTheBudget(t *testing.T) {
	limits := budget.Limits{Writes: budget.Limit{Rate: 5, Burst: 40}, Bytes: budget.Limit{Rate: 40_000, Burst: 400_000}}
	for name, c := range map[string]struct {
		side    stream.Side
		mode    stream.Mode
		size    int
		objects int
	}{
		"a spoke, many small objects":  {side: stream.Hub, mode: stream.Autonomous, size: 100, objects: 60},
		"a spoke, large objects":       {side: stream.Hub, mode: stream.Autonomous, size: 50_000, objects: 20},
		"a hub, many small objects":    {side: stream.Spoke, mode: stream.Managed, size: 100, objects: 60},
		"a hub, large objects":         {side: stream.Spoke, mode: stream.Managed, size: 50_000, objects: 20},
		"a spoke, one object by a lot": {side: stream.Hub, mode: stream.Autonomous, size: 100, objects: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var took meter
				o := options{mode: c.mode, configure: limited(c.side, limits)}
				o.hub.Journal, o.spoke.Journal = took.journal, took.journal
				r := newPair(t, o)
				took.reset()
				e := r.hub
				if c.side == stream.Spoke {
					e = r.spoke
				}
				a := r.attack(e)
				names := make([]string, c.objects)
				for i := range names {
					names[i] = fmt.Sprint("app-", i)
				}
				const seconds = 60
				a.flood(names, c.size, seconds*time.Second)
				writes, bytes, _ := took.reset()
				if most := 40 + 5*seconds; writes > most {
					t.Errorf("%d writes in %ds, want %d at most", writes, seconds, most)
				}
				if most := 400_000 + 40_000*seconds + c.size + 2<<10; bytes > most {
					t.Errorf("%d bytes in %ds, want %d at most", bytes, seconds, most)
				}
				if most := c.objects * (12 + seconds/2); writes > most {
					t.Errorf("%d writes of %d objects in %ds, want %d at most", writes, c.objects, seconds, most)
				}
				if writes < 30 {
					t.Errorf("%d writes: it did not get what it may", writes)
				}
			})
		})
	}
}

// TestLargeObjectsAreWrittenOneAfterTheOther: a peer's small objects are written eight at
// once, and those that are large not beside one another, so that others find the API server
// free again after each.
func TestLargeObjectsAreWrittenOneAfterTheOther(t *testing.T) {
	for name, c := range map[string]struct {
		side          stream.Side
		mode          stream.Mode
		n, size, most int
	}{
		"a spoke, small objects":  {side: stream.Hub, mode: stream.Autonomous, n: 16, size: 20 << 10, most: 8},
		"a spoke, medium objects": {side: stream.Hub, mode: stream.Autonomous, n: 16, size: 100 << 10, most: 3},
		"a spoke, large objects":  {side: stream.Hub, mode: stream.Autonomous, n: 4, size: 400 << 10, most: 1},
		"a hub, large objects":    {side: stream.Spoke, mode: stream.Managed, n: 4, size: 400 << 10, most: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var atOnce, most atomic.Int64
				slow := func(op memory.Op, key stream.ResourceKey) error {
					if !strings.HasPrefix(key.Name, "app-") || op != memory.OpCreate && op != memory.OpUpdate {
						return nil
					}
					most.Store(max(most.Load(), atOnce.Add(1)))
					<-time.After(100 * time.Millisecond) // how long the API server takes
					atOnce.Add(-1)
					return nil
				}
				o := options{mode: c.mode}
				o.hub.Fault, o.spoke.Fault = slow, slow
				r := newPair(t, o)
				e := r.hub
				if c.side == stream.Spoke {
					e = r.spoke
				}
				a := r.attack(e)
				var names []string
				for i := range c.n {
					names = append(names, fmt.Sprint("app-", i))
				}
				if answered := a.flood(names, c.size, 2*time.Second); answered < 2*c.n {
					t.Errorf("%d are answered, want each of %d twice at least", answered, c.n)
				}
				if got := most.Load(); got != int64(c.most) {
					t.Errorf("%d were written at once, want %d", got, c.most)
				}
			})
		})
	}
}

// TestOverBudgetIsToldAndPasses: what is over budget is delayed and told, both sides agree
// once there is a budget again, and no newer state was left behind.
func TestOverBudgetIsToldAndPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const apps = 400
		limits := budget.Limits{Writes: budget.Limit{Rate: 10, Burst: 20}}
		r := newPair(t, options{mode: stream.Autonomous, configure: limited(stream.Hub, limits)})
		for i := range apps {
			r.create(r.spoke, fmt.Sprint("app-", i), nil, spec("one"))
		}
		r.connect()
		pass(3 * time.Second)
		s := r.stats(r.hub)
		if s.Over != budget.OverWrites || s.Delayed == 0 || s.Agreed {
			t.Errorf("over %s, %d delayed, agreed %v", s.Over, s.Delayed, s.Agreed)
		}
		for i := range apps {
			r.update(r.spoke, fmt.Sprint("app-", i), func(o m) { o["spec"] = spec("two")["spec"] })
		}
		pass(2 * time.Minute)
		for i := range apps {
			if got := at(r.get(r.hub, fmt.Sprint("app-", i)), "spec", "source", "path"); got != "two" {
				t.Fatalf("app-%d is shown as of %v", i, got)
			}
		}
		if s = r.stats(r.hub); !s.Agreed || s.Delayed != 0 {
			t.Errorf("%d delayed, agreed %v", s.Delayed, s.Agreed)
		}
		pass(2 * time.Minute)
		if s = r.stats(r.hub); s.Over != budget.OverNothing {
			t.Errorf("two minutes later it is over %s", s.Over)
		}
	})
}

// TestEndsOfOperationsGoFirst: an agent that has used up its budget, and has much more to
// tell than there is room for, still tells at once that an operation has ended, and what is
// deleted.
func TestEndsOfOperationsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const apps = 600
		var took meter
		o := options{mode: stream.Autonomous, configure: limited(stream.Hub, budget.Limits{Writes: budget.Limit{Rate: 10, Burst: 10}})}
		o.hub.Journal = took.journal
		r := newPair(t, o)
		name := func(i int) string { return fmt.Sprint("app-", i) }
		for i := range apps {
			r.create(r.spoke, name(i), nil, spec("one"))
		}
		r.connect()
		pass(5 * time.Minute)
		started := time.Now().UTC().Format(time.RFC3339)
		r.update(r.spoke, name(0), func(o m) {
			o["status"] = m{"operationState": m{"phase": "Running", "startedAt": started, "operation": m{"sync": m{}}}}
		})
		pass(10 * time.Second)
		for i := range apps { // a minute's worth
			r.update(r.spoke, name(i), func(o m) { o["spec"] = spec("two")["spec"] })
		}
		pass(5 * time.Second)
		took.reset()
		r.update(r.spoke, name(0), func(o m) {
			o["status"].(m)["operationState"].(m)["phase"] = "Succeeded"
			o["status"].(m)["operationState"].(m)["finishedAt"] = started
		})
		r.remove(r.spoke, name(1))
		pass(10 * time.Second)
		if got := at(r.get(r.hub, name(0)), "status", "operationState", "phase"); got != "Succeeded" {
			t.Errorf("the operation is shown as %v", got)
		}
		if r.get(r.hub, name(1)) != nil {
			t.Error("what was deleted is still shown")
		}
		if writes, _, _ := took.reset(); writes > 110 {
			t.Errorf("%d writes in ten seconds", writes)
		}
		if r.stats(r.hub).Agreed {
			t.Error("there was nothing that the end could go before")
		}
	})
}

// TestObjectIsWrittenTwelveTimesAtOnce: then once in two seconds, and it is the newest
// state that is written.
func TestObjectIsWrittenTwelveTimesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took meter
		o := options{mode: stream.Autonomous}
		o.hub.Journal = took.journal
		r := newPair(t, o)
		r.connect()
		r.create(r.spoke, "a", nil, spec("0"))
		for i := range 300 {
			pass(100 * time.Millisecond)
			r.update(r.spoke, "a", func(o m) { o["spec"] = spec(fmt.Sprint(i + 1))["spec"] })
		}
		if writes, _, _ := took.reset(); writes < 25 || writes > 12+15+1 {
			t.Errorf("%d writes in 30s, want 12 and then one in 2s", writes)
		}
		pass(4 * time.Second) // for the one that is on its way, and the newest
		if got := at(r.get(r.hub, "a"), "spec", "source", "path"); got != "300" {
			t.Errorf("the hub shows %v", got)
		}
		if s := r.stats(r.hub); s.Over != budget.OverNothing || !s.Agreed {
			t.Errorf("over %s, agreed %v", s.Over, s.Agreed)
		}
	})
}

package jobs_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/jobs"
	"github.com/argomesh/argomesh/stream"
)

func key(i int) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Application, Namespace: "argocd", Name: fmt.Sprintf("app-%03d", i)}
}

func event(i, bytes int) stream.Event {
	return stream.Event{
		ID: fmt.Sprint("e-", i), Verb: stream.Apply, Key: stream.EntryKey{Collection: stream.Statuses, Name: key(i).Name}, Data: make([]byte, bytes),
	}
}

// bench is a queue with what it does.
type bench struct {
	*jobs.Queue
	now     time.Time
	started []string
	work    map[stream.ResourceKey]jobs.Work
	given   []string
	waited  []budget.Over
	class   budget.Class
}

func newBench(limits budget.Limits) *bench {
	b := &bench{now: time.Unix(1000, 0), work: map[stream.ResourceKey]jobs.Work{}, class: budget.Other}
	b.Queue = jobs.New(jobs.Config{
		Workers: 2, Budget: budget.NewPeer("edge-1", limits, nil, b.now),
		Class: func(stream.ResourceKey, map[stream.EntryKey]stream.Event) budget.Class { return b.class },
		Size:  func(stream.ResourceKey) int { return 0 },
		Return: func(key stream.ResourceKey, _ map[stream.EntryKey]stream.Event, _ budget.Over) {
			b.given = append(b.given, key.Name)
		},
		Waited: func(over budget.Over) { b.waited = append(b.waited, over) },
	})
	return b
}

// start returns what goes.
func (b *bench) start() []string {
	b.started = nil
	b.Start(b.now, func(key stream.ResourceKey, w jobs.Work) {
		b.started = append(b.started, key.Name)
		b.work[key] = w
	})
	return b.started
}

// end ends the work on an object, which wrote once.
func (b *bench) end(i, bytes int) (over bool) {
	b.Done(key(i), 1, bytes, b.now)
	return b.Finish(key(i))
}

// TestOneJobForEachObject: what comes while work is under way waits for its end, and stops what
// it replaces; no more goes at once than there are workers.
func TestOneJobForEachObject(t *testing.T) {
	b := newBench(budget.DefaultLimits())
	for i := range 3 {
		b.Add(key(i), event(i, 10), "1")
	}
	if diff := cmp.Diff([]string{"app-000", "app-001"}, b.start()); diff != "" {
		t.Fatalf("started with two workers (-want +got):\n%s", diff)
	}
	if !b.Running(key(0)) || b.Running(key(2)) || b.Working() != 2 || b.Ready() != 1 || b.Len() != 3 {
		t.Errorf("running %v, waiting %v: %d under way, %d ready, %d in all", b.Running(key(0)), b.Running(key(2)), b.Working(), b.Ready(), b.Len())
	}
	if running := slices.Collect(b.AllRunning); len(running) != 2 {
		t.Errorf("under way: %v", running)
	}
	newer := b.work[key(0)].Newer[event(0, 0).Key]
	b.Add(key(0), event(0, 20), "2")
	select {
	case <-newer:
	default:
		t.Error("work goes on with an event of which a newer one came")
	}
	b.Add(key(0), event(0, 30), "3")
	if b.end(0, 10) || b.Ready() != 2 {
		t.Error("what came meanwhile does not wait")
	}
	b.start()
	if w := b.work[key(2)]; len(w.Events) != 1 || w.Update || w.Verify {
		t.Errorf("next is %+v", w)
	}
	if !b.end(1, 10) || !b.end(2, 10) {
		t.Error("nothing came meanwhile, and it is not over")
	}
	b.start()
	if w := b.work[key(0)]; len(w.Events[event(0, 0).Key].Data) != 30 || w.Seen[event(0, 0).Key] != "3" {
		t.Errorf("the newest event does not go: %+v", w)
	}
	b.Update(key(0))
	b.Verify(key(0))
	b.Add(key(0), event(0, 40), "4")
	b.DropEvents()
	b.end(0, 10)
	b.start()
	if w := b.work[key(0)]; len(w.Events) != 0 || !w.Update || !w.Verify {
		t.Errorf("of what came meanwhile without its events there is %+v", w)
	}
	if !b.end(0, 0) || b.Len() != 0 {
		t.Error("something is left")
	}
}

// TestQueueSleepsWhileNothingMayBegin: the peer's budget has something again, and what waits
// for it goes when a worker is free, and no sooner.
func TestQueueSleepsWhileNothingMayBegin(t *testing.T) {
	limits := budget.DefaultLimits()
	b := newBench(limits)
	for i := 0; len(b.waited) == 0; i++ {
		if i > 100_000 {
			t.Fatal("the budget is never exceeded")
		}
		b.Add(key(i%500), event(i%500, 200_000), "1")
		for _, name := range b.start() {
			for n := range 500 {
				if key(n).Name == name {
					b.end(n, 200_000)
				}
			}
		}
	}
	if over, delayed := b.Exceeded(b.now); over == budget.OverNothing || delayed == 0 || !b.Delayed() {
		t.Fatalf("over %v with %d delayed", over, delayed)
	}
	due := b.Due()
	if !due.After(b.now) {
		t.Fatalf("something is due at %v, which waits for the budget", due)
	}
	if b.start() != nil {
		t.Error("what waits for the budget goes before its time")
	}
	b.now = due
	if len(b.start()) == 0 {
		t.Error("it does not go at its time")
	}
}

// TestLargeObjectsGoOneAfterTheOther, however many workers are free.
func TestLargeObjectsGoOneAfterTheOther(t *testing.T) {
	b := newBench(budget.DefaultLimits())
	for i := range 2 {
		b.Add(key(i), event(i, 300<<10), "1")
	}
	if got := b.start(); len(got) != 1 || b.Free() {
		t.Errorf("%v go at once", got)
	}
	b.end(0, 300<<10)
	if got := b.start(); len(got) != 1 {
		t.Errorf("after the first %v go", got)
	}
}

// TestGivenBack: of what waits for a budget only so much is kept.
func TestGivenBack(t *testing.T) {
	b := newBench(budget.Limits{Writes: budget.Limit{Rate: 1, Burst: 1}, Bytes: budget.Limit{Rate: 1 << 20, Burst: 1 << 20}})
	const events, most = 300, 128
	for i := range events {
		b.Add(key(i), event(i, 10), "1")
	}
	for len(b.waited) == 0 {
		for _, name := range b.start() {
			for n := range events {
				if key(n).Name == name {
					b.end(n, 10)
				}
			}
		}
	}
	if b.Len() > most || b.Len()+len(b.given) < events-10 {
		t.Errorf("%d wait and %d are given back, of %d", b.Len(), len(b.given), events)
	}
}

// TestDelays: each failure waits twice as long as the one before, half a minute at most.
func TestDelays(t *testing.T) {
	var d jobs.Delays
	now := time.Unix(1000, 0)
	for i, seconds := range []int{1, 2, 4, 8, 16, 30, 30} {
		at, want := d.Failed(key(0), now), time.Duration(seconds)*time.Second
		if at.Sub(now) != want || !d.Waits(key(0)) {
			t.Errorf("failure %d waits for %v", i+1, at.Sub(now))
		}
		if keys, next := d.Expired(at.Add(-time.Millisecond)); len(keys) != 0 || !next.Equal(at) {
			t.Errorf("before its time: %v, next %v", keys, next)
		}
		if keys, next := d.Expired(at); len(keys) != 1 || !next.IsZero() || d.Waits(key(0)) {
			t.Errorf("at its time: %v, next %v", keys, next)
		}
		now = at
	}
	if d.Forget(key(0)); d.Len() != 0 {
		t.Error("it is remembered after it went well")
	}
	if at := d.Failed(key(0), now); at.Sub(now) != time.Second {
		t.Errorf("after it went well the first failure waits for %v", at.Sub(now))
	}
}

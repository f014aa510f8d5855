//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/argomesh/argomesh/test/bench/report"
	"github.com/argomesh/argomesh/test/harness"
)

const (
	// rate is the load under which latency is measured, in changes per second.
	rate = 20
	// rounds is how often a burst is repeated; the median counts.
	rounds = 3
	// burstLimit bounds one burst; far more than it takes, for a machine that does
	// something else as well.
	burstLimit = 10 * time.Minute
)

// realSetup says what scenarios with a hub and a spoke run on.
const realSetup = "Real kube-apiserver and etcd (without fsync) for hub and spoke, our principal and agent binaries, no Argo CD controllers, " +
	"everything and the load on one machine; arrival is the event of a watch at the API server."

// runT2 measures latency and bursts with 1,000 Applications.
func runT2(ctx context.Context, b *bench, s *report.Scenario) (err error) {
	s.Setup = realSetup
	w, err := startBenchEnv(ctx, b, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx, err != nil)) }()
	l, err := newLoad(ctx, w)
	if err != nil {
		return err
	}
	defer l.close()
	apps := names(1000)

	b.say("creating %d Applications", len(apps))
	var took time.Duration
	if err := measurePhase(ctx, s, "burst of creates", w.processes(), func() (err error) {
		took, err = l.createAll(ctx, apps)
		return err
	}); err != nil {
		return err
	}
	s.Target("burst of 1,000 creates, hub to spoke", took.Seconds(), "s", report.AtMost(5), "one round")

	b.say("changes at %d/s for a minute", rate)
	var fromStart, fromReply []time.Duration
	if err := measurePhase(ctx, s, "changes at 20/s", w.processes(), func() (err error) {
		fromStart, fromReply, err = l.latencies(ctx, apps, 60*rate)
		return err
	}); err != nil {
		return err
	}
	s.Target("hub write to spoke object at 20/s, p50", report.Milliseconds(report.Median(fromStart)), "ms", report.AtMost(15), "from before the write to the watch event")
	s.Target("hub write to spoke object at 20/s, p99", report.Milliseconds(report.Quantile(fromStart, 0.99)), "ms", report.AtMost(60), fmt.Sprintf("%d samples", len(fromStart)))
	s.Note("the same from the hub's reply, p50", report.Milliseconds(report.Median(fromReply)), "ms")
	s.Note("the same from the hub's reply, p99", report.Milliseconds(report.Quantile(fromReply, 0.99)), "ms")

	b.say("10 quick updates of each, before there are statuses")
	if err := measurePhase(ctx, s, "10 quick updates of each", w.processes(), func() error { return l.quick(ctx, s, apps) }); err != nil {
		return err
	}

	for _, burst := range []struct {
		what, phase string
		limit       float64
		run         func(context.Context, []string) (time.Duration, error)
	}{
		{"burst of 1,000 updates, hub to spoke", "bursts of updates", 5, l.updateAll},
		{"burst of 1,000 status changes of 5 KiB, spoke to hub", "bursts of status", 10, l.statusAll},
	} {
		b.say("%s, %d rounds", burst.phase, rounds)
		var times []time.Duration
		if err := measurePhase(ctx, s, burst.phase, w.processes(), func() error {
			for range rounds {
				took, err := burst.run(ctx, apps)
				if err != nil {
					return err
				}
				times = append(times, took)
			}
			return nil
		}); err != nil {
			return err
		}
		s.Target(burst.what, report.Median(times).Seconds(), "s", report.AtMost(burst.limit), fmt.Sprintf("median of %d, slowest %s", rounds, report.Quantile(times, 1).Round(10*time.Millisecond)))
	}
	return w.compare(ctx)
}

// load drives an environment and watches what arrives.
type load struct {
	w          *benchEnv
	hub, spoke *view
	revision   int
}

func newLoad(ctx context.Context, w *benchEnv) (*load, error) {
	l := &load{w: w}
	var err error
	l.hub, l.spoke, err = w.views(ctx)
	return l, err
}

func (l *load) close() {
	l.hub.close()
	l.spoke.close()
}

// next returns a revision that was never used.
func (l *load) next() string {
	l.revision++
	return revision(l.revision)
}

// burst makes one change to each Application as fast as it can, and returns the time
// until the last arrived.
func (l *load) burst(ctx context.Context, at *view, field func(seen) string, want map[string]string, apps []string, change func(ctx context.Context, name string) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, burstLimit)
	defer cancel()
	x := at.expect(field, want)
	begun := time.Now()
	if err := each(ctx, apps, change); err != nil {
		return 0, err
	}
	last, err := x.wait(ctx)
	return last.Sub(begun), err
}

func (l *load) createAll(ctx context.Context, apps []string) (time.Duration, error) {
	r := l.next()
	return l.burst(ctx, l.spoke, ofSpec, all(apps, r), apps, func(ctx context.Context, name string) error {
		return create(ctx, l.w.onHub, application(name, l.w.mapping.namespace(edge), edge, r))
	})
}

func (l *load) updateAll(ctx context.Context, apps []string) (time.Duration, error) {
	r := l.next()
	return l.burst(ctx, l.spoke, ofSpec, all(apps, r), apps, func(ctx context.Context, name string) error {
		return setRevision(ctx, l.w.onHub, name, r)
	})
}

func (l *load) statusAll(ctx context.Context, apps []string) (time.Duration, error) {
	r := l.next()
	return l.burst(ctx, l.hub, ofStatus, all(apps, r), apps, func(ctx context.Context, name string) error {
		return setStatus(ctx, l.w.onSpoke, name, r)
	})
}

// latencies makes n changes at the rate, one Application after the other, and returns
// how long each took from before the write, and from its reply.
func (l *load) latencies(ctx context.Context, apps []string, n int) (fromStart, fromReply []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(n)*time.Second/rate+time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	var writes sync.WaitGroup
	defer writes.Wait()
	var mu sync.Mutex // guards the results
	var failures []error
	for i := range n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
		name, r := apps[i%len(apps)], l.next()
		writes.Go(func() {
			x := l.spoke.expect(ofSpec, map[string]string{name: r})
			begun := time.Now()
			err := setRevision(ctx, l.w.onHub, name, r)
			replied := time.Now()
			var arrived time.Time
			if err == nil {
				arrived, err = x.wait(ctx)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures = append(failures, err)
				return
			}
			fromStart = append(fromStart, arrived.Sub(begun))
			fromReply = append(fromReply, max(arrived.Sub(replied), 0))
		})
	}
	writes.Wait()
	return fromStart, fromReply, errors.Join(failures...)
}

// quick changes each Application ten times without waiting, and counts what reached
// the spoke.
func (l *load) quick(ctx context.Context, s *report.Scenario, apps []string) error {
	const times = 10
	applied := func() (float64, error) {
		return counter(ctx, l.w.agent.AdminAddress, "argomesh_mirror_events_total",
			map[string]string{"direction": "received", "kind": "application", "result": "applied"})
	}
	before, err := applied()
	if err != nil {
		return err
	}
	writes, lists := l.spoke.count()
	var revisions [times]string
	for i := range revisions {
		revisions[i] = l.next()
	}
	took, err := l.burst(ctx, l.spoke, ofSpec, all(apps, revisions[times-1]), apps, func(ctx context.Context, name string) error {
		for _, r := range revisions {
			if err := setRevision(ctx, l.w.onHub, name, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	writesAfter, listsAfter := l.spoke.count()
	if listsAfter != lists {
		return errors.New("the API server ended the watch that counts the writes")
	}
	writes = writesAfter - writes
	// The agent counts a pass when its write was answered, which is after the event.
	var passes float64
	counted, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := harness.Eventually(counted, "the last passes are counted", func() error {
		after, err := applied()
		if err != nil {
			return err
		}
		if passes = after - before; passes < float64(writes) {
			return fmt.Errorf("%.0f passes for %d writes", passes, writes)
		}
		return nil
	}); err != nil && counted.Err() == nil {
		return err
	}
	s.Target("10 quick updates of each of 1,000: writes on the spoke for each pass", float64(writes)/passes, "", report.AtMost(1),
		fmt.Sprintf("%d writes in %.0f passes for %d changes", writes, passes, times*len(apps)))
	s.Note("10 quick updates of each of 1,000: until the last is through", took.Seconds(), "s")
	return nil
}

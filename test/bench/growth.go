//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/test/harness"
)

// quietTime is how long a connection must carry nothing to count as settled; less
// than the time between heartbeats.
const quietTime = time.Second

// runGrowth measures how latency, an unchanged reconnect, memory and CPU grow with
// the number of Applications.
func runGrowth(ctx context.Context, b *bench, s *Scenario) (err error) {
	s.Setup = realSetup + " Each Application has a status of 5 KiB. The Agent has the limits of a large hub."
	w, err := startBenchEnv(ctx, b, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx, err != nil)) }()
	agents := w.hub.Resource(v1alpha1.AgentResource, harness.ArgoCDNamespace)
	if err := merge(ctx, agents, edge, map[string]any{"spec": map[string]any{"limits": largeAgent()}}); err != nil {
		return err
	}
	l, err := newLoad(ctx, w)
	if err != nil {
		return err
	}
	defer l.close()
	have := 0
	for _, n := range []int{100, 1000, 10000} {
		what := thousands(n) + " Applications"
		apps := names(n)
		b.say("growing to %s", what)
		if err := s.measure(ctx, what+": growing", w.processes(), func() error {
			took, err := l.createAll(ctx, apps[have:])
			if err != nil {
				return err
			}
			s.note(what+": creating the last "+thousands(n-have), took.Seconds(), "s")
			took, err = l.statusAll(ctx, apps[have:])
			s.note(what+": the first status of each of those", took.Seconds(), "s")
			return err
		}); err != nil {
			return err
		}
		have = n

		b.say("changes at %d/s", rate)
		var times, fromReply []time.Duration
		if err := s.measure(ctx, what+": changes at 20/s", w.processes(), func() (err error) {
			times, fromReply, err = l.latencies(ctx, apps, 20*rate)
			return err
		}); err != nil {
			return err
		}
		s.note(what+": hub write to spoke object at 20/s, p50", milliseconds(median(times)), "ms")
		s.note(what+": hub write to spoke object at 20/s, p99", milliseconds(quantile(times, 0.99)), "ms")
		s.note(what+": the same from the hub's reply, p50", milliseconds(median(fromReply)), "ms")
		s.note(what+": the same from the hub's reply, p99", milliseconds(quantile(fromReply, 0.99)), "ms")

		b.say("unchanged reconnects")
		p, err := w.reconnect(ctx)
		if err != nil {
			return err
		}
		s.note(what+": unchanged reconnect", milliseconds(p.took), "ms", "from TCP connect to the last byte")
		s.note(what+": unchanged reconnect, bytes", float64(p.bytes), "B", "both ways, TLS handshake included")

		b.say("idle")
		if err := s.measure(ctx, what+": idle", w.processes(), func() error { return idle(ctx, 15*time.Second) }); err != nil {
			return err
		}
	}
	return w.compare(ctx)
}

// reconnect severs the agent's connection three times and returns what the median of
// the new ones carried until it was quiet.
func (w *benchEnv) reconnect(ctx context.Context) (passed, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var some []passed
	var times []time.Duration
	for range rounds {
		n := w.network.traffic.count()
		w.network.Sever()
		p, err := w.network.traffic.settled(ctx, n, quietTime)
		if err != nil {
			return passed{}, err
		}
		some, times = append(some, p), append(times, p.took)
	}
	for _, p := range some {
		if p.took == median(times) {
			return p, nil
		}
	}
	return passed{}, errors.New("no reconnect took the median time") // the median is one of them
}

// idle lets time pass: what is measured is what happens without a reason.
func idle(ctx context.Context, d time.Duration) error {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// thousands writes n for people.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

//go:build linux

package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/argomesh/argomesh/test/bench/report"
)

// unchangedReconnect is T4: what a reconnect costs when nothing changed.
func unchangedReconnect() atSizes[*memoryPair] {
	return atSizes[*memoryPair]{
		setup: "Real mirrors, stream server and client with mutual TLS over loopback, stores in memory, in one process; 10,000 Applications with a short status. " +
			"Bytes are counted between TLS and HTTP/2, both ways, from the dial until nothing passes for a second.",
		start: startMemoryPair, sizes: []int{10000},
		parts: []func(context.Context, sized[*memoryPair]) error{filled, cheapReconnect},
	}
}

// idleAgent is T5: what an agent takes when nothing happens.
func idleAgent() atSizes[*realPair] {
	return atSizes[*realPair]{
		setup: realSetup + " 1,000 Applications with a status of 5 KiB each; then a minute in which nothing changes.",
		start: startRealPair, sizes: []int{1000},
		parts: []func(context.Context, sized[*realPair]) error{filling, idleMinute, restartedAgent},
	}
}

// growth is how latency, an unchanged reconnect, memory and CPU grow.
func growth() atSizes[*realPair] {
	return atSizes[*realPair]{
		setup: realSetup + " Each Application has a status of 5 KiB. The Agent has the limits of a large hub.",
		start: startLargePair, sizes: []int{100, 1000, 10000},
		parts: []func(context.Context, sized[*realPair]) error{growing, changes, medianReconnect, atRest},
	}
}

// filled makes the Applications, which is not measured.
func filled(ctx context.Context, z sized[*memoryPair]) error {
	z.b.say("filling the stores")
	_, _, err := z.pair.fill(ctx, z.added)
	return err
}

// cheapReconnect holds reconnects to their targets.
func cheapReconnect(ctx context.Context, z sized[*memoryPair]) error {
	var all []passed
	if err := z.measure(ctx, "reconnects", func() (err error) {
		all, err = reconnects(ctx, z.pair, 5)
		return err
	}); err != nil {
		return err
	}
	most := slices.MaxFunc(all, func(a, b passed) int { return cmp.Compare(a.bytes, b.bytes) })
	slowest := slices.MaxFunc(all, func(a, b passed) int { return cmp.Compare(a.took, b.took) })
	z.s.Target("unchanged reconnect, frames", float64(most.bytes), "B", report.AtMost(4<<10), "the most of 5, HTTP/2 settings and gRPC headers included")
	z.s.Target("unchanged reconnect, time", slowest.took.Seconds(), "s", report.AtMost(1), "the slowest of 5, TLS handshake included; back-off before the dial not")
	return nil
}

// filling makes the Applications.
func filling(ctx context.Context, z sized[*realPair]) error {
	return z.measure(ctx, "filling", func() error {
		_, _, err := z.pair.fill(ctx, z.added)
		return err
	})
}

// idleMinute holds an agent in which nothing happens to its targets.
func idleMinute(ctx context.Context, z sized[*realPair]) error {
	return idlePhase(ctx, z, "idle minute")
}

// restartedAgent is idleMinute after a start of the agent.
func restartedAgent(ctx context.Context, z sized[*realPair]) error {
	if err := z.pair.agent.Restart(ctx); err != nil {
		return err
	}
	if _, err := z.pair.load.updateAll(ctx, z.apps[:1]); err != nil { // it is connected again
		return err
	}
	return idlePhase(ctx, z, "idle minute after a start")
}

func idlePhase(ctx context.Context, z sized[*realPair], phase string) error {
	if err := z.measure(ctx, phase, func() error { return idle(ctx, time.Minute) }); err != nil {
		return err
	}
	for _, u := range z.s.Processes {
		if u.Process == "agent" && u.Phase == phase {
			z.s.Target("agent, resident, "+phase, u.ResidentMiB, "MiB", report.AtMost(64), "proportional set size "+report.Quantity(u.ProportionalMiB, "MiB"))
			z.s.Target("agent, CPU, "+phase, u.CPUPercent, "%", report.AtMost(2), "of one core")
		}
	}
	return nil
}

// growing makes the Applications that are more.
func growing(ctx context.Context, z sized[*realPair]) error {
	var created, shown time.Duration
	if err := z.measure(ctx, z.what()+": growing", func() (err error) {
		created, shown, err = z.pair.fill(ctx, z.added)
		return err
	}); err != nil {
		return err
	}
	z.s.Note(z.what()+": creating the last "+report.Thousands(len(z.added)), created.Seconds(), "s")
	z.s.Note(z.what()+": the first status of each of those", shown.Seconds(), "s")
	return nil
}

// changes tells how late single changes are.
func changes(ctx context.Context, z sized[*realPair]) error {
	var times, fromReply []time.Duration
	if err := z.measure(ctx, z.what()+": changes at 20/s", func() (err error) {
		times, fromReply, err = z.pair.load.latencies(ctx, z.apps, 20*rate)
		return err
	}); err != nil {
		return err
	}
	z.s.Note(z.what()+": hub write to spoke object at 20/s, p50", report.Milliseconds(report.Median(times)), "ms")
	z.s.Note(z.what()+": hub write to spoke object at 20/s, p99", report.Milliseconds(report.Quantile(times, 0.99)), "ms")
	z.s.Note(z.what()+": the same from the hub's reply, p50", report.Milliseconds(report.Median(fromReply)), "ms")
	z.s.Note(z.what()+": the same from the hub's reply, p99", report.Milliseconds(report.Quantile(fromReply, 0.99)), "ms")
	return nil
}

// medianReconnect tells what the median of the unchanged reconnects took.
func medianReconnect(ctx context.Context, z sized[*realPair]) error {
	z.b.say("unchanged reconnects")
	all, err := reconnects(ctx, z.pair, rounds)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b passed) int { return cmp.Compare(a.took, b.took) })
	median := all[len(all)/2]
	z.s.Note(z.what()+": unchanged reconnect", report.Milliseconds(median.took), "ms", "from TCP connect to the last byte")
	z.s.Note(z.what()+": unchanged reconnect, bytes", float64(median.bytes), "B", "both ways, TLS handshake included")
	return nil
}

// atRest tells what processes take while nothing happens.
func atRest(ctx context.Context, z sized[*realPair]) error {
	return z.measure(ctx, z.what()+": idle", func() error { return idle(ctx, 15*time.Second) })
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/test/bench/report"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/kit"
)

// restTime is how long processes rest before their memory is looked at: Go collects
// what is not in use every two minutes at the latest, and gives it back thereafter.
const restTime = 150 * time.Second

// runT3 measures what an agent that is connected and does nothing takes at the
// principal.
func runT3(ctx context.Context, b *bench, s *report.Scenario) (err error) {
	const agents = 1000
	s.Setup = fmt.Sprintf("Real kube-apiserver and etcd for the hub, our principal with live access and its Envoy. %d simulated agents without Applications, each with the real sync "+
		"stream over one TLS connection and the real tunnel with its two spare streams over another, in one process. Resident memory is that after %s in which nothing happens.", agents, restTime)
	w, err := startBenchEnvWith(ctx, b, false, startFrontDoor)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx, err != nil)) }()
	processes := []subject{{"principal", w.principal.PID}, {"envoy", w.envoy.PID}, self("agents")}
	resting := func(phase string) (r memories, err error) {
		b.say("%s: resting", phase)
		if err := measurePhase(ctx, s, phase, processes, func() error { return idle(ctx, restTime) }); err != nil {
			return r, err
		}
		last := s.Processes[len(s.Processes)-len(processes):]
		r.principal, r.envoy, r.self = last[0].ResidentMiB, last[1].ResidentMiB, last[2].ResidentMiB
		for name, into := range map[string]*float64{
			"go_goroutines": &r.goroutines, "go_memstats_stack_inuse_bytes": &r.stacks, "go_memstats_heap_inuse_bytes": &r.heap,
		} {
			if *into, err = counter(ctx, w.principal.AdminAddress, name, nil); err != nil {
				return r, err
			}
		}
		return r, nil
	}
	empty, err := resting("no agent")
	if err != nil {
		return err
	}
	b.say("registering %d agents", agents)
	names := agentNames(agents)
	l, err := newLiveSpokes(ctx, w, names)
	if err != nil {
		return err
	}
	ca, err := newAuthority(w.caDir)
	if err != nil {
		return err
	}
	c, err := newCrowd(w, ca, names)
	if err != nil {
		return err
	}
	registered, err := resting("registered")
	if err != nil {
		return err
	}
	b.say("connecting them")
	stop := kit.Start(ctx, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return c.run(ctx) })
		g.Go(func() error { return l.open(ctx, 0, agents) })
		return g.Wait()
	})
	defer func() { err = errors.Join(err, stop()) }()
	if err := c.connected.wait(ctx); err != nil {
		return err
	}
	const spares = 2 // of each
	if err := harness.Eventually(ctx, "all spare streams", func() error {
		n, err := counter(ctx, w.principal.AdminAddress, "argomesh_tunnel_spare_streams", nil)
		if err == nil && n < spares*agents {
			err = fmt.Errorf("there are %v", n)
		}
		return err
	}); err != nil {
		return err
	}
	connected, err := resting("connected")
	if err != nil {
		return err
	}
	each := func(mebibytes float64) float64 { return mebibytes * 1024 / agents }
	s.Target("principal, for each agent", each(connected.principal-empty.principal), "KiB", report.AtMost(200), "resident, beyond a principal without agents")
	s.Note("of that for its registration", each(registered.principal-empty.principal), "KiB", "Agent, namespace, cluster Secret, token, mirror")
	s.Note("of that for its connections", each(connected.principal-registered.principal), "KiB", "sync stream, tunnel with two spare streams")
	s.Note("heap in use for the connections", (connected.heap-registered.heap)/1024/agents, "KiB", "by Go's own account, what is not collected yet included")
	s.Note("stacks in use for the connections", (connected.stacks-registered.stacks)/1024/agents, "KiB",
		fmt.Sprintf("of %.1f goroutines", (connected.goroutines-registered.goroutines)/agents))
	s.Note("Envoy, for each agent", each(connected.envoy-empty.envoy), "KiB")
	s.Note("agents' end of the connections, each", each(connected.self-registered.self), "KiB", "stream client, mirror without Applications, tunnel")
	return nil
}

// memories are what processes have while nothing happens.
type memories struct {
	principal, envoy, self   float64 // resident, in MiB
	goroutines, stacks, heap float64 // of the principal; in bytes
}

//go:build linux

package main

import (
	"context"
	"errors"
	"time"

	"github.com/argomesh/argomesh/test/bench/report"
)

// pair is a hub and an agent that are measured at numbers of Applications.
type pair interface {
	// fill makes Applications on the hub, and a status of each on the spoke, and returns how
	// long each took until the other side had the last.
	fill(ctx context.Context, apps []string) (created, shown time.Duration, err error)
	// traffic is what their connections carry, and sever ends the one there is.
	traffic() *traffic
	sever()
	// processes are those whose use is reported.
	processes() []subject
	// compare returns an error when the sides differ.
	compare(ctx context.Context) error
	close(ctx context.Context, failed bool) error
}

// atSizes is a scenario that measures a pair at numbers of Applications.
type atSizes[P pair] struct {
	setup string
	start func(context.Context, *bench) (P, error)
	// sizes are the numbers of Applications, the smallest first.
	sizes []int
	// parts are measured at each size, in order. The first makes the Applications.
	parts []func(context.Context, sized[P]) error
}

// sized is a pair at one of the sizes.
type sized[P pair] struct {
	pair P
	b    *bench
	s    *report.Scenario
	// apps are all Applications, and added those that the size before did not have.
	apps, added []string
}

// what begins the name of a result.
func (z sized[P]) what() string { return report.Thousands(len(z.apps)) + " Applications" }

// measure runs f as a phase.
func (z sized[P]) measure(ctx context.Context, phase string, f func() error) error {
	z.b.say("%s", phase)
	return measurePhase(ctx, z.s, phase, z.pair.processes(), f)
}

// run measures all sizes. In the end both sides are the same.
func (a atSizes[P]) run(ctx context.Context, b *bench, s *report.Scenario) (err error) {
	s.Setup = a.setup
	p, err := a.start(ctx, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close(ctx, err != nil)) }()
	have := 0
	for _, n := range a.sizes {
		apps := names(n)
		z := sized[P]{pair: p, b: b, s: s, apps: apps, added: apps[have:]}
		have = n
		for _, part := range a.parts {
			if err := part(ctx, z); err != nil {
				return err
			}
		}
	}
	return p.compare(ctx)
}

const (
	// quietTime is how long a connection must carry nothing to count as settled; less than
	// the time between heartbeats.
	quietTime = time.Second
	// reconnectLimit bounds one reconnect, its back-off included.
	reconnectLimit = time.Minute
)

// reconnects severs the connection n times, and returns what the new ones carried until they
// were quiet.
func reconnects(ctx context.Context, p pair, n int) ([]passed, error) {
	all := make([]passed, n)
	for i := range all {
		limited, cancel := context.WithTimeout(ctx, reconnectLimit)
		before := p.traffic().count()
		p.sever()
		var err error
		all[i], err = p.traffic().settled(limited, before, quietTime)
		cancel()
		if err != nil {
			return nil, err
		}
	}
	return all, nil
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

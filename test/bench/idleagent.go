//go:build linux

package main

import (
	"context"
	"errors"
	"time"
)

// runT5 measures an idle agent with 1,000 Applications.
func runT5(ctx context.Context, b *bench, s *Scenario) (err error) {
	s.Setup = realSetup + " 1,000 Applications with a status of 5 KiB each; then a minute in which nothing changes."
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
	b.say("creating %d Applications with status", len(apps))
	if err := s.measure(ctx, "filling", w.processes(), func() error {
		if _, err := l.createAll(ctx, apps); err != nil {
			return err
		}
		_, err := l.statusAll(ctx, apps)
		return err
	}); err != nil {
		return err
	}
	b.say("idle for a minute")
	if err := s.measure(ctx, "idle minute", w.processes(), func() error { return idle(ctx, time.Minute) }); err != nil {
		return err
	}
	if err := w.compare(ctx); err != nil {
		return err
	}
	b.say("the same after a start of the agent")
	if err := w.agent.Restart(ctx); err != nil {
		return err
	}
	if _, err := l.updateAll(ctx, apps[:1]); err != nil { // it is connected again
		return err
	}
	if err := s.measure(ctx, "idle minute after a start", w.processes(), func() error { return idle(ctx, time.Minute) }); err != nil {
		return err
	}
	for _, u := range s.Processes {
		if u.Process != "agent" || u.Phase == "filling" {
			continue
		}
		s.target("agent, resident, "+u.Phase, u.ResidentMiB, "MiB", atMost(64), "proportional set size "+quantity(u.ProportionalMiB, "MiB"))
		s.target("agent, CPU, "+u.Phase, u.CPUPercent, "%", atMost(2), "of one core")
	}
	return nil
}

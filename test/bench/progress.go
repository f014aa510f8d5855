//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/argomesh/argomesh/test/bench/report"
)

const (
	// tellInterval is how often a person is told how far something long is.
	tellInterval = 10 * time.Second
	// stallTime is how long something long may come no further before it counts as
	// stuck. How long it takes in all depends on what else the machine does.
	stallTime = 3 * time.Minute
)

// persistently calls f until it succeeds or ctx is done, once a second: what a busy
// machine's API server did not answer is asked again.
func (b *bench) persistently(ctx context.Context, f func(context.Context) error) error {
	for {
		err := f(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		b.say("trying again: %v", err)
		if idle(ctx, time.Second) != nil {
			return err
		}
	}
}

// moving calls f, tells every tellInterval how far it is, of total, and ends its context
// when count has stood still for stallTime. count may be called concurrently.
func (b *bench) moving(ctx context.Context, what string, total int, count func() int, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(watched)
		look := time.NewTicker(tellInterval)
		defer look.Stop()
		last, moved := count(), time.Now()
		for {
			select {
			case <-done:
				return
			case <-look.C:
			}
			switch n := count(); {
			case n != last:
				last, moved = n, time.Now()
				b.say("%s: %s of %s", what, report.Thousands(n), report.Thousands(total))
			case time.Since(moved) >= stallTime:
				cancel(fmt.Errorf("%s stands still at %s of %s for %s", what, report.Thousands(n), report.Thousands(total), stallTime))
				return
			}
		}
	}()
	err := f(ctx)
	close(done)
	<-watched
	if stuck := context.Cause(ctx); err != nil && stuck != nil {
		err = fmt.Errorf("%w: %w", stuck, err)
	}
	cancel(nil)
	return err
}

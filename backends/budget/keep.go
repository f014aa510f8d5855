package budget

import (
	"context"
	"time"
)

// keepInterval is how often what is left of a budget is written, so that a process that
// starts has no new burst.
const keepInterval = time.Minute

// Keep writes each minute, until ctx is done, what is left of a budget where that differs from
// what was written: unsaid returns it, and whether it does. A write that fails is told and
// follows in the next minute.
func Keep[L any](ctx context.Context, unsaid func(said L, now time.Time) (next L, due bool),
	write func(context.Context, L) error, failed func(error)) error {
	again := time.NewTicker(keepInterval)
	defer again.Stop()
	var said L
	for {
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
		next, due := unsaid(said, time.Now())
		if !due {
			continue
		}
		if err := write(ctx, next); err == nil {
			said = next
		} else if ctx.Err() == nil {
			failed(err)
		}
	}
}

package budget

import (
	"context"
	"time"
)

// saveInterval is how often what is left of a budget is written, so that a process that
// starts has no new burst.
const saveInterval = time.Minute

// SavePeriodically writes each minute, until ctx is done, what is left of a budget where that
// differs from what was written: next returns it, and whether it does. A write that fails is reported to
// failed, and follows in the next minute.
func SavePeriodically[L any](ctx context.Context, next func(written L, now time.Time) (level L, due bool),
	write func(context.Context, L) error, failed func(error)) error {
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	var written L
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		level, due := next(written, time.Now())
		if !due {
			continue
		}
		if err := write(ctx, level); err == nil {
			written = level
		} else if ctx.Err() == nil {
			failed(err)
		}
	}
}

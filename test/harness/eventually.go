//go:build linux

package harness

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Patience bounds the wait for a condition that comes when all is well. It is there so that a
// test ends, and says nothing about how long something may take: where other machines have a
// share of the processors, all tests together once took three times as long.
const Patience = 15 * time.Minute

const (
	// pollFirst is between two looks at a condition in the beginning, and pollMost when
	// it has long been waited for; in between it is a pollPart of the time it took so
	// far. Each look is cheap, but a hundred tests wait at a time.
	pollFirst = 50 * time.Millisecond
	pollMost  = 500 * time.Millisecond
	pollPart  = 10
)

// Eventually calls check until it returns nil. When ctx ends first (after [Patience]
// if it has no deadline) the error says what was waited for and wraps the
// last error of check. check gets ctx by closure and should respect it. What held for a
// tenth of the time that was waited for it, or for half a second, is seen.
func Eventually(ctx context.Context, what string, check func() error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, Patience)
		defer cancel()
	}
	begin := time.Now()
	var last error
	for {
		err := check()
		if err == nil {
			return nil
		}
		// A check cut short by ctx says less than the one before.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		var p permanentError
		if errors.As(err, &p) {
			return fmt.Errorf("wait for %s: %w", what, p.err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s, %s: %w: %w", what, time.Since(begin).Round(time.Millisecond), context.Cause(ctx), last)
		case <-time.After(min(max(pollFirst, time.Since(begin)/pollPart), pollMost)):
		}
	}
}

// Permanent wraps an error after which Eventually gives up at once.
func Permanent(err error) error { return permanentError{err} }

type permanentError struct{ err error }

func (p permanentError) Error() string { return p.err.Error() }
func (p permanentError) Unwrap() error { return p.err }

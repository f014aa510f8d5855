//go:build linux

package harness

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEventually(t *testing.T) {
	notYet := errors.New("not yet")
	for name, c := range map[string]struct {
		deadline time.Duration // zero: none
		holds    time.Duration // when the condition holds; negative: never
		fatal    bool
		want     error
		took     time.Duration
	}{
		"holds at once":                 {took: 0},
		"holds later":                   {holds: time.Second, took: time.Second},
		"the deadline comes first":      {deadline: 500 * time.Millisecond, holds: time.Second, want: context.DeadlineExceeded, took: 500 * time.Millisecond},
		"it is bounded in every case":   {holds: -1, want: context.DeadlineExceeded, took: Patience},
		"a permanent failure ends it":   {holds: -1, fatal: true, want: notYet},
		"the last error is in the text": {deadline: time.Second, holds: -1, want: notYet, took: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				begin := time.Now()
				err := Eventually(ctx, "the condition", func() error {
					if c.holds >= 0 && time.Since(begin) >= c.holds {
						return nil
					}
					if c.fatal {
						return Permanent(notYet)
					}
					return notYet
				})
				if !errors.Is(err, c.want) {
					t.Errorf("Eventually() = %v, want %v", err, c.want)
				}
				if err != nil && !strings.Contains(err.Error(), "the condition") {
					t.Errorf("Eventually() = %v, which does not say what was waited for", err)
				}
				if took := time.Since(begin); took < c.took || took > c.took+c.took/pollPart {
					t.Errorf("Eventually() took %s, want %s, and a tenth more at most", took, c.took)
				}
			})
		})
	}
}

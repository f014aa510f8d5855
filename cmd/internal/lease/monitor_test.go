package lease_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// The API server is restored to a state of a minute before, under the same address, and
// its revisions go on from there or far beyond.
func TestTellsOfARestore(t *testing.T) {
	for name, bump := range map[string]int{"revisions go back": 0, "revisions are bumped": 1000} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLeaseEnv(t)
				var told []time.Time
				a := w.start("a", func(p *process) { p.restored = func(since time.Time) { told = append(told, since) } })
				w.until(a, time.Second)
				pass(time.Minute)
				backup := w.server.snapshot()
				pass(time.Minute)
				if len(told) > 0 {
					t.Fatal("it tells of a restore before there is one")
				}
				before := time.Now()
				w.server.restore(backup, bump)
				pass(attemptTime)
				if len(told) != 1 || told[0].After(before) || before.Sub(told[0]) > attemptTime {
					t.Fatalf("told of restores since %v, want one after a renewal before %v", told, before)
				}
				pass(time.Hour)
				if len(told) != 1 || w.active() != a {
					t.Errorf("an hour later told %d times, active: %v", len(told), w.active() == a)
				}
				a.stop()
				a.ended(t)
			})
		})
	}
}

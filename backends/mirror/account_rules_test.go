package mirror

import (
	"testing"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// TestLoopSleepsWhileNoWorkerIsFree: the peer's budget has something again, and what waits
// for it goes when a worker is free. The loop does not turn until then.
func TestLoopSleepsWhileNoWorkerIsFree(t *testing.T) {
	l := newLoop(&Mirror{cfg: Config{Rules: ruleSet(t, stream.Hub, stream.Managed), Workers: 2}})
	l.account.wake = time.Now().Add(-time.Second)
	l.working = 1
	if got := l.sleep(); got != 0 {
		t.Errorf("with a free worker it sleeps for %v", got)
	}
	l.working = 2
	if got := l.sleep(); got == 0 {
		t.Error("without a free worker it does not sleep")
	}
	l.working, l.account.underWay = 1, maxUnderWay
	if got := l.sleep(); got == 0 {
		t.Error("with as much under way as may be it does not sleep")
	}
}

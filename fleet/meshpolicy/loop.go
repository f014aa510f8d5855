package meshpolicy

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/internal/pause"
	"github.com/argomesh/argomesh/mesh/objects"
)

const (
	// gatherInterval is how soon after one pass the next may begin, so that many Agents
	// that come at once cost a few writes: each may make proxies drain connections.
	gatherInterval = 2 * time.Second
	// passTimeout bounds one pass.
	passTimeout = time.Minute
	// retryFirst and retryMost bound the pause after a pass that failed.
	retryFirst = time.Second
	retryMost  = 30 * time.Second
	// failuresTolerated is how many passes fail before the Agents say so: a moment's
	// trouble with the API server is not worth a write for each of them.
	failuresTolerated = 2
)

// loop is one run of a Controller.
type loop struct {
	cfg         Config
	metrics     *metrics
	log         zerolog.Logger
	reconcilers []*partReconciler
	conditions  *conditions
	changed     notify.Signal // of size 1: something of the mesh's objects changed
	// failures counts the passes that failed since one did not.
	failures int
}

func newLoop(cfg Config, m *metrics) *loop {
	l := &loop{cfg: cfg, metrics: m, log: cfg.Log, changed: notify.NewSignal(), conditions: newConditions(cfg)}
	for _, part := range cfg.Parts {
		l.reconcilers = append(l.reconcilers, newPartReconciler(cfg, part, m, l.requeue))
	}
	return l
}

// requeue asks for a pass.
func (l *loop) requeue() {
	l.changed.Notify()
}

func (l *loop) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, k := range l.reconcilers {
		for _, s := range k.caches {
			running.Go(func() { s.Run(ctx) })
		}
	}
	for {
		registryChanged := l.cfg.Registry.Changed()
		again, err := l.pass(ctx)
		pause := gatherInterval
		if err != nil && ctx.Err() == nil {
			if l.failures == 0 {
				l.log.Warn().Err(err).Msg("mesh policy is out of step, retrying")
			}
			pause = max(gatherInterval, min(retryFirst<<min(l.failures, 10), retryMost))
			again = pause
			l.failures++
		} else {
			l.failures = 0
		}
		if !l.wait(ctx, pause, again, registryChanged) {
			return
		}
	}
}

// wait returns when a pass is due: after pause, once something changed, or after again
// unless that is zero. It returns false when ctx is done.
func (l *loop) wait(ctx context.Context, pause, again time.Duration, registryChanged <-chan struct{}) bool {
	gathered := time.NewTimer(pause)
	defer gathered.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-gathered.C:
	}
	var due <-chan time.Time
	if again > 0 {
		timer := time.NewTimer(max(again-pause, 0))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-registryChanged:
	case <-l.changed:
	case <-due:
	}
	return true
}

// pass compares everything once, writes what is to be written, and tells the Agents. It
// says how soon to look again, zero for not before something changes.
func (l *loop) pass(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	if len(l.reconcilers) == 0 {
		return 0, l.conditions.withdraw(ctx)
	}
	if l.cfg.Registry.Ready() != nil {
		return 0, nil // its first Set is a change
	}
	admitted := l.cfg.Registry.Admitted()
	var (
		again    time.Duration
		failed   error
		findings []finding
	)
	for _, k := range l.reconcilers {
		f, soon, known := k.pass(ctx, admitted)
		if !known {
			return 0, nil // the first list is a change
		}
		findings = append(findings, f)
		again = pause.Shorter(again, soon)
		if f.err != nil && failed == nil {
			failed = f.err
		}
	}
	if failed != nil && l.failures < failuresTolerated {
		return again, failed
	}
	if err := l.conditions.writeAll(ctx, l.cfg.Registry.Agents(), findings); err != nil && failed == nil {
		failed = err
	}
	return again, failed
}

// finding is what a pass over one part found out.
type finding struct {
	// err is why the objects could not be read or written.
	err error
	// refused says why the mesh can keep nothing for an agent, by agent.
	refused map[identity.AgentName]error
	// differences are those that are there after the pass.
	differences []objects.Difference
}

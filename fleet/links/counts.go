package links

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/fleet/sessions"
	"github.com/argomesh/argomesh/identity"
)

// statsInterval is how often the counts of connected agents are taken.
const statsInterval = 10 * time.Second

// updateCounts reads the counts of connected agents until ctx is done: of all every
// statsInterval, and at once of those of whose history something has become known. It is
// apart from Run, for a link that is busy answers late, and new Agents do not wait for that.
func (l *Links) updateCounts(ctx context.Context) {
	stats := time.NewTicker(statsInterval)
	defer stats.Stop()
	for {
		select {
		case <-l.historyChanged.Signal:
			// A new history, and what is held back, are not to wait for the next count.
			l.countAll(ctx, l.historyChanged.Drain())
		case <-stats.C:
			if Synced(l.cfg.Store) == nil {
				l.countAll(ctx, slices.Collect(maps.Keys(l.all())))
			}
		case <-ctx.Done():
			return
		}
	}
}

// countAll asks all links at once: one that is busy does not keep us from the others.
func (l *Links) countAll(ctx context.Context, names []identity.AgentName) {
	var counts sync.WaitGroup
	for _, name := range names {
		counts.Go(func() { l.count(ctx, name) })
	}
	counts.Wait()
}

// count takes the counts of an agent, if it is connected.
func (l *Links) count(ctx context.Context, name identity.AgentName) {
	r := l.link(name)
	if r == nil || !l.cfg.Sessions.Connected(name) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if stats, err := r.mirror.Stats(ctx); err == nil { // else its store has not synced yet
		var elsewhere controller.ChildrenElsewhere
		stats.Parked, elsewhere = splitParked(r.rules, stats.Parked)
		l.cfg.Sessions.Count(name, r.rules.Local, stats, elsewhere, sessions.LeftOf(r.budget, time.Now()))
	}
}

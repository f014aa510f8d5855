package mirror

import (
	"context"
	"errors"
)

// Sizes returns how many things the loop remembers, by what they are; only those
// that are not none.
func (m *Mirror) Sizes(ctx context.Context) (map[string]int, error) {
	reply := make(chan map[string]int, 1)
	if !m.do(ctx, func(l *loop) {
		queued := 0
		if l.session != nil {
			queued = len(l.session.queue)
		}
		sizes := map[string]int{
			"jobs": l.jobs.Len(), "ready": l.jobs.Ready(), "resting": l.jobs.Postponed(), "ahead": l.view.Len(), "replies": len(l.inbox.replies), "taken": len(l.inbox.taken),
			"refusals": len(l.answers.refusals), "gone": len(l.answers.gone), "failures": len(l.commands.failures), "waiting": len(l.commands.waiting), "stale": len(l.commands.stale),
			"born": len(l.commands.spokeOperations), "asked": len(l.commands.asked), "causes": len(l.source.outbox.sentTraces), "effects": len(l.source.outbox.appliedTraces), "later": l.work.later.Len(),
			"tidings": l.events.relay.Len(), "pulses": len(l.source.outbox.statusDigests), "quiet": len(l.source.outbox.delayed), "queue": queued, "working": l.jobs.Working(),
		}
		for name, size := range sizes {
			if size == 0 {
				delete(sizes, name)
			}
		}
		reply <- sizes
	}) {
		return nil, errors.New("mirror is not running")
	}
	return <-reply, nil
}

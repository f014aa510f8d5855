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
		sizes := map[string]int{
			"jobs": len(l.jobs), "ready": l.account.line.Len(), "resting": len(l.account.resting), "ahead": len(l.ahead), "replies": len(l.replies), "taken": len(l.taken),
			"refusals": len(l.refusals), "gone": len(l.gone), "failures": len(l.failures), "waiting": len(l.waiting), "stale": len(l.stale),
			"born": len(l.born), "asked": len(l.asked), "causes": len(l.causes), "effects": len(l.effects), "later": len(l.later),
			"tidings": l.tidings.line.Len(), "pulses": len(l.pulses), "quiet": len(l.quiet), "queue": len(l.queue), "working": l.working,
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

package refusals

import (
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// Contests are what was put back of the entries of this side's sinks. Both sides count:
// the source sends more seldom, and shows it; on the hub of an autonomous agent only the
// sink's people look.
type Contests map[stream.EntryKey]Contest

// Contest is what was put back of one entry.
type Contest struct {
	link.Reverts
	paths string
}

// Record counts what was put back. It reports whether it has become contested with that.
func (c Contests) Record(key stream.EntryKey, paths string, now time.Time) bool {
	one := c[key]
	was := one.Exhausted() && !one.Expired(now)
	one.Add(now)
	one.paths = paths
	c[key] = one
	return one.Exhausted() && !was
}

// Refusal says what is contested about an entry; nil for nothing. side is that of the
// sink.
func (c Contests) Refusal(key stream.EntryKey, side stream.Side) *stream.Refusal {
	one, ok := c[key]
	if !ok || !one.Exhausted() {
		return nil
	}
	refusal := link.ContestedBy(side, link.RevertText(one.paths))
	return &refusal
}

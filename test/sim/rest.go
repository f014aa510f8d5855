package sim

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/stream"
)

// restTime is how long nothing may be written at the end, when all is quiet.
const restTime = 2 * time.Minute

// Of what someone changes back, so much is mended at once, and then once a minute.
const (
	mendFree   = 4
	mendWindow = 5 * time.Minute
	mendLimit  = mendFree + int(mendWindow/time.Minute) + 1
)

// mended are the times at which a copy was put back to what it had been.
type mended map[string][]time.Duration

// writes is I8 for writes without end: at rest no one writes, and in a fight few do.
func (c *checker) writes(v *view, e Entry, before, after application) {
	if e.Writer != Principal && e.Writer != AgentSide || e.Key.Name == memoryName || e.Key.Kind == agentKind {
		return
	}
	contested := len(v.fights) > 0
	away := v.names[stream.Hub].Suspended // what its spoke runs leaves the hub when that was away long enough
	if c.settled && !contested && !away {
		c.breaks("I8", v, "it goes on writing though all is quiet: %s", e)
	}
	was, is := before.marks(), after.marks()
	if e.Gone || was.hash == "" || was.hash != is.hash || cmp.Equal(before.child("spec"), after.child("spec")) {
		return
	}
	times := c.mended[e.UID]
	times = append(times, e.At)
	for len(times) > 0 && e.At-times[0] > mendWindow {
		times = times[1:]
	}
	if c.mended[e.UID] = times; len(times) > mendLimit {
		c.breaks("I8", v, "it was put back %d times in %s: %s", len(times), mendWindow, e)
	}
}

package mirror

import (
	"maps"
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// LinkState is what the Agent says of its link, whichever principal has it.
type LinkState struct {
	// Epoch is that of the newest claim (Judgement.Epoch); zero for none.
	Epoch int64
	// ObservedAt is when a principal last wrote that the agent was connected. It is by
	// the clock of that principal, and compared with nothing but its value before.
	ObservedAt time.Time
}

// standTime is how long the time of the last observation stands still before a principal
// that had not the agent's last connection takes the agent for away. It is written once a
// minute while the agent is connected.
const standTime = 90 * time.Second

// lastLink is what the loop knows of who has the link. What the hub shows of what a spoke
// answered is for the principal that had its last judged connection: another one does not
// know it, and two that differ would write without end.
type lastLink struct {
	ours    bool  // a connection to this process was judged, and none elsewhere since
	claimed int64 // the newest epoch that is ours; zero for none
	shown   LinkState
	since   time.Time // when ObservedAt was first seen with its value, by our clock
}

// ShowLink says on the hub what the Agent says of its link. It does not block; the last
// call counts.
func (m *Mirror) ShowLink(s LinkState) {
	m.linkState.Store(&s)
	m.tell()
}

// showLink takes what ShowLink was last told.
func (l *loop) showLink() {
	s := l.m.linkState.Load()
	if s == nil {
		return
	}
	if s.ObservedAt != l.last.shown.ObservedAt {
		l.last.since = time.Now()
		l.lookAt(l.last.since.Add(standTime))
	}
	l.last.shown = *s
	l.last.ours = l.last.ours && s.Epoch <= l.last.claimed
}

// claim notes that a connection to this process was judged. What the spoke answered before
// is ours to show from now on.
func (l *loop) claim(epoch int64) {
	was := l.last.ours
	l.last.ours, l.last.claimed = true, epoch
	if was {
		return
	}
	keys := map[stream.ResourceKey]bool{}
	maps.Copy(keys, l.answered)
	maps.Copy(keys, l.warned)
	told := slices.Concat(
		slices.Collect(maps.Keys(l.refusals)), slices.Collect(maps.Keys(l.link.Parked())), slices.Collect(maps.Keys(l.link.AllDropped())),
	)
	for _, entry := range told {
		if key, ok := l.rules.Local(entry); ok {
			keys[key] = true
		}
	}
	l.observeAll(slices.Collect(maps.Keys(keys)))
}

// ours reports whether this process had the last judged connection. Where nobody judges,
// there is but one process.
func (l *loop) ours() bool { return l.last.ours || l.m.cfg.History == nil }

// away is for how long the agent has been away as far as this process may tell; zero
// while it is not known to be.
func (l *loop) away() time.Duration {
	switch {
	case l.apart.IsZero():
		return 0
	case l.ours():
		return time.Since(l.apart)
	case time.Since(l.last.since) >= standTime:
		return time.Since(l.last.since)
	}
	return 0
}

// awayAt is when away may next say that an operation of the spoke is to be let go.
func (l *loop) awayAt() time.Time {
	if l.ours() {
		return l.apart.Add(awayTime)
	}
	return l.last.since.Add(standTime)
}

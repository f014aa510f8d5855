package mirror

import (
	"maps"
	"slices"
	"time"

	"github.com/argomesh/argomesh/backends/ownership"
)

// presence is whether the agent is there, and who has the link while it is not here.
type presence struct {
	*core
	commands *commands
	last     lastLink
	apart    time.Time // since when there is no session; zero while there is one
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

// showLink takes what ShowLink was last told.
func (a *presence) showLink() {
	s := a.env.told.linkState.Load()
	if s == nil {
		return
	}
	if s.ObservedAt != a.last.shown.ObservedAt {
		a.last.since = time.Now()
		a.lookAt(a.last.since.Add(standTime))
	}
	a.last.shown = *s
	a.last.ours = a.last.ours && s.Epoch <= a.last.claimed
}

// claim notes that a connection to this process was judged, and reports whether it had the
// link before.
func (a *presence) claim(epoch int64) (before bool) {
	before = a.last.ours
	a.last.ours, a.last.claimed = true, epoch
	return before
}

// ours reports whether this process had the last judged connection. Where nobody judges,
// there is but one process.
func (a *presence) ours() bool { return a.last.ours || a.env.cfg.History == nil }

// away is for how long the agent has been away as far as this process may tell; zero
// while it is not known to be.
func (a *presence) away() time.Duration {
	switch {
	case a.apart.IsZero():
		return 0
	case a.ours():
		return time.Since(a.apart)
	case time.Since(a.last.since) >= standTime:
		return time.Since(a.last.since)
	}
	return 0
}

// awayAt is when away may next say that an operation of the spoke is to be let go.
func (a *presence) awayAt() time.Time {
	if a.ours() {
		return a.apart.Add(ownership.AwayTime)
	}
	return a.last.since.Add(standTime)
}

// part notes that there is no connection from now on.
func (a *presence) part() {
	a.apart = time.Now()
	a.lookAt(a.awayAt())
}

// letGo looks again at the operations of a spoke that has been away for long.
func (a *presence) letGo() {
	switch {
	case a.apart.IsZero():
	case a.away() < ownership.AwayTime:
		a.lookAt(a.awayAt())
	default:
		a.observeAll(slices.Collect(maps.Keys(a.commands.born)))
	}
}

// tell queues what Tell was last told, unless this session has it.
func (a *presence) tell() {
	if info := a.env.told.info.Load(); info != a.session.info {
		a.session.info = info
		now := *info
		now.Told = time.Now()
		a.session.queue = append(a.session.queue, now)
	}
}

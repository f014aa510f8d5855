package mirror

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/refusals"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// connection is the session of the moment, and who has the link while there is none.
type connection struct {
	*core
	queue  []stream.Message  // flushed, not yet taken by the session
	info   *stream.SpokeInfo // of Mirror.info, on this session
	ticked time.Time         // when time was last let pass
	last   lastLink
	apart  time.Time // since when there is no session; zero while there is one
}

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
func (a *connection) showLink() {
	s := a.m.linkState.Load()
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

// claim notes that a connection to this process was judged. What the spoke answered before
// is ours to show from now on.
func (a *connection) claim(epoch int64) {
	was := a.last.ours
	a.last.ours, a.last.claimed = true, epoch
	if was {
		return
	}
	keys := map[stream.ResourceKey]bool{}
	maps.Copy(keys, a.l.commands.answered)
	maps.Copy(keys, a.l.answers.warned)
	told := slices.Concat(
		slices.Collect(maps.Keys(a.l.answers.refusals)), slices.Collect(maps.Keys(a.link.Parked())), slices.Collect(maps.Keys(a.link.AllDropped())),
	)
	for _, entry := range told {
		if key, ok := a.rules.Local(entry); ok {
			keys[key] = true
		}
	}
	a.observeAll(slices.Collect(maps.Keys(keys)))
}

// ours reports whether this process had the last judged connection. Where nobody judges,
// there is but one process.
func (a *connection) ours() bool { return a.last.ours || a.m.cfg.History == nil }

// away is for how long the agent has been away as far as this process may tell; zero
// while it is not known to be.
func (a *connection) away() time.Duration {
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
func (a *connection) awayAt() time.Time {
	if a.ours() {
		return a.apart.Add(ownership.AwayTime)
	}
	return a.last.since.Add(standTime)
}

func (a *connection) attach(s *session) {
	if old := a.session; old != nil {
		a.end()
		old.end(stream.GoodbyeSuperseded, ErrSuperseded)
	}
	a.session, a.apart = s, time.Time{}
	children := a.rules.Children
	a.rules.Children = s.peer.Children
	if a.rules.WriteCredentials != s.peer.WriteCredentials {
		a.rules.WriteCredentials, a.l.projects.unselected = s.peer.WriteCredentials, true
	}
	if a.rules.GivesUp != s.peer.GivesUp {
		a.rules.GivesUp = s.peer.GivesUp
		a.observe(stream.ResourceKey{Kind: stream.AppProject, Namespace: a.rules.Namespace, Name: object.DefaultProjectName})
	}
	if a.rules.Side == stream.Spoke {
		news := a.rules.HubUID != s.peer.HubUID || children != s.peer.Children || !slices.Equal(a.rules.FormerHubs, s.peer.FormerHubs)
		a.rules.HubUID, a.rules.FormerHubs, a.rules.Inherits = s.peer.HubUID, s.peer.FormerHubs, s.peer.Inherits
		if news {
			a.l.observeStore()
		}
	}
	a.l.hold() // nothing leaves before what Hold was last told is known
	a.l.history.past, a.rules.HistoryID = past{}, ""
	a.l.history.announce() // before the digests: what follows is of that history
	a.step(link.Connected{ID: s.peer.Connection, SeenDeletes: s.peer.SeenDeletes})
}

// tell queues what Tell was last told, unless this session has it.
func (a *connection) tell() {
	if info := a.m.info.Load(); info != a.info {
		a.info = info
		now := *info
		now.Told = time.Now()
		a.queue = append(a.queue, now)
	}
}

func (a *connection) detach(s *session) {
	if a.session == s {
		a.end()
	}
}

// end forgets the session and what it brought that no worker has taken: its
// authority ends with it, and the next digest tells what is still to be done.
func (a *connection) end() {
	close(a.session.over)
	a.l.events.part()
	a.session, a.queue, a.info = nil, nil, nil
	clear(a.l.outbox.made)
	a.l.outbox.madeBytes = 0
	a.part()
	a.jobs.DropEvents()
	a.l.inbox.closeAll()
	a.l.answers.awaiting = refusals.NewAwaiting()
	a.link.Step(time.Now(), link.Disconnected{})
}

// part notes that there is no connection from now on.
func (a *connection) part() {
	a.apart = time.Now()
	a.lookAt(a.awayAt())
}

// letGo looks again at the operations of a spoke that has been away for long.
func (a *connection) letGo() {
	switch {
	case a.apart.IsZero():
	case a.away() < ownership.AwayTime:
		a.lookAt(a.awayAt())
	default:
		a.observeAll(slices.Collect(maps.Keys(a.l.commands.born)))
	}
}

// breach ends the session since the peer broke the protocol.
func (a *connection) breach(v stream.Violation) {
	a.m.cfg.Log.Warn().Str("kind", string(v)).Msg("peer broke the protocol, closing the connection")
	s := a.session
	a.end()
	s.end(stream.GoodbyeProtocol, v.Err())
}

// background runs f beside the loop for as long as s lasts, and what it returns on
// the loop, if s is still the session by then.
func (a *connection) background(s *session, f func(context.Context) func()) {
	a.spawn = append(a.spawn, func(ctx context.Context) {
		life, cancel := context.WithCancel(ctx)
		defer cancel()
		over := make(chan struct{})
		defer close(over)
		go func() {
			select {
			case <-s.over:
				cancel()
			case <-over:
			}
		}()
		then := f(life)
		if then == nil {
			return
		}
		// When the loop has ended nobody is left to tell.
		_ = a.m.do(ctx, func(l *loop) {
			if l.session == s {
				then()
			}
		})
	})
}

package mirror

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/refusals"
	sessions "github.com/argomesh/argomesh/backends/session"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// Serve runs the link over conn until the connection ends, ctx is done, or a
// newer call of Serve takes the link over, which it does without a gap. Its errors are
// those of [sessions.Session.Carry]. Nothing that the peer sent is begun once ctx is done.
func (m *Mirror) Serve(ctx context.Context, peer Peer, conn sessions.Conn) error {
	s := &session{Session: sessions.New(ctx.Done()), peer: peer}
	if !m.do(ctx, func(l *loop) { l.attach(s) }) {
		return fmt.Errorf("%w: the link does not run", sessions.ErrEnded)
	}
	return s.Carry(ctx, conn, sessions.Owner{
		Receive: func(msg stream.Message) bool { return m.do(ctx, func(l *loop) { l.receive(s, msg) }) },
		// When the loop has ended there is nothing to detach from.
		Detach: func() {
			_ = m.do(context.WithoutCancel(ctx), func(l *loop) {
				if l.session == s {
					l.forgetSession()
				}
			})
		},
		Done:  m.done,
		Cause: func() error { return m.cause },
	})
}

// attach begins a session, and ends the one before.
func (l *loop) attach(s *session) {
	if l.session != nil {
		l.end(stream.GoodbyeSuperseded, ErrSuperseded)
	}
	l.session = s
	l.presence.Connect()
	children := l.rules.Children
	l.rules.Children = s.peer.Children
	if l.rules.WriteCredentials != s.peer.WriteCredentials {
		l.rules.WriteCredentials, l.source.projects.unselected = s.peer.WriteCredentials, true
	}
	if l.rules.GivesUp != s.peer.GivesUp {
		l.rules.GivesUp = s.peer.GivesUp
		l.observe(stream.ResourceKey{Kind: stream.AppProject, Namespace: l.rules.Namespace, Name: object.DefaultProjectName})
	}
	if l.rules.Side == stream.Spoke {
		news := l.rules.HubUID != s.peer.HubUID || children != s.peer.Children ||
			!slices.Equal(l.rules.FormerHubs, s.peer.FormerHubs)
		l.rules.HubUID, l.rules.FormerHubs, l.rules.Inherits = s.peer.HubUID, s.peer.FormerHubs, s.peer.Inherits
		if news {
			l.observeStore()
		}
	}
	l.source.projects.applyPauses() // nothing leaves before what Pause was last told is known
	l.known, l.rules.HistoryID = historyState{checks: l.known.checks}, ""
	l.history.publish() // before the digests: what follows is of that history
	l.step(link.Connected{ID: s.peer.Connection, SeenDeletes: s.peer.SeenDeletes})
}

// end ends the session.
func (l *loop) end(goodbye stream.GoodbyeReason, cause error) {
	s := l.session
	l.forgetSession()
	s.End(goodbye, cause)
}

// breach ends the session since the peer broke the protocol.
func (l *loop) breach(v stream.Violation) {
	l.env.cfg.Log.Warn().Str("kind", string(v)).Msg("peer broke the protocol, closing the connection")
	l.end(stream.GoodbyeProtocol, v.Err())
}

// forgetSession forgets the session and what it brought that no worker has taken: its
// authority ends with it, and the next digest tells what is still to be done.
func (l *loop) forgetSession() {
	close(l.session.Detached)
	l.events.markDisconnected()
	l.session = nil
	l.source.outbox.dropAll()
	l.presence.Disconnect(time.Now())
	l.scheduleLook(l.presence.AwayAt(ownership.AwayTime))
	l.jobs.DropEvents()
	l.inbox.closeAll()
	l.answers.awaiting = refusals.NewAwaiting()
	l.link.Step(time.Now(), link.Disconnected{})
}

// follow is that of [whole].
func (l *loop) follow(number uint64, j HistoryCheck) {
	if !l.presence.Claim(j.Epoch) {
		l.answers.observeAnswered()
	}
	l.source.witness.proofs.TakeOver(j.Other)
	if j.Broken == "" {
		l.known.answered = number
		return
	}
	// Anyone who pressed them saw another state of the Application.
	for key := range l.commands.waiting {
		l.commands.stale[key] = "the history of hub and spoke does not continue: " + j.Broken
	}
	l.source.witness.unsee()
}

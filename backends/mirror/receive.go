package mirror

import (
	"maps"
	"slices"
	"time"

	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/backends/worker"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// learn takes new schemas: what was left out of copies may fit now, and so may what
// was refused.
func (l *loop) learn() {
	known := l.env.cfg.schemas()
	if maps.Equal(known, l.rules.Schemas) {
		return
	}
	l.know(known)
	l.observeStore()
	for _, key := range l.answers.refused.OfKind(stream.RefusalInvalid) {
		l.step(link.Retry{Key: key})
	}
}

// know takes what the API server keeps of each kind.
func (l *loop) know(schemas map[stream.Kind]*schema.Schema) {
	l.rules.Schemas = schemas
	l.view.Learn(schemas)
}

func (l *loop) receive(s *session, msg stream.Message) {
	if l.session != s || worker.Closed(s.Withdrawn) {
		return
	}
	switch msg := msg.(type) {
	case stream.History:
		if l.rules.Side == stream.Hub && msg != (stream.History{Token: msg.Token}) {
			l.breach(stream.ViolationDirection) // where the hub stands is not for the spoke to say
			return
		}
		l.history.receive(msg)
		return
	case stream.SpokeInfo, stream.ApplicationEvents:
		if l.rules.Side == stream.Spoke {
			l.breach(stream.ViolationDirection)
			return
		}
	case stream.Batch:
		if len(msg.Unsupported) > 0 && !s.unsupportedLogged {
			s.unsupportedLogged = true
			l.env.cfg.Log.Warn().Str("type", msg.Unsupported[0].Type).
				Msg("peer sent an event that this release does not know, and was told so; further ones on this connection are only counted")
		}
	}
	l.step(link.Received{Message: msg})
	switch msg := msg.(type) {
	case stream.SpokeInfo:
		l.env.cfg.OnSpokeInfo(msg)
	case stream.ApplicationEvents:
		l.events.receive(msg)
	case stream.Heartbeat:
		if !s.heartbeatSeen { // by now it has told what it does not keep
			s.heartbeatSeen = true
			l.observeAll(slices.Collect(maps.Keys(l.answers.warned)))
		}
	// Now the spoke may be known to hold what a command waits for.
	case stream.Digests, stream.Inventory:
		l.observeAll(slices.Collect(maps.Keys(l.commands.waiting)))
		l.source.projects.observeApplications(maps.Keys(l.source.projects.namedProjects.Barred))
		l.source.projects.revisitAll()
		l.observeAll(slices.Collect(maps.Keys(l.source.removals.orphaning)))
		l.observeAll(slices.Collect(maps.Keys(l.commands.answered)))
	case stream.Applied:
		for _, r := range msg.Results {
			key, ok := l.rules.Local(r.Key)
			if ok && (l.commands.waits(key) || l.source.removals.orphaning[key] != "") {
				l.observe(key)
			}
		}
	}
}

// carryOut feeds the link and carries out what it asks for.
func (l *loop) carryOut(in link.Input) {
	s := l.session
	if held, ok := in.(link.Stored); ok {
		l.inbox.close(held.Event)
	}
	for _, action := range l.link.Step(time.Now(), in) {
		switch a := action.(type) {
		case link.Apply:
			if l.session != s {
				return // an answer to an event before this one ended it
			}
			l.inbox.apply(l.inbox.open(a.Event))
		case link.Answered:
			l.history.contradicted(a)
			l.answers.answered(a)
		case link.Contested:
			if key, ok := l.rules.Local(a.Key); ok {
				l.observe(key)
			}
		case link.RefusalEnded:
			if key, ok := l.rules.Local(a.Key); ok {
				l.observe(key)
			}
		case link.Shortened:
			l.answers.shortened(a.Key)
		case link.CheckHistory:
			l.history.check()
		case link.Begin:
			l.history.begin()
		case link.Disconnect:
			switch {
			case l.session == nil:
			case a.Cause == link.CauseProtocol:
				l.breach(a.Violation)
			default:
				l.end("", a.Cause.Err())
			}
			return
		}
	}
}

// observed looks at what follows for others from an object that was looked at.
func (l *loop) observed(key stream.ResourceKey) { l.source.projects.checkGlobals(key) }

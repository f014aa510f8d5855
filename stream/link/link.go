package link

import (
	"time"

	"github.com/argomesh/argomesh/stream"
)

// Link is one side of one agent link. It is not safe for concurrent use.
type Link struct {
	cfg     Config
	ends    *ends
	conn    *connection
	guard   *guard
	inbound *inbound
	window  window
	burst   bool             // there were many of flights or open
	out     []stream.Message // due whatever the window says
}

// New returns a link that holds nothing and is not connected.
func New(cfg Config) *Link {
	if cfg.Window == 0 {
		cfg.Window = 512
	}
	if cfg.WindowBytes == 0 {
		cfg.WindowBytes = 4 << 20
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 10 * time.Second
	}
	all, conn := &ends{}, &connection{}
	in := &inbound{ends: all, conn: conn}
	l := &Link{cfg: cfg, ends: all, conn: conn, inbound: in,
		guard: &guard{on: cfg.Guard, ends: all, conn: conn, inbound: in}}
	for _, c := range stream.Collections() {
		switch c.Source(cfg.Mode) {
		case cfg.Side:
			l.ends.sources = append(l.ends.sources, newSource(c, cfg.Verify && verifiable(c)))
		case 0:
		default:
			l.ends.sinks = append(l.ends.sinks, newSink(c))
		}
	}
	return l
}

// Step takes one input and returns what the caller must do, in order. It does
// not block and keeps no reference to in.
func (l *Link) Step(now time.Time, in Input) []Action {
	actions := l.step(now, in)
	actions = l.guard.requestCheck(now, append(actions, l.ends.changedRefusals()...))
	l.shrinkMaps()
	return actions
}

// shrinkMaps gives back the memory that a burst took, once it is over: a map keeps room
// for the most that it ever held.
func (l *Link) shrinkMaps() {
	switch most := max(len(l.window.flights), len(l.inbound.open)); {
	case most > maxSpare:
		l.burst = true
	case most == 0 && l.burst:
		l.burst, l.window.flights, l.inbound.open = false, map[string]stream.EntryKey{}, map[string]int{}
	}
}

func (l *Link) step(now time.Time, in Input) []Action {
	switch in := in.(type) {
	case Connected:
		l.connect(now, in)
	case Disconnected:
		l.disconnect()
	case Received:
		if l.conn.stage == away {
			return nil // of a connection that has ended
		}
		l.conn.lastReceived = now
		return l.receive(now, in.Message)
	case Stored:
		if s := l.ends.sink(in.Key.Collection); s != nil {
			return l.inbound.noteStored(s, in)
		}
	case Retry:
		if s := l.ends.sink(in.Key.Collection); s != nil {
			l.inbound.retry(s, in.Key)
		}
	case Tick:
		return l.tick(now, in)
	case Desired, Proven, Paused:
		l.ends.handle(in)
	default:
		return l.guard.handle(now, in)
	}
	return nil
}

// tick lets time pass.
func (l *Link) tick(now time.Time, in Tick) []Action {
	l.guard.tick(now)
	for _, s := range l.ends.sources {
		s.unpark(now)
		if l.conn.stage != away {
			s.calm(now)
		}
	}
	if in.Waits {
		l.conn.lastReceived = now
	}
	if l.conn.stage != away && now.Sub(l.conn.lastReceived) > l.cfg.silence() {
		return []Action{Disconnect{Cause: CauseSilent}}
	}
	return nil
}

// Flush returns the messages to send now, in order. The caller calls it after
// Step, but only while its connection takes more: what is not taken now leaves
// later with newer content.
func (l *Link) Flush(now time.Time, load Load) []stream.Message {
	if l.conn.stage == away {
		return nil
	}
	// Results come before heartbeats: belief must not lag behind a digest.
	l.flushResults()
	out := l.out
	l.out = nil
	for _, s := range l.ends.sinks {
		out = append(out, s.list(now)...)
	}
	if !now.Before(l.conn.beat) {
		out = append(out, stream.Heartbeat{Digests: l.ends.digests(), Absences: l.guard.absences()})
		l.conn.beat = now.Add(l.cfg.Heartbeat)
	}
	return append(out, l.batches(now, load)...)
}

// Next is when the caller must step a Tick and flush at the latest; the zero
// time when only an input can change something.
func (l *Link) Next() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if l.conn.stage != away {
		sooner(l.conn.beat)
		sooner(l.conn.lastReceived.Add(l.cfg.silence() + 1))
		sooner(l.guard.check.nextAt)
		for _, s := range l.ends.sources {
			sooner(s.agenda.parked.next())
			sooner(s.agenda.calming.next())
			sooner(l.guard.countDue(s))
		}
		for _, s := range l.ends.sinks {
			if s.asked != nil {
				sooner(s.lists)
			}
		}
	}
	return next
}

func (l *Link) connect(now time.Time, in Connected) {
	l.disconnect()
	l.conn.stage, l.conn.id, l.conn.checks = open, in.ID, in.SeenDeletes
	l.conn.lastReceived = now
	l.conn.beat = now.Add(l.cfg.Heartbeat)
	l.guard.check.wanted = true
	l.out = []stream.Message{stream.Digests{Digests: l.ends.digests()}}
	for _, s := range l.ends.sources {
		s.connect(now)
	}
	for _, s := range l.ends.sinks {
		l.inbound.results = append(l.inbound.results, s.shortened()...)
	}
}

func (l *Link) disconnect() {
	l.conn.stage, l.conn.checks = away, false
	l.window.inFlight, l.window.bytes = 0, 0
	l.window.flights = map[string]stream.EntryKey{}
	l.inbound.open, l.inbound.bytes, l.burst = map[string]int{}, 0, false
	l.out, l.inbound.results = nil, nil
	// A peer that reconnects, again and again, has no more checks than one that stays.
	l.guard.check = historyCheck{recent: l.guard.check.recent, window: l.guard.check.window, next: l.guard.check.next}
	for _, s := range l.ends.sources {
		s.disconnect()
	}
	for _, s := range l.ends.sinks {
		s.disconnect()
	}
}

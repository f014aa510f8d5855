package link

import (
	"cmp"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// Config holds what a Link needs. Fields without a stated default are required.
type Config struct {
	Side stream.Side
	Mode stream.Mode
	// Window bounds the unanswered entries. Zero means 512.
	Window int
	// WindowBytes bounds the data of unanswered entries: while so much is
	// unanswered nothing more is sent, so the last entry may exceed it. Zero means
	// 4 MiB.
	WindowBytes int
	// Heartbeat is the time between heartbeats. Zero means 10s. A peer that was
	// silent for two and a half of them is taken for gone.
	Heartbeat time.Duration
	// Guard says that absences are taken at their word only after a judgement, and
	// not many at once: see Judge. It is the hub's, whichever side is the source.
	Guard bool
	// Verify says that the caller asks the API server about what the peer holds and the
	// caller's store never showed, before it counts as absent: see Unfamiliar.
	Verify bool
}

const (
	maxBatchBytes = 1 << 20
	// maxOpen and maxOpenBytes bound what a peer sends before it has our answers: more
	// than its own window lets it, of which the last event may exceed the bytes.
	maxOpen      = 2048
	maxOpenBytes = 8 << 20
	// maxUnsent bounds the results that wait for a connection that takes nothing.
	maxUnsent = 1 << 16
	// maxMissing bounds the entries that the peer holds and we do not have, since it
	// can invent some: many times the Applications of one Kubernetes cluster.
	maxMissing = 1 << 16
)

// Link is one side of one agent link. It is not safe for concurrent use.
type Link struct {
	cfg       Config
	sources   []*source // in sending order
	sinks     []*sink
	connected bool
	id        string    // of the connection
	heard     time.Time // when the peer was last heard
	beat      time.Time // when the next heartbeat is due
	digested  bool      // the peer said on this connection which collections it takes
	checks    bool      // Connected.SeenDeletes
	events    uint64    // events sent, for their ids
	// unfamiliar are the entries that Unfamiliar returns next.
	unfamiliar []stream.EntryKey
	inFlight   int
	bytes      int
	flights    map[string]stream.EntryKey // events sent and not yet answered, by id
	open       map[string]int             // events received and not yet answered, with their bytes
	openBytes  int
	burst      bool             // there were many of flights or open
	out        []stream.Message // due whatever the window says
	results    []stream.Result
	judgement  judgement
	cascades   Cascades
	doomed     map[string]string // by the last Doomed
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
	l := &Link{cfg: cfg}
	for _, c := range stream.Collections() {
		switch c.Source(cfg.Mode) {
		case cfg.Side:
			l.sources = append(l.sources, newSource(c, cfg.Verify && verifiable(c)))
		case 0:
		default:
			l.sinks = append(l.sinks, newSink(c))
		}
	}
	return l
}

// Step takes one input and returns what the caller must do, in order. It does
// not block and keeps no reference to in.
func (l *Link) Step(now time.Time, in Input) []Action {
	actions := l.step(now, in)
	actions = l.judge(now, append(actions, l.turned()...))
	l.settle()
	return actions
}

// settle gives back the memory that a burst took, once it is over: a map keeps room
// for the most that it ever held.
func (l *Link) settle() {
	switch most := max(len(l.flights), len(l.open)); {
	case most > maxSpare:
		l.burst = true
	case most == 0 && l.burst:
		l.burst, l.flights, l.open = false, map[string]stream.EntryKey{}, map[string]int{}
	}
}

func (l *Link) step(now time.Time, in Input) []Action {
	switch in := in.(type) {
	case Connected:
		l.connect(now, in)
	case Disconnected:
		l.disconnect()
	case Received:
		if !l.connected {
			return nil // of a connection that has ended
		}
		l.heard = now
		return l.receive(now, in.Message)
	case Desired:
		if s := l.source(in.Key.Collection); s != nil {
			s.desire(in.Key, l.sharing(in.Key, in.Version), in.Leaving)
			if in.Accepted {
				s.acceptEnding(in.Key)
			}
		}
	case Proven:
		if s := l.source(in.Key.Collection); s != nil {
			s.resume(in.Key)
		}
	case Held:
		if s := l.sink(in.Key.Collection); s != nil {
			return l.hold(s, in)
		}
	case Retry:
		if s := l.sink(in.Key.Collection); s != nil {
			l.retry(s, in.Key)
		}
	case Paused:
		if s := l.source(in.Collection); s != nil {
			s.pause(in)
		}
	case Judged:
		return l.judged(now, in)
	case Accepted:
		l.accept(in.ID)
	case Seen:
		l.see(in)
	case Verified:
		l.verified(in.Key)
	case Doubted:
		l.judgement.wanted = true
	case Doomed:
		l.doomed = in.Places
	case Cascades:
		l.count(in)
	case Tick:
		if j := &l.judgement; !j.again.IsZero() && !now.Before(j.again) {
			j.again, j.wanted = time.Time{}, true
		}
		l.countLate(now)
		for _, s := range l.sources {
			s.unpark(now)
			if l.connected {
				s.calm(now)
			}
		}
		if in.Waits {
			l.heard = now
		}
		if l.connected && now.Sub(l.heard) > l.silence() {
			return []Action{Disconnect{Cause: CauseSilent}}
		}
	}
	return nil
}

// Flush returns the messages to send now, in order. The caller calls it after
// Step, but only while its connection takes more: what is not taken now leaves
// later with newer content.
func (l *Link) Flush(now time.Time, load Load) []stream.Message {
	if !l.connected {
		return nil
	}
	// Results come before heartbeats: belief must not lag behind a digest.
	l.flushResults()
	out := l.out
	l.out = nil
	for _, s := range l.sinks {
		out = append(out, s.list(now)...)
	}
	if !now.Before(l.beat) {
		out = append(out, stream.Heartbeat{Digests: l.digests(), Absences: l.absences()})
		l.beat = now.Add(l.cfg.Heartbeat)
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
	if l.connected {
		sooner(l.beat)
		sooner(l.heard.Add(l.silence() + 1))
		sooner(l.judgement.again)
		for _, s := range l.sources {
			sooner(s.parked.next())
			sooner(s.calming.next())
			sooner(l.countDue(s))
		}
		for _, s := range l.sinks {
			if s.asked != nil {
				sooner(s.lists)
			}
		}
	}
	return next
}

// Parked returns the entries of our sources that the peer refused, and those that are
// contested, with the reason.
func (l *Link) Parked() map[stream.EntryKey]stream.Refusal {
	parked := map[stream.EntryKey]stream.Refusal{}
	for _, s := range l.sources {
		for key, e := range s.entries.all() {
			if r := cmp.Or(e.refusal(), l.contest(e)); r != nil {
				parked[key] = *r
			}
		}
	}
	return parked
}

// Desired returns the version of an entry that our source was last told of.
func (l *Link) Desired(key stream.EntryKey) stream.Version {
	if s := l.source(key.Collection); s != nil {
		if e := s.entries.get(key); e != nil {
			return e.desired
		}
	}
	return stream.Version{}
}

// Believed returns the version that the peer's sink is known to hold of an entry
// of our source; absent while there is no connection on which it was told.
func (l *Link) Believed(key stream.EntryKey) stream.Version {
	if s := l.source(key.Collection); s != nil && s.ready {
		if e := s.entries.get(key); e != nil {
			return e.held()
		}
	}
	return stream.Version{}
}

// Satisfied reports whether the peer's sink is known to hold what our source desires of
// an entry, or nothing where there is nothing; false while there is no connection on which
// it was told.
func (l *Link) Satisfied(key stream.EntryKey) bool {
	s := l.source(key.Collection)
	if s == nil || !s.ready {
		return false
	}
	e := s.entries.get(key)
	return e == nil || e.satisfied()
}

// Entries is the number of entries that a collection has here: desired ones of
// a source, held ones of a sink.
func (l *Link) Entries(c stream.Collection) int {
	if s := l.source(c); s != nil {
		return int(s.desired.entries)
	}
	if s := l.sink(c); s != nil {
		return s.held.len()
	}
	return 0
}

// Agreed reports whether, as far as this side knows, the peer holds all that our
// sources desire, and nobody there changes it back.
func (l *Link) Agreed() bool {
	for _, s := range l.sources {
		if l.connected && !s.ready && !l.unheard(s) {
			return false
		}
		for _, e := range s.entries.values {
			if !e.satisfied() || e.contested() {
				return false
			}
		}
	}
	return true
}

// unheard reports whether the peer is known to take nothing of a collection: its
// release does not know it, and so sends no digest of it.
func (l *Link) unheard(s *source) bool { return l.digested && !s.heard }

func (l *Link) silence() time.Duration { return l.cfg.Heartbeat * 5 / 2 }

func (l *Link) source(c stream.Collection) *source {
	for _, s := range l.sources {
		if s.collection == c {
			return s
		}
	}
	return nil
}

func (l *Link) sink(c stream.Collection) *sink {
	for _, s := range l.sinks {
		if s.collection == c {
			return s
		}
	}
	return nil
}

// sharing is v with its source UID in the memory of the same one of another entry of
// that name, if there is one: a copy is an entry of two collections, messages and
// objects each bring a UID of their own, and one for each entry stays.
func (l *Link) sharing(key stream.EntryKey, v stream.Version) stream.Version {
	if v.Absent() {
		return v
	}
	for _, s := range l.sources {
		if e := s.entries.get(key); e != nil && e.desired.SourceUID == v.SourceUID {
			v.SourceUID = e.desired.SourceUID
			return v
		}
	}
	for _, s := range l.sinks {
		if held := s.held.get(key); held.SourceUID == v.SourceUID {
			v.SourceUID = held.SourceUID
			return v
		}
	}
	return v
}

func (l *Link) connect(now time.Time, in Connected) {
	l.disconnect()
	l.connected, l.id, l.checks = true, in.ID, in.SeenDeletes
	l.heard = now
	l.beat = now.Add(l.cfg.Heartbeat)
	l.judgement.wanted = true
	l.out = []stream.Message{stream.Digests{Digests: l.digests()}}
	for _, s := range l.sources {
		s.connect(now)
	}
	for _, s := range l.sinks {
		l.results = append(l.results, s.shortened()...)
	}
}

func (l *Link) disconnect() {
	l.connected, l.digested, l.checks = false, false, false
	l.inFlight, l.bytes = 0, 0
	l.flights = map[string]stream.EntryKey{}
	l.open, l.openBytes, l.burst = map[string]int{}, 0, false
	l.out, l.results = nil, nil
	// A peer that connects anew, again and again, has no more judgements than one that stays.
	l.judgement = judgement{recent: l.judgement.recent, window: l.judgement.window, next: l.judgement.next}
	for _, s := range l.sources {
		s.disconnect()
	}
	for _, s := range l.sinks {
		s.disconnect()
	}
}

func (l *Link) digests() []stream.Digest {
	digests := make([]stream.Digest, len(l.sinks))
	for i, s := range l.sinks {
		digests[i] = s.tally.digest(s.collection)
	}
	return digests
}

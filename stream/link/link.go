package link

import (
	"slices"
	"strconv"
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
}

const (
	maxBatchEvents      = 256
	maxBatchBytes       = 1 << 20
	maxInventoryEntries = 1024
	// maxOpen and maxOpenBytes bound what a peer sends before it has our answers:
	// more than twice what its own window lets it.
	maxOpen      = 2048
	maxOpenBytes = 64 << 20
	// maxUnsent bounds the results that wait for a connection that takes nothing.
	maxUnsent = 1 << 16
	// maxMissing bounds the entries that the peer holds and we do not have, since it
	// can invent some: many times the Applications of one Kubernetes cluster.
	maxMissing = 1 << 16
	maxResults = 1024 // of one Applied
)

// Input is something that happened. The types of this file implement it.
type Input interface{ input() }

// Connected begins a connection; one that was there before is forgotten. The
// stores of both the caller's sources and sinks have synced before the first.
type Connected struct {
	// ID is unique among the connections of this agent; event ids begin with it,
	// so that a late answer to an earlier process is never taken for one to us.
	ID string
}

// Disconnected ends the connection.
type Disconnected struct{}

// Received is a message of the peer on the current connection.
type Received struct{ Message stream.Message }

// Desired says that a source's entry has this version now. An absent version
// means that there is nothing under that key.
type Desired struct {
	Key     stream.EntryKey
	Version stream.Version
	// Leaving says that the entry announces its own end: the sink fulfils it by
	// holding nothing in the end.
	Leaving bool
}

// Held says what a sink holds now.
type Held struct {
	Key     stream.EntryKey
	Version stream.Version
	// Event is the id of the event this answers; empty when the store changed by
	// itself.
	Event string
	// Refusal says why the event was not applied.
	Refusal *stream.Refusal
}

// Tick lets time pass.
type Tick struct{}

// Paused stops or resumes what a source sends.
type Paused struct {
	Collection stream.Collection
	Paused     bool
	// LeavingOnly lets what announces its own end pass, and nothing else: neither
	// changes nor absences are told.
	LeavingOnly bool
}

func (Connected) input()    {}
func (Disconnected) input() {}
func (Received) input()     {}
func (Desired) input()      {}
func (Held) input()         {}
func (Tick) input()         {}
func (Paused) input()       {}

// Action is something the caller must do. The types below implement it.
type Action interface{ action() }

// Apply asks the caller to make the sink's store hold the event's content, and
// to answer by Held with the event's id, now or later.
type Apply struct{ Event stream.Event }

// Settled tells what the sink answered to an entry of ours.
type Settled struct {
	Key  stream.EntryKey
	Sent stream.Version // absent: a deletion
	// Current says that Sent is still the desired version.
	Current bool
	// Gone says that Sent announced the end of the entry, and that the sink holds
	// nothing any more.
	Gone    bool
	Held    stream.Version
	Refusal *stream.Refusal
}

// Disconnect asks the caller to end the connection.
type Disconnect struct {
	Cause Cause
	// Violation is what the peer did; empty without CauseProtocol.
	Violation stream.Violation
}

func violates(v stream.Violation) Disconnect {
	return Disconnect{Cause: CauseProtocol, Violation: v}
}

// Cause is a closed set.
type Cause string

const (
	// CauseSilent is that nothing was heard from the peer for too long.
	CauseSilent Cause = "silent"
	// CauseProtocol is that the peer sent what it must not.
	CauseProtocol Cause = "protocol"
	// CauseStalled is that the peer takes nothing while more and more is to be said.
	CauseStalled Cause = "stalled"
	// CauseGoodbye is that the peer said so.
	CauseGoodbye Cause = "goodbye"
)

func (Apply) action()      {}
func (Settled) action()    {}
func (Disconnect) action() {}

// Content is what a source sends of one entry.
type Content struct {
	Version     stream.Version
	Leaving     bool
	Revision    uint64
	TraceParent string
	Data        []byte
}

// Load returns the newest content of an entry of a source; false when there is
// none.
type Load func(stream.EntryKey) (Content, bool)

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
	events    uint64    // events sent, for their ids
	inFlight  int
	bytes     int
	flights   map[string]stream.EntryKey // events sent and not yet answered, by id
	open      map[string]int             // events received and not yet answered, with their bytes
	openBytes int
	burst     bool             // there were many of flights or open
	out       []stream.Message // due whatever the window says
	results   []stream.Result
	judgement judgement
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
			l.sources = append(l.sources, newSource(c))
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
	actions := l.judge(now, l.step(now, in))
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
		l.connect(now, in.ID)
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
		}
	case Held:
		if s := l.sink(in.Key.Collection); s != nil {
			return l.hold(s, in)
		}
	case Paused:
		if s := l.source(in.Collection); s != nil {
			s.pause(in)
		}
	case Judged:
		return l.judged(now, in)
	case Accepted:
		l.accept(in.ID)
	case Doubted:
		l.judgement.wanted = true
	case Tick:
		if j := &l.judgement; !j.again.IsZero() && !now.Before(j.again) {
			j.again, j.wanted = time.Time{}, true
		}
		for _, s := range l.sources {
			s.unpark(now)
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
	return append(out, l.batches(load)...)
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
		}
		for _, s := range l.sinks {
			if s.asked != nil {
				sooner(s.lists)
			}
		}
	}
	return next
}

// Parked returns the entries of our sources that the peer refused, with the
// reason.
func (l *Link) Parked() map[stream.EntryKey]stream.Refusal {
	parked := map[stream.EntryKey]stream.Refusal{}
	for _, s := range l.sources {
		for key, e := range s.entries.all() {
			if r := e.refusal(); r != nil {
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
// sources desire.
func (l *Link) Agreed() bool {
	for _, s := range l.sources {
		if l.connected && !s.ready && !l.unheard(s) {
			return false
		}
		for _, e := range s.entries.values {
			if !e.satisfied() {
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

func (l *Link) connect(now time.Time, id string) {
	l.disconnect()
	l.connected, l.id = true, id
	l.heard = now
	l.beat = now.Add(l.cfg.Heartbeat)
	l.judgement.wanted = true
	l.out = []stream.Message{stream.Digests{Digests: l.digests()}}
}

func (l *Link) disconnect() {
	l.connected, l.digested = false, false
	l.inFlight, l.bytes = 0, 0
	l.flights = map[string]stream.EntryKey{}
	l.open, l.openBytes, l.burst = map[string]int{}, 0, false
	l.out, l.results = nil, nil
	l.judgement = judgement{}
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

func (l *Link) receive(now time.Time, m stream.Message) []Action {
	switch m := m.(type) {
	case stream.Digests:
		for _, d := range m.Digests {
			if s := l.source(d.Collection); s != nil {
				s.heard = true
				l.out = append(l.out, s.compare(now, d)...)
			}
		}
		l.digested = true
	case stream.Heartbeat:
		l.announced(m.Absences)
		for _, d := range m.Digests {
			if s := l.source(d.Collection); s != nil && s.ready {
				l.out = append(l.out, s.compare(now, d)...)
			}
		}
	case stream.Buckets:
		switch s := l.sink(m.Collection); {
		case s == nil:
			return []Action{violates(stream.ViolationDirection)}
		case s.asked != nil:
			// Nobody asks again before he has the answer. One that does not read it would
			// have us pile up answers.
			return []Action{violates(stream.ViolationOrder)}
		default:
			s.asked = &m
		}
	case stream.Inventory:
		s := l.source(m.Collection)
		switch {
		case s == nil:
			return []Action{violates(stream.ViolationDirection)}
		case !s.repairing:
			return []Action{violates(stream.ViolationOrder)}
		}
		if v := s.repair(m); v != "" {
			return []Action{violates(v)}
		}
	case stream.Batch:
		return l.apply(m)
	case stream.Applied:
		return l.applied(now, m)
	case stream.Goodbye:
		return []Action{Disconnect{Cause: CauseGoodbye}}
	}
	return nil
}

func (l *Link) flushResults() {
	for results := range slices.Chunk(l.results, maxResults) {
		l.out = append(l.out, stream.Applied{Results: results})
	}
	l.results = nil
}

func (l *Link) apply(m stream.Batch) []Action {
	actions := make([]Action, 0, len(m.Events))
	l.announced(m.Absences)
	for _, u := range m.Unsupported {
		if len(l.results) == maxUnsent {
			return append(actions, Disconnect{Cause: CauseStalled})
		}
		l.results = append(l.results, stream.Result{Event: u.ID, Refusal: &stream.Refusal{
			Kind: stream.RefusalUnsupported, Message: "this release does not know events of that type",
		}})
	}
	for _, e := range m.Events {
		s := l.sink(e.Key.Collection)
		if s == nil {
			return append(actions, violates(stream.ViolationDirection))
		}
		if _, again := l.open[e.ID]; again {
			return append(actions, violates(stream.ViolationMalformed)) // its bounds count by id
		}
		l.open[e.ID] = len(e.Data)
		l.openBytes += len(e.Data)
		if len(l.open) > maxOpen || l.openBytes > maxOpenBytes {
			return append(actions, violates(stream.ViolationLimit))
		}
		answer, passes := l.guardEvent(s, e)
		actions = append(actions, answer...)
		if passes {
			actions = append(actions, Apply{Event: e})
		}
	}
	return actions
}

func (l *Link) applied(now time.Time, m stream.Applied) []Action {
	var actions []Action
	for _, r := range m.Results {
		if r.Key == (stream.EntryKey{}) {
			key, ok := l.flights[r.Event]
			if !ok {
				continue // answered already
			}
			r.Key = key
			r.Held = l.source(key.Collection).entries.get(key).held()
		}
		s := l.source(r.Key.Collection)
		if s == nil {
			return append(actions, violates(stream.ViolationDirection))
		}
		settled, bytes := s.answer(now, r)
		if len(s.missing) > maxMissing {
			return append(actions, violates(stream.ViolationLimit))
		}
		if settled != nil {
			delete(l.flights, r.Event)
			l.inFlight--
			l.bytes -= bytes
			actions = append(actions, *settled)
		}
	}
	return actions
}

func (l *Link) hold(s *sink, in Held) []Action {
	if size, ok := l.open[in.Event]; ok {
		l.openBytes -= size
		delete(l.open, in.Event)
	}
	changed := s.set(in.Key, l.sharing(in.Key, in.Version))
	if l.connected && (changed || in.Event != "") {
		if len(l.results) == maxUnsent {
			return []Action{Disconnect{Cause: CauseStalled}} // the next digest tells it all
		}
		l.results = append(l.results, stream.Result{Key: in.Key, Event: in.Event, Held: in.Version, Refusal: in.Refusal})
	}
	return nil
}

// batches fills the window.
func (l *Link) batches(load Load) []stream.Message {
	var out []stream.Message
	var batch stream.Batch
	size := 0
	absent := false // the batch holds a deletion
	cut := func() {
		if len(batch.Events) > 0 {
			if absent {
				batch.Absences = l.absences()
			}
			absent = false
			out = append(out, batch)
			batch, size = stream.Batch{}, 0
		}
	}
	for _, s := range l.sources {
		for s.ready && !s.paused && l.inFlight < l.cfg.Window && (l.inFlight == 0 || l.bytes < l.cfg.WindowBytes) {
			key, e := s.pop()
			if e == nil {
				break
			}
			content, present := load(key)
			if !present {
				content = Content{TraceParent: content.TraceParent}
			}
			s.desire(key, l.sharing(key, content.Version), content.Leaving) // does not queue it again while queued is set
			e.queued = false
			if e.satisfied() || s.leavingOnly && !e.leaving {
				continue
			}
			if l.withholds(s, e) {
				e.withheld = true
				continue
			}
			l.events++
			event := stream.Event{
				ID: l.id + "." + strconv.FormatUint(l.events, 36), Key: key, Verb: stream.Delete,
				TraceParent: content.TraceParent,
			}
			if present {
				event.Verb = stream.Apply
				event.Version, event.Revision, event.Data = content.Version, content.Revision, content.Data
			}
			if size > 0 && size+len(event.Data) > maxBatchBytes || len(batch.Events) == maxBatchEvents {
				cut()
			}
			absent = absent || !present
			s.sent(e, event)
			l.flights[event.ID] = key
			l.inFlight++
			l.bytes += len(event.Data)
			batch.Events = append(batch.Events, event)
			size += len(event.Data)
		}
	}
	cut()
	return out
}

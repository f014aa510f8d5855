package mirror

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// loop is all that one goroutine owns.
type loop struct {
	m       *Mirror
	rules   Rules
	link    *link.Link
	session *session
	queue   []stream.Message  // flushed, not yet taken by the session
	info    *stream.SpokeInfo // of Mirror.info, on this session

	jobs    map[stream.ResourceKey]*job // waiting or under way
	ready   []stream.ResourceKey        // whose job waits for a worker, oldest first
	working int                         // workers under way
	workers sync.WaitGroup
	ahead   map[stream.ResourceKey]ahead
	replies map[stream.EntryKey]Reply
	taken   map[stream.EntryKey]takenCommand // by this spoke
	// refusals and gone are the spoke's answers to Applications of the hub.
	refusals map[stream.EntryKey]stream.Refusal
	gone     map[stream.EntryKey]stream.Version
	failures map[stream.EntryKey]failure // commands that the spoke will not run
	refused  refusals                    // entries of the peer that we did not take
	// waiting holds the objects whose commands wait for the spoke.
	waiting map[stream.ResourceKey]bool
	// stale says why a command that waits is not to be sent any more.
	stale map[stream.ResourceKey]string
	// born holds the objects that show an operation which was born on the spoke.
	born    map[stream.ResourceKey]bool
	asked   map[stream.ResourceKey]Requests
	past    past                       // what is known of the history
	spawn   []func(context.Context)    // to be run beside the loop
	causes  map[stream.EntryKey]string // trace parents of what is sent
	effects map[stream.ResourceKey]effect
	later   map[stream.ResourceKey]delayed // upkeep that failed
	look    time.Time                      // when ahead, later, born and quiet must be looked at; zero for never
	ticked  time.Time                      // when time was last let pass
	apart   time.Time                      // since when there is no session; zero while there is one
	// pulses are what was last told of statuses, quiet the entries of which a newer
	// one is held back, until quietEnd.
	pulses   map[stream.EntryKey]pulse
	quiet    []stream.EntryKey
	quietEnd time.Time
}

// failure is the spoke's refusal of one version of an entry.
type failure struct {
	version stream.Version
	refusal stream.Refusal
}

// delayed is a moment to come; zero once it was used.
type delayed struct {
	at    time.Time
	delay time.Duration
}

// ahead is what a write returned, while the cache does not yet show it.
type ahead struct {
	object *backends.Object // nil: gone
	uid    string
	since  time.Time
}

// effect remembers which trace last changed an object.
type effect struct {
	context trace.SpanContext
	at      time.Time
}

// job is the work on one object. It is replaced, never changed, while a worker
// has it.
type job struct {
	events  map[stream.EntryKey]stream.Event // the newest of each entry
	tend    bool
	verify  bool
	queued  bool // stands in ready
	running bool
}

func newLoop(m *Mirror) *loop {
	return &loop{
		m:     m,
		rules: m.cfg.Rules,
		link: link.New(link.Config{
			Side: m.cfg.Rules.Side, Mode: m.cfg.Rules.Mode, Window: m.cfg.Window, WindowBytes: m.cfg.WindowBytes,
			Guard: m.cfg.Rules.Side == stream.Hub,
		}),
		jobs:     map[stream.ResourceKey]*job{},
		ahead:    map[stream.ResourceKey]ahead{},
		replies:  map[stream.EntryKey]Reply{},
		taken:    map[stream.EntryKey]takenCommand{},
		refusals: map[stream.EntryKey]stream.Refusal{},
		gone:     map[stream.EntryKey]stream.Version{},
		failures: map[stream.EntryKey]failure{},
		refused:  refusals{},
		waiting:  map[stream.ResourceKey]bool{},
		stale:    map[stream.ResourceKey]string{},
		born:     map[stream.ResourceKey]bool{},
		asked:    map[stream.ResourceKey]Requests{},
		causes:   map[stream.EntryKey]string{},
		effects:  map[stream.ResourceKey]effect{},
		later:    map[stream.ResourceKey]delayed{},
		pulses:   map[stream.EntryKey]pulse{},
	}
}

func (l *loop) run(ctx context.Context) {
	// Everything the cache holds is observed before the first connection, whether
	// or not the store has told of it yet.
	l.m.changed.take()
	l.part()
	l.observeStore()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var out chan<- stream.Message
		var message stream.Message
		if l.session != nil {
			if len(l.queue) == 0 {
				l.queue = l.link.Flush(time.Now(), l.load)
				l.tell()
			}
			if len(l.queue) > 0 {
				out, message = l.session.out, l.queue[0]
			}
		}
		for _, f := range l.spawn {
			l.workers.Go(func() { f(ctx) })
		}
		l.spawn = nil
		for len(l.ready) > 0 && l.working < l.m.cfg.Workers {
			l.start(ctx)
		}
		timer.Reset(l.sleep())
		select {
		case <-ctx.Done():
			return
		case f := <-l.m.inbox:
			f(l)
		case <-l.m.told:
			l.hold()
			l.doubt()
			l.accept()
		case <-l.m.changed.signal:
			l.observeAll(l.m.changed.take())
		case out <- message:
			l.queue = l.queue[1:]
		case o := <-l.m.results:
			l.finish(o)
		case <-timer.C:
			l.ticked = time.Now()
			l.step(link.Tick{})
			if !l.look.IsZero() && !l.look.After(l.ticked) {
				l.look = time.Time{}
				l.verify()
				l.retry()
				l.letGo()
				l.speak()
			}
		}
	}
}

// sleep is the time until something is due; an hour when nothing is.
func (l *loop) sleep() time.Duration {
	due := time.Now().Add(time.Hour)
	if next := l.link.Next(); !next.IsZero() && next.Before(due) {
		due = next
		if len(l.queue) > 0 && l.ticked.Add(stallTime).After(due) {
			due = l.ticked.Add(stallTime) // the heartbeat that is due cannot leave
		}
	}
	if !l.look.IsZero() && l.look.Before(due) {
		due = l.look
	}
	return max(time.Until(due), 0)
}

func (l *loop) attach(s *session) {
	if old := l.session; old != nil {
		l.end()
		old.end(stream.GoodbyeSuperseded, errors.New("superseded by a newer connection"))
	}
	l.session, l.apart = s, time.Time{}
	children := l.rules.Children
	l.rules.Children = s.peer.Children
	if l.rules.Side == stream.Spoke && (l.rules.HubUID != s.peer.HubUID || children != s.peer.Children) {
		l.rules.HubUID = s.peer.HubUID
		l.observeStore()
	}
	l.hold() // nothing leaves before what Hold was last told is known
	l.past, l.rules.HistoryID = past{}, ""
	l.announce() // before the digests: what follows is of that history
	l.step(link.Connected{ID: s.peer.Connection})
}

// tell queues what Tell was last told, unless this session has it.
func (l *loop) tell() {
	if info := l.m.info.Load(); info != l.info {
		l.info = info
		now := *info
		now.Told = time.Now()
		l.queue = append(l.queue, now)
	}
}

// hold passes on what Hold was last told.
func (l *loop) hold() {
	for _, c := range stream.Collections() {
		l.step(l.rules.paused(c, l.m.held.Load()))
	}
}

func (l *loop) detach(s *session) {
	if l.session == s {
		l.end()
	}
}

// end forgets the session and what it brought that no worker has taken: its
// authority ends with it, and the next digest tells what is still to be done.
func (l *loop) end() {
	close(l.session.over)
	l.session, l.queue, l.info = nil, nil, nil
	l.part()
	for _, j := range l.jobs {
		j.events = nil
	}
	l.link.Step(time.Now(), link.Disconnected{})
}

// part notes that there is no connection from now on.
func (l *loop) part() {
	l.apart = time.Now()
	l.lookAt(l.apart.Add(awayTime))
}

// letGo looks again at the operations of a spoke that has been away for long.
func (l *loop) letGo() {
	switch {
	case l.apart.IsZero():
	case time.Since(l.apart) < awayTime:
		l.lookAt(l.apart.Add(awayTime))
	default:
		l.observeAll(slices.Collect(maps.Keys(l.born)))
	}
}

func (l *loop) receive(s *session, msg stream.Message) {
	if l.session != s || closed(s.withdrawn) {
		return
	}
	switch msg := msg.(type) {
	case stream.History:
		if l.rules.Side == stream.Hub && msg != (stream.History{Token: msg.Token}) {
			l.breach(stream.ViolationDirection) // where the hub stands is not for the spoke to say
			return
		}
		l.heard(msg)
		return
	case stream.SpokeInfo:
		if l.rules.Side == stream.Spoke {
			l.breach(stream.ViolationDirection)
			return
		}
	case stream.Batch:
		if len(msg.Unsupported) > 0 && !s.puzzled {
			s.puzzled = true
			l.m.cfg.Log.Warn().Str("type", msg.Unsupported[0].Type).
				Msg("peer sent an event that this release does not know; it was answered so, and others of this connection are only counted")
		}
	}
	l.step(link.Received{Message: msg})
	switch msg := msg.(type) {
	case stream.SpokeInfo:
		l.m.cfg.Heard(msg)
	// Now the spoke may be known to hold what a command waits for.
	case stream.Digests, stream.Inventory:
		l.observeAll(slices.Collect(maps.Keys(l.waiting)))
	case stream.Applied:
		for _, r := range msg.Results {
			if key, ok := l.rules.Local(r.Key); ok && l.waiting[key] {
				l.observe(key)
			}
		}
	}
}

// breach ends the session since the peer broke the protocol.
func (l *loop) breach(v stream.Violation) {
	l.m.cfg.Log.Warn().Str("kind", string(v)).Msg("peer broke the protocol, closing the connection")
	s := l.session
	l.end()
	s.end(stream.GoodbyeProtocol, v.Err())
}

// step feeds the link and carries out what it asks for.
func (l *loop) step(in link.Input) {
	s := l.session
	for _, action := range l.link.Step(time.Now(), in) {
		switch a := action.(type) {
		case link.Apply:
			if l.session != s {
				return // an answer to an event before this one ended it
			}
			l.apply(a.Event)
		case link.Settled:
			l.settled(a)
		case link.Judge:
			l.judge()
		case link.Begin:
			l.beginHistory()
		case link.Disconnect:
			switch {
			case l.session == nil:
			case a.Cause == link.CauseProtocol:
				l.breach(a.Violation)
			default:
				s := l.session
				l.end()
				s.end("", errors.New(string(a.Cause)))
			}
			return
		}
	}
}

// apply queues an event for a worker.
func (l *loop) apply(e stream.Event) {
	key, ok := l.rules.Local(e.Key)
	if !ok {
		l.m.cfg.Metrics.received(e.Key.Collection, "refused")
		l.step(link.Held{Key: e.Key, Event: e.ID, Refusal: &stream.Refusal{
			Kind: stream.RefusalNotOwned, Message: "the entry is outside of what this link is about",
		}})
		return
	}
	j := l.job(key)
	if j.events == nil {
		j.events = map[stream.EntryKey]stream.Event{}
	}
	j.events[e.Key] = e
	l.schedule(key, j)
}

// settled takes the spoke's answer to an entry of ours.
func (l *loop) settled(a link.Settled) {
	result := "applied"
	if a.Refusal != nil {
		result = "refused"
		l.m.log.WithLevel(severity(*a.Refusal)).Stringer("resource", a.Key).Str("kind", string(a.Refusal.Kind)).
			Str("reason", a.Refusal.Message).Msg("peer did not apply an entry")
	}
	l.m.cfg.Metrics.sent(a.Key.Collection, result)
	if a.Refusal != nil && a.Refusal.Kind == stream.RefusalOutdated {
		l.step(link.Doubted{}) // within one history it does not last
	}
	if l.rules.Side != stream.Hub || !a.Current {
		return
	}
	key, _ := l.rules.Local(a.Key)
	switch a.Key.Collection {
	case stream.Commands:
		if a.Refusal != nil && a.Refusal.Kind != stream.RefusalUnavailable {
			l.failures[a.Key] = failure{version: a.Sent, refusal: *a.Refusal}
			l.observe(key)
		}
		return
	case stream.Applications:
	default:
		return
	}
	_, before := l.refusals[a.Key]
	if a.Refusal != nil {
		l.refusals[a.Key] = *a.Refusal
	} else {
		delete(l.refusals, a.Key)
	}
	if a.Gone {
		l.gone[a.Key] = a.Sent
	}
	if before || a.Refusal != nil || a.Gone {
		l.observe(key)
	}
}

func (l *loop) observeAll(keys []stream.ResourceKey) {
	for _, key := range keys {
		l.observe(key)
	}
}

func (l *loop) observeStore() {
	for _, o := range l.m.cfg.Store.List(stream.AppProject, l.rules.Namespace) {
		l.observe(o.Key)
	}
	for _, o := range l.m.cfg.Store.List(stream.Application, l.rules.namespace()) {
		l.observe(o.Key)
	}
}

// observe looks at one object and tells the link what it means.
func (l *loop) observe(key stream.ResourceKey) {
	entries := l.rules.Keys(key)
	if len(entries) == 0 {
		return
	}
	if j := l.jobs[key]; j != nil && j.running {
		return // what is seen in the middle of a write misleads; finish looks again
	}
	current := l.current(key)
	l.note(key, current)
	for _, entry := range entries {
		switch {
		case l.rules.sources(entry.Collection):
			l.desire(entry, key, current)
		case current == nil:
			delete(l.replies, entry)
			delete(l.taken, entry)
			l.step(link.Held{Key: entry})
		case entry.Collection == stream.Commands:
			l.step(link.Held{Key: entry, Version: l.taken[entry].held(*current)})
		default:
			var last *Reply
			if reply, ok := l.replies[entry]; ok {
				last = &reply
			}
			l.step(link.Held{Key: entry, Version: l.rules.Held(entry.Collection, *current, last)})
		}
	}
	if current == nil {
		l.forget(key)
		return
	}
	delete(l.waiting, key)
	delete(l.born, key)
	if operation := current.child("operation"); l.rules.Side == stream.Hub && operation != nil {
		switch {
		case bornOnSpoke(operation) != nil:
			l.born[key] = true
		case !sent(*current):
			l.waiting[key] = true
		}
	}
	if !l.waiting[key] {
		delete(l.stale, key)
	}
	if !l.later[key].at.IsZero() {
		return
	}
	if _, needed := l.rules.Tend(*current, l.situation(key, *current)); needed {
		j := l.job(key)
		j.tend = true
		l.schedule(key, j)
	}
}

func (l *loop) desire(entry stream.EntryKey, key stream.ResourceKey, current *object) {
	var content link.Content
	if current != nil {
		if c, present := l.rules.Content(entry.Collection, *current, l.asked[key]); present {
			content = c
		}
	}
	if l.holdBack(entry, current, content) {
		return
	}
	if before := l.link.Desired(entry); before != content.Version {
		l.traceCause(entry, key)
		delete(l.refusals, entry) // of the version before
	}
	if content.Version.Absent() && l.link.Believed(entry).Absent() {
		delete(l.causes, entry) // nothing will be sent
	}
	l.step(link.Desired{Key: entry, Version: content.Version, Leaving: content.Leaving})
}

// traceCause starts the trace of a change, or goes on with the one that made it.
func (l *loop) traceCause(entry stream.EntryKey, key stream.ResourceKey) {
	ctx := context.Background() //nolint:forbidigo // only a carrier for the parent span
	if e, ok := l.effects[key]; ok && time.Since(e.at) < traceTime {
		ctx = trace.ContextWithRemoteSpanContext(ctx, e.context)
	}
	_, span := l.m.cfg.Tracer.Start(ctx, "mirror.observe", trace.WithAttributes(
		attribute.String("argomesh.resource", entry.String()), attribute.Stringer("argomesh.agent", l.rules.Agent)))
	span.End()
	if parent := traceParent(span.SpanContext()); parent != "" {
		l.causes[entry] = parent
	}
}

func (l *loop) forget(key stream.ResourceKey) {
	delete(l.effects, key)
	delete(l.later, key)
	delete(l.waiting, key)
	delete(l.stale, key)
	delete(l.born, key)
	delete(l.asked, key)
	for _, entry := range l.rules.Keys(key) {
		delete(l.refusals, entry)
		delete(l.gone, entry)
		delete(l.failures, entry)
	}
}

// note gives the requests of an object their ids for as long as they stand.
func (l *loop) note(key stream.ResourceKey, current *object) {
	if l.rules.Side != stream.Hub || current == nil {
		return
	}
	if asked := l.asked[key].of(*current, uuid.NewString); asked != (Requests{}) {
		l.asked[key] = asked
	} else {
		delete(l.asked, key)
	}
}

func (l *loop) situation(key stream.ResourceKey, current object) Situation {
	s := Situation{Now: time.Now(), NewID: uuid.NewString}
	entry := stream.EntryKey{Collection: stream.Applications, Name: key.Name}
	command := stream.EntryKey{Collection: stream.Commands, Name: key.Name}
	// A command that may have been sent into another history is one too many.
	s.Present = l.session != nil && l.past.judged && !l.past.broken && (l.rules.Mode == stream.Autonomous ||
		l.link.Believed(entry).SourceUID == l.rules.sourceUID(current))
	if !l.apart.IsZero() {
		s.Away = time.Since(l.apart)
	}
	s.HistoryBroken = l.stale[key]
	if f, ok := l.failures[command]; ok && f.version == l.link.Desired(command) {
		s.Failure = &f.refusal
	}
	if refusal, ok := l.refusals[entry]; ok {
		s.Refusal = &refusal
	}
	if version, ok := l.gone[entry]; ok {
		content, present := l.rules.Content(stream.Applications, current, Requests{})
		s.Gone = present && content.Leaving && content.Version == version
	}
	return s
}

// current is the newest known state of an object: the cache's, or what a write
// of ours returned if the cache is behind it.
func (l *loop) current(key stream.ResourceKey) *object {
	o, ok := l.newest(key)
	if !ok {
		return nil
	}
	parsed, err := parseObject(o)
	if err != nil {
		l.m.cfg.Log.Error().Err(err).Stringer("resource", key).Msg("object of the store is not JSON")
		return nil
	}
	return &parsed
}

func (l *loop) newest(key stream.ResourceKey) (backends.Object, bool) {
	cached, ok := l.m.cfg.Store.Get(key)
	a, written := l.ahead[key]
	switch {
	case !written:
		return cached, ok
	case a.object == nil && ok && cached.UID == a.uid:
		return backends.Object{}, false // the cache has not seen it go
	case a.object != nil && (!ok || revisionOf(cached.ResourceVersion) < revisionOf(a.object.ResourceVersion)):
		return *a.object, true
	}
	delete(l.ahead, key)
	return cached, ok
}

// verify asks the API server about writes that the cache did not show in time.
func (l *loop) verify() {
	for key, a := range l.ahead {
		if time.Since(a.since) < settleTime {
			l.lookAt(a.since.Add(settleTime))
			continue
		}
		a.since = time.Now()
		l.lookAt(a.since.Add(settleTime))
		l.ahead[key] = a
		if _, _ = l.newest(key); l.ahead[key] == (ahead{}) {
			continue // it has caught up
		}
		j := l.job(key)
		j.verify = true
		l.schedule(key, j)
	}
}

// load is link.Load.
func (l *loop) load(entry stream.EntryKey) (link.Content, bool) {
	var content link.Content
	present := false
	if key, ok := l.rules.Local(entry); ok {
		if current := l.current(key); current != nil {
			if content, present = l.rules.Content(entry.Collection, *current, l.asked[key]); present {
				l.past.sent = max(l.past.sent, content.Revision)
				l.told(entry, current, content)
			}
		}
	}
	if !present {
		content = link.Content{}
	}
	content.TraceParent = l.causes[entry]
	delete(l.causes, entry)
	return content, present
}

func (l *loop) job(key stream.ResourceKey) *job {
	j := l.jobs[key]
	if j == nil {
		j = &job{}
		l.jobs[key] = j
	}
	return j
}

// schedule puts the job into the line unless it stands in it, or is under way.
func (l *loop) schedule(key stream.ResourceKey, j *job) {
	if j.running || j.queued {
		return // finish comes back to a running one
	}
	j.queued = true
	l.ready = append(l.ready, key)
}

func (l *loop) task(key stream.ResourceKey) task {
	j := l.jobs[key]
	t := task{key: key, rules: l.rules, events: j.events, tend: j.tend, verify: j.verify, asked: l.asked[key]}
	if s := l.session; s != nil {
		t.withdrawn = s.withdrawn
	}
	if o, ok := l.newest(key); ok {
		t.current = &o
	}
	if t.current != nil && t.tend {
		if parsed := l.current(key); parsed != nil {
			t.situation = l.situation(key, *parsed)
		}
	}
	return t
}

// start gives the oldest ready job to a worker.
func (l *loop) start(ctx context.Context) {
	t := l.task(l.ready[0])
	l.ready = l.ready[1:]
	*l.jobs[t.key] = job{running: true}
	l.working++
	l.workers.Go(func() { l.m.work(ctx, t) })
}

func (l *loop) finish(o outcome) {
	l.working--
	j := l.jobs[o.key]
	j.running = false
	if o.known {
		l.ahead[o.key] = ahead{object: o.object, uid: o.uid, since: time.Now()}
		l.lookAt(time.Now().Add(settleTime))
	}
	if o.cause.IsValid() {
		l.effects[o.key] = effect{context: o.cause, at: time.Now()}
	}
	for _, r := range o.results {
		entry := r.event.Key
		held := r.held
		switch {
		case entry.Collection == stream.Commands && r.refusal == nil && r.event.Verb == stream.Apply:
			held = r.event.Version
			l.taken[entry] = takenOf(r.event)
		case entry.Collection == stream.Commands && r.event.Verb == stream.Delete:
			delete(l.taken, entry)
			held = stream.Version{}
		case entry.Collection == stream.Commands:
			held = l.taken[entry].version
		case r.reply != nil:
			l.replies[entry] = *r.reply
		case r.implied:
			delete(l.replies, entry)
		}
		result := "applied"
		if r.refusal != nil {
			result = "refused"
			l.m.log.WithLevel(severity(*r.refusal)).Stringer("resource", entry).Str("kind", string(r.refusal.Kind)).
				Str("reason", r.refusal.Message).Msg("entry was not applied")
		}
		l.m.cfg.Metrics.received(entry.Collection, result)
		l.refused.note(entry, r.refusal, time.Now())
		l.step(link.Held{Key: entry, Version: held, Event: r.event.ID, Refusal: r.refusal})
	}
	if o.failed {
		l.postpone(o.key)
	} else {
		delete(l.later, o.key)
	}
	if len(j.events) > 0 || j.tend || j.verify {
		l.schedule(o.key, j)
		return
	}
	delete(l.jobs, o.key)
	l.observe(o.key)
}

// postpone lets time pass before upkeep that failed is tried again.
func (l *loop) postpone(key stream.ResourceKey) {
	d := l.later[key]
	d.delay = min(max(2*d.delay, time.Second), 30*time.Second)
	d.at = time.Now().Add(d.delay)
	l.later[key] = d
	l.lookAt(d.at)
}

// lookAt sees to it that verify, retry and speak run at t at the latest.
func (l *loop) lookAt(t time.Time) {
	if l.look.IsZero() || t.Before(l.look) {
		l.look = t
	}
}

// retry looks again at the objects whose postponement is over.
func (l *loop) retry() {
	for key, d := range l.later {
		switch {
		case d.at.IsZero():
		case d.at.After(time.Now()):
			l.lookAt(d.at)
		default:
			d.at = time.Time{}
			l.later[key] = d
			l.observe(key)
		}
	}
}

// severity is lower for what passes by itself.
func severity(r stream.Refusal) zerolog.Level {
	if r.Kind == stream.RefusalUnavailable {
		return zerolog.DebugLevel
	}
	return zerolog.WarnLevel
}

func (l *loop) stats() Stats {
	s := Stats{
		Applications: l.link.Entries(stream.Applications),
		AppProjects:  l.link.Entries(stream.AppProjects),
		Agreed:       l.link.Agreed() && len(l.jobs) == 0 && len(l.quiet) == 0,
		Withheld:     l.link.Withheld(),
		Judged:       l.past.judged,
		Stored:       l.past.stored,
		Parked:       l.parked(),
	}
	s.Begin, s.Replaces = l.mayBegin()
	s.Begins = l.past.begins
	return s
}

package mirror

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/schema"
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
	account account                     // which of those that wait goes to a worker when
	working int                         // workers under way
	burst   bool                        // there were many of jobs, ahead or made
	workers sync.WaitGroup
	ahead   map[stream.ResourceKey]ahead
	replies map[stream.EntryKey]Reply
	taken   map[stream.EntryKey]takenCommand // by this spoke
	// refusals and gone are the spoke's answers to Applications of the hub.
	refusals map[stream.EntryKey]stream.Refusal
	contests contests
	spent    *string // of Mirror.accept, what was used last; nil for nothing
	gone     map[stream.EntryKey]stream.Version
	// ending are the Applications of the hub that are asked to go with their workloads,
	// and since when, kept those, by UID, that go without on somebody's word, and gate is
	// what the link was last told of their number.
	ending   map[stream.EntryKey]time.Time
	kept     map[stream.ResourceKey]string
	gate     link.Cascades
	failures map[stream.EntryKey]failure        // commands that the spoke will not run
	refused  refusals                           // entries of the peer that we did not take
	lacking  map[stream.EntryKey]stream.Refusal // mirrors of projects that lack roles
	// waiting holds the objects whose commands wait for the spoke.
	waiting map[stream.ResourceKey]waiting
	// stale says why a command that waits is not to be sent any more.
	stale map[stream.ResourceKey]string
	// born holds the objects that show an operation which was born on the spoke.
	born map[stream.ResourceKey]bool
	// answered holds the objects that show what the spoke answered, maybe to another
	// principal.
	answered map[stream.ResourceKey]bool
	asked    map[stream.ResourceKey]Requests
	past     past // what is known of the history
	last     lastLink
	// judgements counts those that began, on all connections.
	judgements uint64
	spawn      []func(context.Context) // to be run beside the loop
	// warned holds the objects that say what of them was left out.
	warned map[stream.ResourceKey]bool
	// weights are what the peer's objects have, and bounds what they may.
	weights weights
	bounds  Bounds
	causes  map[stream.EntryKey]string // trace parents of what is sent
	// made is content of what is about to be sent, and madeBytes the size of its data.
	made      map[stream.EntryKey]made
	madeBytes int
	// opened gives back the room of each event that is not answered, by its id.
	opened  map[string]func()
	effects map[stream.ResourceKey]effect
	later   map[stream.ResourceKey]delayed // upkeep that failed
	// unfamiliar are objects that the API server is being asked about, since the peer holds
	// them and the cache never showed them; the time is when to ask again, zero while that
	// is under way.
	unfamiliar map[stream.ResourceKey]time.Time
	look       time.Time // when ahead, later, born and quiet must be looked at; zero for never
	ticked     time.Time // when time was last let pass
	apart      time.Time // since when there is no session; zero while there is one
	// pulses are what was last told of statuses, quiet the entries of which a newer
	// one is held back, until quietEnd.
	pulses   map[stream.EntryKey]pulse
	quiet    []stream.EntryKey
	quietEnd time.Time
	// seen are deletions that are being confirmed, confirming says that some are asked
	// about, and confirmAgain is when to ask again; zero for not.
	seen         map[stream.ResourceKey]seenDeletion
	confirming   bool
	confirmAgain time.Time
	// needs says which Secrets of repositories are for the agent, and unselected that
	// it has changed since they were looked at.
	needs      needs
	unselected bool
	// uses says which Applications name an AppProject, and revisited for which projects
	// that has changed since they were looked at.
	uses      uses
	revisited []string
	// gates say which Applications of the hub their AppProjects admit.
	gates gates
	// awaiting are entries of the peer that wait for an AppProject.
	awaiting awaiting
	// globals are merged into AppProjects, and unmerged says that they, or one of those,
	// have changed since AppProjects were looked at.
	globals  globals
	unmerged bool
	// tidings are what the spoke's Argo CD said of Applications.
	tidings tidings
	// proofs say which Applications are known to be there still.
	proofs proofs
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

// ahead is what a write returned, while the cache does not yet show it, or shows that
// revision of it by an older definition.
type ahead struct {
	object *backends.Object // nil: gone
	uid    string
	since  time.Time
	// schemas are those by which it was planned, and shown says that the cache has that
	// revision.
	schemas map[stream.Kind]*schema.Schema
	shown   bool
}

// replaces reports whether the cache shows that revision by another definition than the one
// by which it was written and answered: for a while after a definition has changed, an API
// server's watches go on by the one before. That no other revision is there says that
// nobody has changed it.
func (a ahead) replaces(cached backends.Object, known map[stream.Kind]*schema.Schema) bool {
	return a.object != nil && cached.UID == a.object.UID && cached.ResourceVersion == a.object.ResourceVersion &&
		!bytes.Equal(cached.Raw, a.object.Raw) && maps.Equal(a.schemas, known)
}

// effect remembers which trace last changed an object.
type effect struct {
	context trace.SpanContext
	at      time.Time
}

// job is the work on one object. It is replaced, never changed, while a worker
// has it.
type job struct {
	events  map[stream.EntryKey]stream.Event  // the newest of each entry
	seen    map[stream.EntryKey]string        // resourceVersion of the object when that came; empty for none
	newer   map[stream.EntryKey]chan struct{} // task.newer of the task under way
	tend    bool
	verify  bool
	queued  bool // stands in the account's line, or rests
	granted int  // bytes, of one that is under way
	running bool
}

func newLoop(m *Mirror) *loop {
	return &loop{
		m:     m,
		rules: m.cfg.Rules,
		link: link.New(link.Config{
			Side: m.cfg.Rules.Side, Mode: m.cfg.Rules.Mode, Window: m.cfg.Window, WindowBytes: m.cfg.WindowBytes,
			Guard: m.cfg.Rules.Side == stream.Hub, Verify: true,
		}),
		jobs:     map[stream.ResourceKey]*job{},
		ahead:    map[stream.ResourceKey]ahead{},
		replies:  map[stream.EntryKey]Reply{},
		taken:    map[stream.EntryKey]takenCommand{},
		refusals: map[stream.EntryKey]stream.Refusal{}, contests: contests{},
		gone:       map[stream.EntryKey]stream.Version{},
		ending:     map[stream.EntryKey]time.Time{},
		kept:       map[stream.ResourceKey]string{},
		failures:   map[stream.EntryKey]failure{},
		refused:    refusals{},
		lacking:    map[stream.EntryKey]stream.Refusal{},
		waiting:    map[stream.ResourceKey]waiting{},
		stale:      map[stream.ResourceKey]string{},
		born:       map[stream.ResourceKey]bool{},
		answered:   map[stream.ResourceKey]bool{},
		asked:      map[stream.ResourceKey]Requests{},
		warned:     map[stream.ResourceKey]bool{},
		causes:     map[stream.EntryKey]string{},
		made:       map[stream.EntryKey]made{},
		opened:     map[string]func(){},
		effects:    map[stream.ResourceKey]effect{},
		later:      map[stream.ResourceKey]delayed{},
		unfamiliar: map[stream.ResourceKey]time.Time{},
		pulses:     map[stream.EntryKey]pulse{},
		seen:       map[stream.ResourceKey]seenDeletion{},
		weights:    newWeights(), bounds: m.cfg.Bounds,
		needs: newNeeds(),
		uses:  newUses(),
		gates: newGates(), awaiting: newAwaiting(),
		tidings: newTidings(m.cfg.Rules.Side),
		proofs:  newProofs(),
	}
}

func (l *loop) run(ctx context.Context) {
	// Everything the cache holds is observed before the first connection, whether
	// or not the store has told of it yet.
	l.m.changed.take()
	l.last.since = time.Now()
	l.part()
	l.rebound()
	l.rules.Schemas = l.m.schemas()
	l.countAll()
	timer := time.NewTimer(0)
	defer timer.Stop()
	do := func() {} // what is to be done in the turn
	for {
		turn := l.m.compute()
		do()
		l.settle()
		l.mergeGlobals()
		l.regate()
		l.revisit()
		l.settleCascades()
		l.selectRepositories()
		var out chan<- stream.Message
		var message stream.Message
		if l.session != nil {
			if len(l.queue) == 0 {
				l.queue = l.link.Flush(time.Now(), l.load)
				l.askUnfamiliar()
				l.tell()
			}
			if len(l.queue) == 0 {
				l.say()
			}
			if len(l.queue) > 0 {
				out, message = l.session.out, l.queue[0]
			}
		}
		for _, f := range l.spawn {
			l.workers.Go(func() { f(ctx) })
		}
		l.spawn = nil
		l.startJobs(ctx)
		l.showEvents(ctx)
		turn.End()
		timer.Reset(l.sleep())
		select {
		case <-ctx.Done():
			return
		case f := <-l.m.inbox:
			do = func() { f(l) }
		case <-l.m.told:
			do = l.hear
		case <-l.m.changed.signal:
			do = l.catchUp
		case out <- message:
			do = func() {
				l.queue = l.queue[1:]
				l.said(message)
			}
		case o := <-l.m.results:
			do = func() { l.finish(o) }
		case <-timer.C:
			do = l.tick
		}
	}
}

// hear looks again at what the process was told of the peer.
func (l *loop) hear() {
	l.hold()
	l.showLink()
	l.doubt()
	l.accept()
	l.weighCascades()
	l.rebound()
	l.learn()
}

// tick lets time pass.
func (l *loop) tick() {
	l.ticked = time.Now()
	l.step(link.Tick{Waits: l.session.waits()})
	if l.look.IsZero() || l.look.After(l.ticked) {
		return
	}
	l.look = time.Time{}
	l.verify()
	l.retry()
	l.askAgain()
	l.letGo()
	l.confirmDeletionsLater()
	l.prove()
	l.speak()
	l.weighCascades()
	l.calm()
}

// maxSpare is how many entries there may be of what is under way before that counts
// as a burst.
const maxSpare = 64

// settle gives back the memory that a burst took, once it is over: a map keeps room
// for the most that it ever held, and when a spoke connects that may be all it has.
func (l *loop) settle() {
	switch most := max(len(l.jobs), len(l.ahead), len(l.made)); {
	case most > maxSpare:
		l.burst = true
	case most == 0 && l.burst:
		l.burst = false
		l.jobs, l.ahead, l.made = map[stream.ResourceKey]*job{}, map[stream.ResourceKey]ahead{}, map[stream.EntryKey]made{}
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
	if next := l.account.next(l.free()); !next.IsZero() && next.Before(due) {
		due = next
	}
	if next := l.eventsDue(); !next.IsZero() && next.Before(due) {
		due = next
	}
	return max(time.Until(due), 0)
}

func (l *loop) attach(s *session) {
	if old := l.session; old != nil {
		l.end()
		old.end(stream.GoodbyeSuperseded, ErrSuperseded)
	}
	l.session, l.apart = s, time.Time{}
	children := l.rules.Children
	l.rules.Children = s.peer.Children
	if l.rules.WriteCredentials != s.peer.WriteCredentials {
		l.rules.WriteCredentials, l.unselected = s.peer.WriteCredentials, true
	}
	if l.rules.GivesUp != s.peer.GivesUp {
		l.rules.GivesUp = s.peer.GivesUp
		l.observe(stream.ResourceKey{Kind: stream.AppProject, Namespace: l.rules.Namespace, Name: defaultProject})
	}
	if l.rules.Side == stream.Spoke {
		news := l.rules.HubUID != s.peer.HubUID || children != s.peer.Children || !slices.Equal(l.rules.FormerHubs, s.peer.FormerHubs)
		l.rules.HubUID, l.rules.FormerHubs, l.rules.Inherits = s.peer.HubUID, s.peer.FormerHubs, s.peer.Inherits
		if news {
			l.observeStore()
		}
	}
	l.hold() // nothing leaves before what Hold was last told is known
	l.past, l.rules.HistoryID = past{}, ""
	l.announce() // before the digests: what follows is of that history
	l.step(link.Connected{ID: s.peer.Connection, SeenDeletes: s.peer.SeenDeletes})
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

// hold passes on what Hold was last told, and what cannot be told.
func (l *loop) hold() {
	for _, c := range stream.Collections() {
		untold := l.globals.err != nil && (c == stream.AppProjects || c == stream.Repositories)
		l.step(l.rules.paused(c, untold || l.m.held.Load()))
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
	l.partEvents()
	l.session, l.queue, l.info = nil, nil, nil
	clear(l.made)
	l.madeBytes = 0
	l.part()
	for _, j := range l.jobs {
		j.events = nil
	}
	l.closeAll()
	l.awaiting = newAwaiting()
	l.link.Step(time.Now(), link.Disconnected{})
}

// part notes that there is no connection from now on.
func (l *loop) part() {
	l.apart = time.Now()
	l.lookAt(l.awayAt())
}

// letGo looks again at the operations of a spoke that has been away for long.
func (l *loop) letGo() {
	switch {
	case l.apart.IsZero():
	case l.away() < awayTime:
		l.lookAt(l.awayAt())
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
	case stream.SpokeInfo, stream.ApplicationEvents:
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
	case stream.ApplicationEvents:
		l.hearEvents(msg)
	case stream.Heartbeat:
		if !s.beaten { // by now it has told what it does not keep
			s.beaten = true
			l.observeAll(slices.Collect(maps.Keys(l.warned)))
		}
	// Now the spoke may be known to hold what a command waits for.
	case stream.Digests, stream.Inventory:
		l.observeAll(slices.Collect(maps.Keys(l.waiting)))
		l.lookAtApplications(maps.Keys(l.gates.barred))
		l.revisitAll()
		l.observeAll(slices.Collect(maps.Keys(l.kept)))
		l.observeAll(slices.Collect(maps.Keys(l.answered)))
	case stream.Applied:
		for _, r := range msg.Results {
			if key, ok := l.rules.Local(r.Key); ok && (l.waits(key) || l.kept[key] != "") {
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
	if held, ok := in.(link.Held); ok {
		l.close(held.Event)
	}
	for _, action := range l.link.Step(time.Now(), in) {
		switch a := action.(type) {
		case link.Apply:
			if l.session != s {
				return // an answer to an event before this one ended it
			}
			l.apply(l.open(a.Event))
		case link.Settled:
			l.settled(a)
		case link.Contested:
			if key, ok := l.rules.Local(a.Key); ok {
				l.observe(key)
			}
		case link.Taken:
			if key, ok := l.rules.Local(a.Key); ok {
				l.observe(key)
			}
		case link.Shortened:
			l.shortened(a.Key)
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
		refusal := l.rules.outside(e.Key)
		if e.Verb == stream.Apply {
			l.refused.note(e, refusal, time.Now())
		}
		l.step(link.Held{Key: e.Key, Event: e.ID, Refusal: refusal})
		return
	}
	j := l.job(key)
	if j.events == nil {
		j.events, j.seen = map[stream.EntryKey]stream.Event{}, map[stream.EntryKey]string{}
	}
	current, _ := l.newest(key)
	j.events[e.Key], j.seen[e.Key] = e, current.ResourceVersion
	if newer := j.newer[e.Key]; newer != nil && !closed(newer) {
		close(newer)
	}
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
	if a.Undone != "" {
		l.m.cfg.Metrics.undone(a.Key.Collection)
	}
	l.contradicted(a)
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
	if before || a.Refusal != nil || a.Gone || l.answered[key] {
		l.observe(key)
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
		Agreed:       l.link.Agreed() && !l.fights() && len(l.jobs) == 0 && len(l.quiet) == 0,
		Withheld:     l.link.Withheld(),
		Judged:       l.past.judged,
		Stored:       l.past.stored,
		Parked:       l.parked(),
		Dropped:      l.link.AllDropped(),
	}
	if l.spent != nil && l.spent == l.m.accept.Load() {
		s.Spent = *l.spent
	}
	s.Over, s.Delayed = l.overBudget()
	s.Begin, s.Replaces = l.mayBegin()
	s.Begins = l.past.begins
	return s
}

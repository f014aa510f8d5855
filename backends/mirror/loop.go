package mirror

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends/admission"
	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/needs"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/refusals"
	"github.com/argomesh/argomesh/backends/statuses"
	"github.com/argomesh/argomesh/backends/view"
	"github.com/argomesh/argomesh/backends/worker"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// loop is all that one goroutine owns.
type loop struct {
	*core
	witness    *witness
	outbox     *outbox
	projects   *projects
	removals   *removals
	events     *appEvents
	history    *history
	commands   *commands
	answers    *answers
	inbox      *inbox
	connection *connection
	work       *work
}

func newLoop(m *Mirror) *loop {
	c := &core{
		m:     m,
		rules: m.cfg.Rules,
		link: link.New(link.Config{
			Side: m.cfg.Rules.Side, Mode: m.cfg.Rules.Mode, Window: m.cfg.Window, WindowBytes: m.cfg.WindowBytes,
			Guard: m.cfg.Rules.Side == stream.Hub, Verify: true,
		}),
		view: view.New(m.cfg.Store, m.cfg.Log),
	}
	l := &loop{
		core: c,

		witness:    &witness{core: c, seen: map[stream.ResourceKey]seenDeletion{}, proofs: newProofs()},
		outbox:     &outbox{core: c, made: map[stream.EntryKey]made{}, causes: map[stream.EntryKey]string{}, effects: map[stream.ResourceKey]effect{}, pulses: map[stream.EntryKey]statuses.Pulse{}},
		projects:   &projects{core: c, gates: admission.NewGates(), needs: needs.NewNeeds(), uses: needs.NewUses()},
		removals:   &removals{core: c, ending: map[stream.EntryKey]time.Time{}, kept: map[stream.ResourceKey]string{}},
		events:     &appEvents{core: c, tidings: newTidings(m.cfg.Rules.Side)},
		history:    &history{core: c},
		commands:   &commands{core: c, waiting: map[stream.ResourceKey]waiting{}, stale: map[stream.ResourceKey]string{}, born: map[stream.ResourceKey]bool{}, answered: map[stream.ResourceKey]bool{}, asked: map[stream.ResourceKey]operations.Requests{}, failures: map[stream.EntryKey]failure{}},
		answers:    &answers{core: c, refused: refusals.Refusals{}, contests: refusals.Contests{}, awaiting: refusals.NewAwaiting(), lacking: map[stream.EntryKey]stream.Refusal{}, warned: map[stream.ResourceKey]bool{}, refusals: map[stream.EntryKey]stream.Refusal{}, gone: map[stream.EntryKey]stream.Version{}},
		inbox:      &inbox{core: c, opened: map[string]func(){}, replies: map[stream.EntryKey]ownership.Reply{}, taken: map[stream.EntryKey]operations.TakenCommand{}, weights: bounds.NewWeights(), bounds: m.cfg.Bounds},
		connection: &connection{core: c},
		work:       &work{core: c, unfamiliar: map[stream.ResourceKey]time.Time{}},
	}
	c.l = l
	c.jobs = l.work.newJobs()
	return l
}

func (l *loop) run(ctx context.Context) {
	// Everything the cache holds is observed before the first connection, whether
	// or not the store has told of it yet.
	l.m.changed.Take()
	l.connection.last.since = time.Now()
	l.connection.part()
	l.inbox.rebound()
	l.know(l.m.schemas())
	l.removals.countAll()
	timer := time.NewTimer(0)
	defer timer.Stop()
	do := func() {} // what is to be done in the turn
	for {
		turn := l.m.worker.Compute()
		do()
		l.settle()
		l.projects.mergeGlobals()
		l.projects.regate()
		l.projects.revisit()
		l.removals.settle()
		l.projects.selectRepositories()
		var out chan<- stream.Message
		var message stream.Message
		if l.session != nil {
			if len(l.connection.queue) == 0 {
				l.connection.queue = l.link.Flush(time.Now(), l.load)
				l.work.askUnfamiliar()
				l.connection.tell()
			}
			if len(l.connection.queue) == 0 {
				l.events.say()
			}
			if len(l.connection.queue) > 0 {
				out, message = l.session.out, l.connection.queue[0]
			}
		}
		for _, f := range l.spawn {
			l.work.workers.Go(func() { f(ctx) })
		}
		l.spawn = nil
		l.work.startJobs(ctx)
		l.events.show(ctx)
		turn.End()
		timer.Reset(l.sleep())
		select {
		case <-ctx.Done():
			return
		case f := <-l.m.inbox:
			do = func() { f(l) }
		case <-l.m.told:
			do = l.hear
		case <-l.m.changed.Signal:
			do = l.catchUp
		case out <- message:
			do = func() {
				l.connection.queue = l.connection.queue[1:]
				l.events.said(message)
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
	l.connection.showLink()
	l.history.doubt()
	l.history.accept()
	l.removals.weigh()
	l.inbox.rebound()
	l.learn()
}

// tick lets time pass.
func (l *loop) tick() {
	l.connection.ticked = time.Now()
	l.step(link.Tick{Waits: l.session.waits()})
	if l.look.IsZero() || l.look.After(l.connection.ticked) {
		return
	}
	l.look = time.Time{}
	l.work.verify()
	l.work.retry()
	l.work.askAgain()
	l.connection.letGo()
	l.witness.confirmLater()
	l.witness.prove()
	l.outbox.speak()
	l.removals.weigh()
	l.answers.calm()
}

// maxSpare is how many entries there may be of what is under way before that counts
// as a burst.
const maxSpare = 64

// settle gives back the memory that a burst took, once it is over: a map keeps room
// for the most that it ever held, and when a spoke connects that may be all it has.
func (l *loop) settle() {
	switch most := max(l.jobs.Len(), l.view.Len(), len(l.outbox.made)); {
	case most > maxSpare:
		l.work.burst = true
	case most == 0 && l.work.burst:
		l.work.burst = false
		l.outbox.made = map[stream.EntryKey]made{}
		l.jobs.Shrink()
		l.view.Shrink()
	}
}

// sleep is the time until something is due; an hour when nothing is.
func (l *loop) sleep() time.Duration {
	due := time.Now().Add(time.Hour)
	if next := l.link.Next(); !next.IsZero() && next.Before(due) {
		due = next
		if len(l.connection.queue) > 0 && l.connection.ticked.Add(stallTime).After(due) {
			due = l.connection.ticked.Add(stallTime) // the heartbeat that is due cannot leave
		}
	}
	if !l.look.IsZero() && l.look.Before(due) {
		due = l.look
	}
	if next := l.jobs.Due(); !next.IsZero() && next.Before(due) {
		due = next
	}
	if next := l.events.due(); !next.IsZero() && next.Before(due) {
		due = next
	}
	return max(time.Until(due), 0)
}

// hold passes on what Hold was last told, and what cannot be told.
func (l *loop) hold() {
	for _, c := range stream.Collections() {
		untold := l.projects.globals.Err != nil && (c == stream.AppProjects || c == stream.Repositories)
		l.step(l.rules.Paused(c, untold || l.m.held.Load()))
	}
}

func (l *loop) receive(s *session, msg stream.Message) {
	if l.session != s || worker.Closed(s.withdrawn) {
		return
	}
	switch msg := msg.(type) {
	case stream.History:
		if l.rules.Side == stream.Hub && msg != (stream.History{Token: msg.Token}) {
			l.connection.breach(stream.ViolationDirection) // where the hub stands is not for the spoke to say
			return
		}
		l.history.heard(msg)
		return
	case stream.SpokeInfo, stream.ApplicationEvents:
		if l.rules.Side == stream.Spoke {
			l.connection.breach(stream.ViolationDirection)
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
		l.events.hear(msg)
	case stream.Heartbeat:
		if !s.beaten { // by now it has told what it does not keep
			s.beaten = true
			l.observeAll(slices.Collect(maps.Keys(l.answers.warned)))
		}
	// Now the spoke may be known to hold what a command waits for.
	case stream.Digests, stream.Inventory:
		l.observeAll(slices.Collect(maps.Keys(l.commands.waiting)))
		l.projects.lookAtApplications(maps.Keys(l.projects.gates.Barred))
		l.projects.revisitAll()
		l.observeAll(slices.Collect(maps.Keys(l.removals.kept)))
		l.observeAll(slices.Collect(maps.Keys(l.commands.answered)))
	case stream.Applied:
		for _, r := range msg.Results {
			if key, ok := l.rules.Local(r.Key); ok && (l.commands.waits(key) || l.removals.kept[key] != "") {
				l.observe(key)
			}
		}
	}
}

// step feeds the link and carries out what it asks for.
func (l *loop) step(in link.Input) {
	s := l.session
	if held, ok := in.(link.Held); ok {
		l.inbox.close(held.Event)
	}
	for _, action := range l.link.Step(time.Now(), in) {
		switch a := action.(type) {
		case link.Apply:
			if l.session != s {
				return // an answer to an event before this one ended it
			}
			l.apply(l.inbox.open(a.Event))
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
			l.answers.shortened(a.Key)
		case link.Judge:
			l.history.judge()
		case link.Begin:
			l.history.begin()
		case link.Disconnect:
			switch {
			case l.session == nil:
			case a.Cause == link.CauseProtocol:
				l.connection.breach(a.Violation)
			default:
				s := l.session
				l.connection.end()
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
		refusal := l.rules.Outside(e.Key)
		if e.Verb == stream.Apply {
			l.answers.refused.Note(e, refusal, time.Now())
		}
		l.step(link.Held{Key: e.Key, Event: e.ID, Refusal: refusal})
		return
	}
	current, _ := l.view.Newest(key)
	l.jobs.Add(key, e, current.ResourceVersion)
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
	l.history.contradicted(a)
	if l.rules.Side != stream.Hub || !a.Current {
		return
	}
	key, _ := l.rules.Local(a.Key)
	switch a.Key.Collection {
	case stream.Commands:
		if a.Refusal != nil && a.Refusal.Kind != stream.RefusalUnavailable {
			l.commands.failures[a.Key] = failure{version: a.Sent, refusal: *a.Refusal}
			l.observe(key)
		}
		return
	case stream.Applications:
	default:
		return
	}
	_, before := l.answers.refusals[a.Key]
	if a.Refusal != nil {
		l.answers.refusals[a.Key] = *a.Refusal
	} else {
		delete(l.answers.refusals, a.Key)
	}
	if a.Gone {
		l.answers.gone[a.Key] = a.Sent
	}
	if before || a.Refusal != nil || a.Gone || l.commands.answered[key] {
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
		Agreed:       l.link.Agreed() && !l.answers.fights() && l.jobs.Len() == 0 && len(l.outbox.quiet) == 0,
		Withheld:     l.link.Withheld(),
		Judged:       l.history.past.judged,
		Stored:       l.history.past.stored,
		Parked:       l.answers.parked(),
		Dropped:      l.link.AllDropped(),
	}
	if l.history.spent != nil && l.history.spent == l.m.accept.Load() {
		s.Spent = *l.history.spent
	}
	s.Over, s.Delayed = l.jobs.Over(time.Now())
	s.Begin, s.Replaces = l.history.mayBegin()
	s.Begins = l.history.past.begins
	return s
}

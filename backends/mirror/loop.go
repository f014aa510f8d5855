package mirror

import (
	"context"
	"time"

	"github.com/argomesh/argomesh/backends/admission"
	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/eventrelay"
	"github.com/argomesh/argomesh/backends/needs"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/presence"
	"github.com/argomesh/argomesh/backends/refusals"
	"github.com/argomesh/argomesh/backends/statuses"
	"github.com/argomesh/argomesh/backends/view"
	asked "github.com/argomesh/argomesh/backends/witness"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// loop is all that one goroutine owns.
type loop struct {
	*shared
	m        *Mirror
	commands *commands
	answers  *answers
	inbox    *inbox
	source   *source
	events   *appEvents
	history  *history
	work     *work
	ticked   time.Time // when time was last let pass
}

func newLoop(m *Mirror) *loop {
	l := &loop{m: m}
	c := &shared{
		env: env{
			cfg: &m.cfg, log: m.log, settings: m.settings, whole: l,
			do: func(ctx context.Context, f func()) bool { return m.do(ctx, func(*loop) { f() }) },
		},
		rules: m.cfg.Rules,
		link: link.New(link.Config{
			Side: m.cfg.Rules.Side, Mode: m.cfg.Rules.Mode, Window: m.cfg.Window, WindowBytes: m.cfg.WindowBytes,
			Guard: m.cfg.Rules.Side == stream.Hub, Verify: true,
		}),
		view:     view.New(m.cfg.Store, m.cfg.Log),
		presence: presence.New(m.cfg.History == nil, time.Now()),
	}
	l.shared = c
	l.commands = &commands{shared: c, waiting: map[stream.ResourceKey]waiting{}, stale: map[stream.ResourceKey]string{},
		spokeOperations: map[stream.ResourceKey]bool{}, answered: map[stream.ResourceKey]bool{},
		asked: map[stream.ResourceKey]operations.Requests{}, failures: map[stream.EntryKey]failure{}}
	l.answers = &answers{shared: c, commands: l.commands, refused: refusals.Refusals{}, contests: refusals.Contests{},
		awaiting: refusals.NewAwaiting(), missingRoles: map[stream.EntryKey]stream.Refusal{},
		warned: map[stream.ResourceKey]bool{}, refusals: map[stream.EntryKey]stream.Refusal{},
		gone: map[stream.EntryKey]stream.Version{}}
	l.inbox = &inbox{shared: c, answers: l.answers, opened: map[string]func(){},
		replies: map[stream.EntryKey]ownership.Reply{}, taken: map[stream.EntryKey]operations.TakenCommand{},
		weights: bounds.NewWeights(), bounds: m.cfg.Bounds}
	l.source = &source{shared: c, commands: l.commands, answers: l.answers}
	l.source.outbox = &outbox{shared: c, contentCache: map[stream.EntryKey]cachedContent{},
		sentTraces: map[stream.EntryKey]string{}, appliedTraces: map[stream.ResourceKey]effect{},
		statusDigests: map[stream.EntryKey]statuses.StatusDigest{}}
	l.source.projects = &projects{shared: c, namedProjects: admission.NewNamedProjects(),
		repositoryNeeds: needs.NewNeeds(), uses: needs.NewUses()}
	l.source.removals = &removals{shared: c, ending: map[stream.EntryKey]time.Time{},
		orphaning: map[stream.ResourceKey]string{}}
	l.events = &appEvents{shared: c, relay: eventrelay.New(eventrelay.Config{
		Side: m.cfg.Rules.Side, Rate: m.cfg.EventRate, Budget: m.cfg.Budget, Metrics: m.cfg.Metrics, Log: m.cfg.Log,
	})}
	l.source.witness = &witness{shared: c, deletions: asked.NewDeletions(), proofs: asked.NewProofs()}
	l.history = &history{shared: c, commands: l.commands, removals: l.source.removals}
	l.work = &work{shared: c, commands: l.commands, answers: l.answers, inbox: l.inbox, source: l.source, worker: m.worker,
		results: m.results, unfamiliar: map[stream.ResourceKey]time.Time{}}
	l.jobs = l.work.newJobs()
	return l
}

func (l *loop) run(ctx context.Context) {
	// Everything the cache holds is observed before the first connection, whether
	// or not the store has told of it yet.
	l.m.changed.Drain()
	l.scheduleLook(l.presence.AwayAt(ownership.AwayTime))
	l.inbox.rebound()
	l.know(l.env.cfg.schemas())
	l.countAll()
	timer := time.NewTimer(0)
	defer timer.Stop()
	do := func() {} // what is to be done in the turn
	for {
		turn := l.m.worker.Compute()
		do()
		l.finishTurn()
		out, message := l.next()
		l.work.startJobs(ctx)
		l.events.show()
		for _, f := range l.spawn {
			l.work.workers.Go(func() { f(ctx) })
		}
		l.spawn = nil
		turn.End()
		timer.Reset(l.sleep())
		select {
		case <-ctx.Done():
			return
		case f := <-l.m.inbox:
			do = func() { f(l) }
		case <-l.env.settings.news:
			do = l.readSettings
		case <-l.m.changed.Signal:
			do = l.catchUp
		case out <- message:
			do = func() {
				l.session.queue = l.session.queue[1:]
				l.events.relay.Sent(message)
			}
		case o := <-l.m.results:
			do = func() { l.work.finish(o) }
		case <-timer.C:
			do = l.tick
		}
	}
}

// readSettings looks again at what the process was told of the peer.
func (l *loop) readSettings() {
	l.source.projects.applyPauses()
	l.commands.showLink()
	l.history.recheck()
	l.history.accept()
	l.source.removals.updateAdmission()
	l.inbox.rebound()
	l.learn()
}

// tick lets time pass.
func (l *loop) tick() {
	l.ticked = time.Now()
	l.step(link.Tick{Waits: l.session.waits()})
	if l.nextLook.IsZero() || l.nextLook.After(l.ticked) {
		return
	}
	l.nextLook = time.Time{}
	l.work.verify()
	l.work.retry()
	l.work.askAgain()
	l.commands.expireSpokeOperations()
	l.source.witness.confirmLater()
	l.source.witness.prove()
	l.source.outbox.flushDelayed()
	l.source.removals.updateAdmission()
	l.answers.expireContests()
}

// finishTurn brings to its end what the turn has begun for others.
func (l *loop) finishTurn() {
	l.work.shrink()
	l.source.projects.mergeGlobals()
	l.source.projects.readmit()
	l.source.projects.revisit()
	l.source.removals.clearHeld()
	l.source.projects.selectRepositories()
}

// next is the message that is to leave next, and where to; a nil channel when there is none.
func (l *loop) next() (chan<- stream.Message, stream.Message) {
	s := l.session
	if s == nil {
		return nil, nil
	}
	if len(s.queue) == 0 {
		s.queue = l.link.Flush(time.Now(), l.source.load)
		l.work.askUnfamiliar()
		s.sendSpokeInfo(l.env.settings.info.Load())
	}
	if len(s.queue) == 0 {
		l.events.queueEvents()
	}
	if len(s.queue) == 0 {
		return nil, nil
	}
	return s.Out, s.queue[0]
}

// sleep is the time until something is due; an hour when nothing is.
func (l *loop) sleep() time.Duration {
	now := time.Now()
	due := now.Add(time.Hour)
	if next := l.link.Next(); !next.IsZero() && next.Before(due) {
		due = next
		if l.session != nil && len(l.session.queue) > 0 && l.ticked.Add(stallTime).After(due) {
			due = l.ticked.Add(stallTime) // the heartbeat that is due cannot leave
		}
	}
	if !l.nextLook.IsZero() && l.nextLook.Before(due) {
		due = l.nextLook
	}
	if next := l.jobs.Due(); !next.IsZero() && next.Before(due) {
		due = next
	}
	if next := l.events.due(); !next.IsZero() && next.Before(due) {
		due = next
	}
	return max(due.Sub(now), 0)
}

// catchUp looks at all that the cache has come to show.
func (l *loop) catchUp() {
	keys := l.m.changed.Drain() // first: of each of them the store has told the deletion before
	for _, d := range l.m.deleted.Drain() {
		l.source.witness.see(d)
	}
	l.observeAll(keys)
}

// stallTime is how often time passes while the connection takes nothing.
const stallTime = time.Second

var (
	_ link.Load = (*source)(nil).load
	_ whole     = (*loop)(nil)
)

package mirror

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/keyset"
	"github.com/argomesh/argomesh/backends/presence"
	asked "github.com/argomesh/argomesh/backends/witness"
	"github.com/argomesh/argomesh/backends/worker"
	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/stream"
)

// Mirror is one side of one agent link at work. Its methods may be called
// concurrently.
type Mirror struct {
	cfg      Config
	log      zerolog.Logger // of what may befall thousands of objects at once: logBurst lines in logPeriod
	inbox    chan func(*loop)
	changed  *keyset.Set[stream.ResourceKey]
	deleted  *asked.DeletionQueue
	results  chan worker.Outcome
	settings *settings
	done     chan struct{} // closed when Run returns
	worker   *worker.Worker
	ends     *worker.Ends
	cause    error // the cause of its end, set before done is closed
}

// New checks cfg and starts nothing.
func New(cfg Config) (*Mirror, error) {
	switch {
	case cfg.Rules.Side == 0 || cfg.Rules.Mode == 0 || cfg.Rules.Agent.IsZero() || cfg.Rules.Namespace == "":
		return nil, errors.New("mirror: rules without side, mode, agent or namespace")
	case cfg.Store == nil || cfg.Metrics == nil || cfg.Tracer == nil:
		return nil, errors.New("mirror: store, metrics and tracer are required")
	}
	cfg, err := withDefaults(cfg)
	if err != nil {
		return nil, err
	}
	cfg.Rules.Fenced = cfg.Fence != nil && cfg.Rules.Side == stream.Spoke && cfg.Rules.Mode == stream.Managed
	m := &Mirror{
		cfg:      cfg,
		log:      cfg.Log.Sample(&zerolog.BurstSampler{Burst: logBurst, Period: logPeriod}),
		inbox:    make(chan func(*loop)),
		changed:  keyset.New[stream.ResourceKey](),
		deleted:  &asked.DeletionQueue{},
		results:  make(chan worker.Outcome),
		settings: &settings{news: notify.NewSignal()},
		done:     make(chan struct{}),
	}
	m.ends = worker.NewEnds(worker.EndsConfig{Store: cfg.Store, Namespace: cfg.Rules.Namespace, Lost: cfg.Metrics.LostEnd,
		Log: m.log})
	m.worker = worker.New(worker.Config{
		Agent: cfg.Rules.Agent, Hub: cfg.Rules.Side == stream.Hub, Store: cfg.Store, Fence: cfg.Fence, Ends: m.ends,
		Quota: cfg.Quota, Now: cfg.Now,
		Applied: cfg.Metrics.Applied, Tracer: cfg.Tracer, Log: cfg.Log, Sampled: m.log,
	})
	return m, nil
}

// Run waits for the store to sync and then mirrors until ctx is done. It is
// called once.
func (m *Mirror) Run(ctx context.Context) error {
	defer func() {
		m.cause = context.Cause(ctx)
		close(m.done)
	}()
	cancel := m.cfg.Subscribe(m.changed.Add)
	defer cancel()
	if m.cfg.sees() {
		forget := m.cfg.Deletions(m.deleted.Add)
		defer forget()
	}
	if m.cfg.Rules.Side == stream.Spoke && m.cfg.Rules.Mode == stream.Managed {
		forget := m.cfg.Deletions(m.ends.See)
		defer forget()
	}
	asked := m.cfg.Store.Synced()
	if m.cfg.Schemas != nil {
		unsubscribe := m.cfg.Schemas.SubscribeSchemas(m.settings.notify)
		defer unsubscribe()
		asked = m.cfg.Schemas.SchemasAsked()
	}
	for _, known := range []<-chan struct{}{m.cfg.Store.Synced(), asked} {
		select {
		case <-ctx.Done():
			return nil
		case <-known:
		}
	}
	l := newLoop(m)
	defer l.work.workers.Wait()
	l.run(ctx)
	return nil
}

// Pause stops, or resumes, the sending of what this side is the source of, from
// the start on if it is called before Run. What the peer sends is taken all the
// same. It does not block; the last call counts.
func (m *Mirror) Pause(held bool) {
	m.settings.paused.Store(held)
	m.settings.notify()
}

// Bound replaces Config.Bounds. What was refused is tried again. It does not block; the
// last call counts.
func (m *Mirror) Bound(b bounds.Bounds) {
	m.settings.bounds.Store(&b)
	m.settings.notify()
}

// Announce says on the hub where its history stands as far as a watch tells: a
// change of it is a reason to check again. It does not block; the last call counts.
func (m *Mirror) Announce(h stream.History) {
	m.settings.history.Store(&h)
	m.settings.notify()
}

// RecheckHistory has the history checked again on the hub. It does not block.
func (m *Mirror) RecheckHistory() {
	m.settings.recheck.Store(true)
	m.settings.notify()
}

// Accept takes at their word the absences that Stats.Withheld names with this id,
// now or once it does, and once: see Stats.AcceptUsed. It does not block; the last call counts.
func (m *Mirror) Accept(id string) {
	if told := m.settings.accept.Load(); told == nil || *told != id { // else it may be used already
		m.settings.accept.Store(&id)
	}
	m.settings.notify()
}

// SetSpokeInfo lets the peer know what this side knows of its spoke: now, and at the
// beginning of each connection. It does not block; the last call counts.
func (m *Mirror) SetSpokeInfo(info stream.SpokeInfo) {
	m.settings.info.Store(&info)
	m.settings.notify()
}

// do runs f on the loop's goroutine; false when the loop has ended or ctx is done.
func (m *Mirror) do(ctx context.Context, f func(*loop)) bool {
	select {
	case m.inbox <- f:
		return true
	case <-m.done:
		return false
	case <-ctx.Done():
		return false
	}
}

// Of lines about single objects so many are written in so long; metrics count all.
const (
	logBurst  = 50
	logPeriod = 10 * time.Second
)

// ShowLink says on the hub what the Agent says of its link. It does not block; the last
// call counts.
func (m *Mirror) ShowLink(s presence.LinkState) {
	m.settings.linkState.Store(&s)
	m.settings.notify()
}

// Report has the hub told of an event of a spoke's Application, if the object with that UID
// is one that the hub shows, and the hub shows events. It blocks until the link has taken
// note, or ctx is done.
func (m *Mirror) Report(ctx context.Context, uid string, e appevents.Event) {
	m.do(ctx, func(l *loop) { l.events.observe(uid, e) })
}

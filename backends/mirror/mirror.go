package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/cascades"
	"github.com/argomesh/argomesh/backends/keyset"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/statuses"
	"github.com/argomesh/argomesh/backends/worker"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
	"github.com/argomesh/argomesh/stream/quota"
)

// Config holds what a Mirror needs. Fields without a stated default are required.
type Config struct {
	Rules ownership.Rules
	Store backends.Store
	// Schemas says what the API server of this side keeps. Nil means that it is never
	// known: then a write fails where the API server would drop something.
	Schemas Schemas
	// Subscribe tells of changes of the link's objects, in the manner of
	// backends.Store.Subscribe. Nil means the Store's own.
	Subscribe func(changed func(stream.ResourceKey)) (cancel func())
	// Deletions tells of deletions of the link's objects, in the manner of
	// backends.Store.Deletions. Nil means the Store's own.
	Deletions func(deleted func(backends.Deletion)) (cancel func())
	// Confirm says on the hub of each of the deletions of Applications that a watch told
	// of whether it was one, by quorum reads that begin after the call: at a revision not
	// before the deletion nothing of that name is there, whatever its labels, and namespace
	// and kind are those in which it was, and are not being deleted themselves. Calls of
	// one link do not overlap. Nil means that nobody knows: whatever is absent is guarded.
	Confirm func(ctx context.Context, deletions []backends.Deletion) ([]bool, error)
	// History judges on the hub, by a quorum read, whether the history in which the
	// spoke got what it holds still continues. It is called on each connection, again
	// before anything goes for being absent on its source, and when there is reason
	// for doubt. Calls of one link do not overlap. ErrSuperseded ends the connection. Nil
	// means that it continues.
	History func(ctx context.Context, peer Peer, known Known) (Judgement, error)
	// Places says on the hub, by a quorum read, which of the namespaces are being deleted
	// as a whole, or with all Applications that there are, and why, for people. It is
	// called after History when Applications in them are to go with their workloads, which
	// then waits for a person. Nil means that none is.
	Places func(ctx context.Context, namespaces []string) (map[string]string, error)
	// Cascades counts on the hub what is to go with its workloads. Nil means that nobody
	// counts.
	Cascades *cascades.Counter
	// Judged is told on the hub that Stats may say something new of the history. It does
	// not block, and does not call the Mirror. Nil means that nobody asks.
	Judged func()
	// Remember keeps on the spoke what the hub says of its history, for the next
	// hello, and that the hub inherits what earlier ones had. It tries until that is done
	// or ctx is. It asks the API server each time, and an error that wraps ErrForgotten,
	// when the spoke no longer keeps what it did, ends the connection: the next hello tells
	// the hub. Nil means that it is not kept.
	Remember func(ctx context.Context, hubUID string, h stream.History) error
	// Fence says on the spoke whether this process is still the one that may write: nil
	// when it was at a moment after the call, an error when it was not, or nobody knows. It
	// is asked before Argo CD may act on an Application that was created, by all workers at
	// once. Nil means that no other process writes.
	Fence func(ctx context.Context) error
	// Workers bounds concurrent writes to the store. Zero means 8.
	Workers int
	// Budget is what the peer may have us write. Nil means that of a peer of which nobody
	// said anything.
	Budget *budget.Peer
	// Bounds limit the objects of the peer on this side, until Bound is called. The zero
	// value is no limit.
	Bounds bounds.Bounds
	// Window and WindowBytes are link.Config's; zero means its defaults.
	Window, WindowBytes int
	// StatusDelay is how long a change of a status may wait that moves the time of
	// its last reconciliation and nothing else. Zero means 10s; less means not at all.
	StatusDelay time.Duration
	// Now is what the clock of this side shows, for what is written down and compared with
	// what is written: it may be wrong, and may jump. What only lasts is not measured by it.
	// Nil means time.Now.
	Now func() time.Time
	// Heard is told what the peer says of its spoke, whenever a connection begins
	// and when it changes. It does not block. Nil means that nobody asks.
	Heard func(stream.SpokeInfo)
	// ShowEvent writes on the hub what the spoke's Argo CD said of an Application, which comes
	// without its Raw, and returns about how many bytes that has in etcd. Calls of one link do
	// not overlap. Nil means that it is not shown.
	ShowEvent func(ctx context.Context, about backends.Object, e appevents.Event) (bytes int, err error)
	// EventRate is that of the events of all agents. Nil means that there is none.
	EventRate *appevents.Common
	// Quota is the room for what the peer sends, and for the work on it. Nil means one of
	// its own.
	Quota   *quota.Quota
	Metrics *Metrics
	Tracer  trace.Tracer
	Log     zerolog.Logger
}

// Mirror is one side of one agent link at work. Its methods may be called
// concurrently.
type Mirror struct {
	cfg     Config
	log     zerolog.Logger // of what may befall thousands of objects at once: logBurst lines in logPeriod
	inbox   chan func(*loop)
	changed *keyset.Set[stream.ResourceKey]
	deleted *deletionSet
	results chan worker.Outcome
	held    atomic.Bool                      // what Hold was last told
	history atomic.Pointer[stream.History]   // what Announce was last told; nil for nothing
	accept  atomic.Pointer[string]           // what Accept was last told
	info    atomic.Pointer[stream.SpokeInfo] // what Tell was last told; nil for nothing
	bounds  atomic.Pointer[bounds.Bounds]    // what Bound was last told; nil for nothing
	// linkState is what ShowLink was last told; nil for nothing.
	linkState atomic.Pointer[LinkState]
	doubted   atomic.Bool   // Doubt was called since the loop looked
	told      chan struct{} // has a value when one of them, or of the schemas, may have changed
	done      chan struct{} // closed when Run returns
	worker    *worker.Worker
	ends      *worker.Ends
	why       error // the cause of its end, set before done is closed
}

// New checks cfg and starts nothing.
func New(cfg Config) (*Mirror, error) {
	switch {
	case cfg.Rules.Side == 0 || cfg.Rules.Mode == 0 || cfg.Rules.Agent.IsZero() || cfg.Rules.Namespace == "":
		return nil, errors.New("mirror: rules without side, mode, agent or namespace")
	case cfg.Store == nil || cfg.Metrics == nil || cfg.Tracer == nil:
		return nil, errors.New("mirror: store, metrics and tracer are required")
	}
	if cfg.Subscribe == nil {
		cfg.Subscribe = cfg.Store.Subscribe
	}
	if cfg.Deletions == nil {
		cfg.Deletions = cfg.Store.Deletions
	}
	if cfg.Heard == nil {
		cfg.Heard = func(stream.SpokeInfo) {}
	}
	if cfg.Judged == nil {
		cfg.Judged = func() {}
	}
	if cfg.Quota == nil {
		var err error
		if cfg.Quota, err = quota.New(nil); err != nil {
			return nil, fmt.Errorf("mirror: %w", err)
		}
	}
	if cfg.Workers == 0 {
		cfg.Workers = 8
	}
	if cfg.Budget == nil {
		cfg.Budget = budget.NewPeer(cfg.Rules.Agent.String(), budget.DefaultLimits(), nil, time.Now())
	}
	if cfg.StatusDelay == 0 {
		cfg.StatusDelay = statuses.StatusDelay
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Rules.Fenced = cfg.Fence != nil && cfg.Rules.Side == stream.Spoke && cfg.Rules.Mode == stream.Managed
	m := &Mirror{
		cfg:     cfg,
		log:     cfg.Log.Sample(&zerolog.BurstSampler{Burst: logBurst, Period: logPeriod}),
		inbox:   make(chan func(*loop)),
		changed: keyset.New[stream.ResourceKey](),
		deleted: &deletionSet{},
		results: make(chan worker.Outcome),
		told:    make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
	m.ends = worker.NewEnds(worker.EndsConfig{Store: cfg.Store, Namespace: cfg.Rules.Namespace, Lost: cfg.Metrics.lostEnd, Log: m.log})
	m.worker = worker.New(worker.Config{
		Agent: cfg.Rules.Agent, Hub: cfg.Rules.Side == stream.Hub, Store: cfg.Store, Fence: cfg.Fence, Ends: m.ends, Quota: cfg.Quota, Now: cfg.Now,
		Applied: cfg.Metrics.applied, Tracer: cfg.Tracer, Log: cfg.Log, Sampled: m.log,
	})
	return m, nil
}

// Run waits for the store to sync and then mirrors until ctx is done. It is
// called once.
func (m *Mirror) Run(ctx context.Context) error {
	defer func() {
		m.why = context.Cause(ctx)
		close(m.done)
	}()
	cancel := m.cfg.Subscribe(m.changed.Add)
	defer cancel()
	if m.cfg.sees() {
		forget := m.cfg.Deletions(m.deleted.add)
		defer forget()
	}
	if m.cfg.Rules.Side == stream.Spoke && m.cfg.Rules.Mode == stream.Managed {
		forget := m.cfg.Deletions(m.ends.See)
		defer forget()
	}
	asked := m.cfg.Store.Synced()
	if m.cfg.Schemas != nil {
		unsubscribe := m.cfg.Schemas.SubscribeSchemas(m.tell)
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

// Hold stops, or resumes, the sending of what this side is the source of, from
// the start on if it is called before Run. What the peer sends is taken all the
// same. It does not block; the last call counts.
func (m *Mirror) Hold(held bool) {
	m.held.Store(held)
	m.tell()
}

// Bound replaces Config.Bounds. What was refused is tried again. It does not block; the
// last call counts.
func (m *Mirror) Bound(b bounds.Bounds) {
	m.bounds.Store(&b)
	m.tell()
}

// Announce says on the hub where its history stands as far as a watch tells: a
// change of it is a reason to judge again. It does not block; the last call counts.
func (m *Mirror) Announce(h stream.History) {
	m.history.Store(&h)
	m.tell()
}

// Doubt has the history judged again on the hub. It does not block.
func (m *Mirror) Doubt() {
	m.doubted.Store(true)
	m.tell()
}

// Accept takes at their word the absences that Stats.Withheld names with this id,
// now or once it does, and once: see Stats.Spent. It does not block; the last call counts.
func (m *Mirror) Accept(id string) {
	if told := m.accept.Load(); told == nil || *told != id { // else it may be used already
		m.accept.Store(&id)
	}
	m.tell()
}

func (m *Mirror) tell() {
	select {
	case m.told <- struct{}{}:
	default:
	}
}

// Tell lets the peer know what this side knows of its spoke: now, and at the
// beginning of each connection. It does not block; the last call counts.
func (m *Mirror) Tell(info stream.SpokeInfo) {
	m.info.Store(&info)
	m.tell()
}

// Peer is what the handshake of a connection told.
type Peer struct {
	// Connection is the id of the connection.
	Connection string
	// HubUID identifies the hub; a spoke learns it here.
	HubUID string
	// FormerHubs and Inherits are those of Rules, as the spoke remembers them. With
	// Remember the hub inherits.
	FormerHubs []string
	Inherits   bool
	// Hello is what the agent said; a hub learns it here.
	Hello stream.Hello
	// Children says that the hub shows child applications, as its welcome told: a
	// spoke sends them, and the hub takes them.
	Children bool
	// WriteCredentials says that the spoke takes credentials that may write to
	// repositories; a hub learns it here.
	WriteCredentials bool
	// SeenDeletes says that the spoke checks what a Delete names; a hub learns it here.
	SeenDeletes bool
	// GivesUp says that the spoke can give an object up; a hub learns it here.
	GivesUp bool
	// ShowsEvents says that the hub shows what the spoke's Argo CD says; a spoke learns it
	// here.
	ShowsEvents bool
	// Waits reports whether what the peer sent waits here for memory, so that it is not
	// silent. It does not block. Nil means that nothing ever does.
	Waits func() bool
}

// Known is what a link knows of its present connection when the history is judged.
type Known struct {
	// Sent is the highest resourceVersion of an object that was sent; zero for none.
	Sent uint64
	// Behind names for people an object of which the spoke has what was read later than
	// what a quorum read has just shown; empty for none.
	Behind string
	// Begins is Stats.Begins.
	Begins int
}

// Judgement is what a hub finds out of its history.
type Judgement struct {
	// Broken says for people why it does not continue; empty when it does.
	Broken string
	// Stale says that the Store may still show what was before the break.
	Stale bool
	// Now is where it stands, for the spoke to keep.
	Now stream.History
	// Epoch is that with which the Agent names this process and the connection as who
	// has the link; higher than that of every connection before.
	Epoch int64
	// Other is the Epoch of the newest claim of another process, zero for none: what that
	// told the spoke the Store may not show yet.
	Other int64
}

// ErrForgotten is wrapped by Config.Remember when the spoke does not keep what it kept
// before, as after a restore.
var ErrForgotten = errors.New("the spoke does not keep what it kept of the hub's history; it was restored")

// ErrSuperseded is what Config.History returns when the agent has a newer connection,
// perhaps to another principal: this one ends.
var ErrSuperseded = errors.New("superseded by a newer connection")

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

// Stats is a moment's view of a link.
type Stats struct {
	// Applications and AppProjects are the numbers of mirrored objects.
	Applications, AppProjects int
	// Agreed says that the peer is known to hold all we desire, and that no write
	// of ours is under way.
	Agreed bool
	// Withheld is what the hub holds back, since absence alone deletes nothing.
	Withheld link.Withheld
	// Judged says that the history was judged on this connection.
	Judged bool
	// Begin says that a new history may begin in place of the one with the id
	// Replaces, or that the first one may, when that is empty: the old one did not
	// continue, and nothing is held back on its account.
	Begin    bool
	Replaces string
	// Begins counts how often that came about on the connection.
	Begins int
	// Stored is the newest token that the spoke said it keeps; empty for none on
	// this connection.
	Stored string
	// Spent is what Accept was last told, once that was used; empty before. It is not
	// used again unless Accept was told something else in between.
	Spent string
	// Parked holds the entries that either side refused, and those of which a part was
	// left out.
	Parked map[stream.EntryKey]stream.Refusal
	// Over says which budget was exceeded within the last minute, and Delayed how many
	// objects wait for it to be written.
	Over    budget.Over
	Delayed int
	// Dropped holds the entries of which the API server that they went to does not keep
	// all, with the paths.
	Dropped map[stream.EntryKey][]string
}

// Stats returns an error when the mirror does not run, or ctx is done.
func (m *Mirror) Stats(ctx context.Context) (Stats, error) {
	reply := make(chan Stats, 1)
	if !m.do(ctx, func(l *loop) { reply <- l.stats() }) {
		return Stats{}, errors.New("mirror is not running")
	}
	return <-reply, nil
}

// Of lines about single objects so many are written in so long; metrics count all.
const (
	logBurst  = 50
	logPeriod = 10 * time.Second
)

// stallTime is how often time passes while the connection takes nothing.
const stallTime = time.Second

// traceTime is how long after a change was applied an observation of the same
// object counts as its consequence in a trace.
const traceTime = 2 * time.Minute

var _ link.Load = (*loop)(nil).load

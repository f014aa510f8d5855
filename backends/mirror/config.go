package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/cascades"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/backends/statuses"
	"github.com/argomesh/argomesh/stream"
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
	// Confirm reports, on the hub, for each deletion of an Application that a watch reported
	// whether it is real. It uses quorum reads that begin after the call: at a revision not
	// before the deletion there is no object of that name, whatever its labels, and its
	// namespace and its kind are the same as before and are not being deleted themselves. Calls
	// of one link do not overlap. Nil means that this is unknown: whatever is absent is guarded.
	Confirm func(ctx context.Context, deletions []backends.Deletion) ([]bool, error)
	// History checks on the hub, by a quorum read, whether the history in which the
	// spoke got what it holds still continues. It is called on each connection, again
	// before anything goes for being absent on its source, and when there is reason
	// for doubt. Calls of one link do not overlap. ErrSuperseded ends the connection. Nil
	// means that it continues.
	History func(ctx context.Context, peer Peer, known Known) (HistoryCheck, error)
	// TerminatingNamespaces says on the hub, by a quorum read, which of the namespaces are being deleted
	// as a whole, or with all Applications that there are, and why, for people. It is
	// called after History when Applications in them are to go with their workloads, which
	// then waits for a person. Nil means that none is.
	TerminatingNamespaces func(ctx context.Context, namespaces []string) (map[string]string, error)
	// Cascades counts on the hub what is to go with its workloads. Nil means that no one
	// counts.
	Cascades *cascades.Counter
	// HistoryChanged is told on the hub that Stats may say something new of the history. It does
	// not block, and does not call the Mirror. Nil means that no one asks.
	HistoryChanged func()
	// SaveHistory keeps on the spoke what the hub says of its history, for the next
	// hello, and that the hub inherits what earlier ones had. It tries until that is done
	// or ctx is. It asks the API server each time, and an error that wraps ErrForgotten,
	// when the spoke no longer keeps what it did, ends the connection: the next hello tells
	// the hub. Nil means that it is not kept.
	SaveHistory func(ctx context.Context, hubUID string, h stream.History) error
	// Fence says on the spoke whether this process is still the one that may write: nil
	// when it was at a moment after the call, an error when it was not, or no one knows. It
	// is asked before Argo CD may act on an Application that was created, by all workers at
	// once. Nil means that no other process writes.
	Fence func(ctx context.Context) error
	// Workers bounds concurrent writes to the store. Zero means 8.
	Workers int
	// Budget is what the peer may have us write. Nil means that of a peer of which no one
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
	// OnSpokeInfo is told what the peer says of its spoke, whenever a connection begins
	// and when it changes. It does not block. Nil means that no one asks.
	OnSpokeInfo func(stream.SpokeInfo)
	// ShowEvent writes on the hub what the spoke's Argo CD said of an Application, which comes
	// without its Raw, and returns about how many bytes that has in etcd. Calls of one link do
	// not overlap. Nil means that it is not shown.
	ShowEvent func(ctx context.Context, about backends.Object, e appevents.Event) (bytes int, err error)
	// EventRate is that of the events of all agents. Nil means that there is none.
	EventRate *appevents.Common
	// Quota is the room for what the peer sends, and for the work on it. Nil means one of
	// its own.
	Quota   *quota.Quota
	Metrics *linkmetrics.Metrics
	Tracer  trace.Tracer
	Log     zerolog.Logger
}

// Peer is what the handshake of a connection told.
type Peer struct {
	// Connection is the id of the connection.
	Connection string
	// HubUID identifies the hub; a spoke learns it here.
	HubUID string
	// FormerHubs and Inherits are those of Rules, as the spoke remembers them. With
	// SaveHistory the hub inherits.
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

// Known is what a link knows of its present connection when the history is checked.
type Known struct {
	// Sent is the highest resourceVersion of an object that was sent; zero for none.
	Sent uint64
	// Behind names for people an object of which the spoke has what was read later than
	// what a quorum read has just shown; empty for none.
	Behind string
	// Begins is Stats.Begins.
	Begins int
}

// HistoryCheck is what a hub finds out of its history.
type HistoryCheck struct {
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

// ErrForgotten is wrapped by Config.SaveHistory when the spoke does not keep what it kept
// before, as after a restore.
var ErrForgotten = errors.New("the spoke does not keep what it kept of the hub's history; it was restored")

// ErrSuperseded is what Config.History returns when the agent has a newer connection,
// perhaps to another principal: this one ends.
var ErrSuperseded = errors.New("superseded by a newer connection")

// Schemas are what the API server of one side says of Applications and AppProjects.
type Schemas interface {
	// SchemasAsked is closed once the API server has shown its schemas, or said that it
	// does not.
	SchemasAsked() <-chan struct{}
	// Schema returns the schema of a kind; nil while it is not known.
	Schema(kind stream.Kind) *schema.Schema
	// SubscribeSchemas calls changed whenever Schema may say something new, until cancel
	// is called. changed does not block.
	SubscribeSchemas(changed func()) (cancel func())
}

// sees reports whether this side can see deletions: it is the hub of a managed agent,
// and someone confirms them. The mirrors of an autonomous agent have their source on
// the spoke.
func (cfg *Config) sees() bool {
	return cfg.Confirm != nil && cfg.Rules.Side == stream.Hub && cfg.Rules.Mode == stream.Managed
}

// schemas are those that are known at the moment.
func (cfg *Config) schemas() map[stream.Kind]*schema.Schema {
	known := map[stream.Kind]*schema.Schema{}
	if cfg.Schemas == nil {
		return known
	}
	for _, kind := range []stream.Kind{stream.Application, stream.AppProject} {
		if s := cfg.Schemas.Schema(kind); s != nil {
			known[kind] = s
		}
	}
	return known
}

// checkHistory is History.
func (cfg *Config) checkHistory(ctx context.Context, peer Peer, known Known) (HistoryCheck, error) {
	if cfg.History == nil {
		return HistoryCheck{}, nil
	}
	return cfg.History(ctx, peer, known)
}

// isNewest reports whether an object that was sent is still what the hub has of it.
func (cfg *Config) isNewest(ctx context.Context, sent sentObject) (bool, error) {
	if sent == (sentObject{}) {
		return false, nil
	}
	o, err := cfg.Store.Read(ctx, sent.key)
	if errors.Is(err, stream.ErrNotFound) {
		return false, nil
	}
	return err == nil && o.UID == sent.uid && o.ResourceVersion == sent.resourceVersion, err
}

// sentObject is an object as it was when it was sent.
type sentObject struct {
	entry                stream.EntryKey
	key                  stream.ResourceKey
	uid, resourceVersion string
}

// withDefaults are the settings with what was left out.
func withDefaults(cfg Config) (Config, error) {
	if cfg.Subscribe == nil {
		cfg.Subscribe = cfg.Store.Subscribe
	}
	if cfg.Deletions == nil {
		cfg.Deletions = cfg.Store.Deletions
	}
	if cfg.OnSpokeInfo == nil {
		cfg.OnSpokeInfo = func(stream.SpokeInfo) {}
	}
	if cfg.HistoryChanged == nil {
		cfg.HistoryChanged = func() {}
	}
	if cfg.Quota == nil {
		var err error
		if cfg.Quota, err = quota.New(nil); err != nil {
			return cfg, fmt.Errorf("mirror: %w", err)
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
	return cfg, nil
}

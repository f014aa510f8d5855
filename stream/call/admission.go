package call

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/quota"
)

// Registry says who may connect.
type Registry interface {
	// Admit returns the agent to which the peer's SPIFFE ID belongs, or an error
	// that wraps identity.ErrDenied. It does not block.
	Admit(identity.Peer) (stream.Agent, error)
	// Changed returns a channel that is closed when answers of Admit may have
	// changed since the call.
	Changed() <-chan struct{}
}

// AdmissionConfig holds what an Admission needs. Fields without a stated default are required.
type AdmissionConfig struct {
	// Method names, for the log, how the caller of ctx is to prove who it is.
	Method func(ctx context.Context) string
	// Authenticate returns who the caller of ctx is. Errors wrap
	// identity.ErrUnauthenticated.
	Authenticate func(ctx context.Context) (identity.Peer, error)
	// Prove returns what the answer to a caller, whose call has ctx, says of this
	// process. Nil means nothing: TLS has shown it, or its clients do not ask.
	Prove    func(ctx context.Context, to Caller, nonce stream.Nonce) (Proof, error)
	Registry Registry
	// Open is called before a call of an admitted agent is opened, with the context of the
	// call. Its error, ErrBusy, has the call refused. Nil means that there is room for each.
	Open func(ctx context.Context, agent identity.AgentName) error
	// Withdrawn returns since when this process may no longer use its own identity, and
	// Updated a channel that is closed when that may have changed since the call. The
	// zero time, and nil for both, mean that it may.
	Withdrawn func() time.Time
	Updated   func() <-chan struct{}
	// HelloTimeout bounds the wait for the first message of a call, and that for our own
	// proof. Zero means 10s.
	HelloTimeout time.Duration
	// Grace is how long a call outlasts the newest proof of its caller, and the
	// withdrawal of our own identity. Zero means 30s.
	Grace time.Duration
	// Quota is where it counts that a caller has us begin calls. Nil means nowhere.
	Quota   *quota.Quota
	Metrics prometheus.Registerer
	Log     zerolog.Logger
}

// beginning is about how long a call has us compute, whatever becomes of it.
const beginning = 100 * time.Microsecond

// Admission decides who may call the services of one gRPC server, and when the
// authority of a call ends. It may be used by several goroutines at once.
type Admission struct {
	cfg     AdmissionConfig
	refused *prometheus.CounterVec
	// refusals bounds what callers that are refused can write to our log.
	refusals zerolog.Sampler
	drain    func()
	draining chan struct{}

	mu      sync.Mutex // guards what follows
	proofs  map[spiffeid.ID]*proof
	pending map[identity.AgentName]int // calls that were admitted, and are not open yet
}

// maxPending bounds the calls of one agent that have not said yet what they are for. Each has a goroutine or
// two, and the bytes of a small message that comes slowly. An agent opens call.MaxStreams/2 at a time, and one
// that takes its place may do so beside it.
const maxPending = 2 * MaxStreams

// proof is what the open calls of a SPIFFE ID proved.
type proof struct {
	calls    int
	notAfter time.Time // the latest
}

// NewAdmission checks cfg.
func NewAdmission(cfg AdmissionConfig) (*Admission, error) {
	if cfg.Method == nil || cfg.Authenticate == nil || cfg.Registry == nil || cfg.Metrics == nil {
		return nil, errors.New("gate: method, authenticate, registry and metrics are required")
	}
	if cfg.Prove == nil {
		cfg.Prove = func(context.Context, Caller, stream.Nonce) (Proof, error) { return Proof{}, nil }
	}
	if cfg.Open == nil {
		cfg.Open = func(context.Context, identity.AgentName) error { return nil }
	}
	if cfg.Withdrawn == nil {
		cfg.Withdrawn = func() time.Time { return time.Time{} }
	}
	if cfg.Updated == nil {
		cfg.Updated = func() <-chan struct{} { return nil }
	}
	if cfg.HelloTimeout == 0 {
		cfg.HelloTimeout = 10 * time.Second
	}
	if cfg.Grace == 0 {
		cfg.Grace = 30 * time.Second
	}
	draining := make(chan struct{})
	g := &Admission{
		cfg: cfg,
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_stream_refused_total", Help: "Calls that were refused, by why.",
		}, []string{"kind"}),
		refusals: &zerolog.BurstSampler{Burst: 50, Period: time.Second},
		drain:    sync.OnceFunc(func() { close(draining) }), draining: draining,
		proofs: map[spiffeid.ID]*proof{}, pending: map[identity.AgentName]int{},
	}
	return g, cfg.Metrics.Register(g.refused)
}

// Caller is who was admitted. Its name comes from the registry only.
type Caller struct {
	Agent stream.Agent
	Peer  identity.Peer
	Log   zerolog.Logger // names both

	open    func() error // AdmissionConfig.Open of its call
	arrived func()       // ends that it is pending
}

// Admit returns who calls in ctx, the context of a gRPC call. An error is what the
// caller may know of it, and needs no more than to be returned. With one of a caller
// that has proven who it is, and is not registered, the Caller has its Peer. Until Open, or until
// it ends, the call is one of the few that an agent may have pending.
func (g *Admission) Admit(ctx context.Context) (Caller, error) {
	log := g.cfg.Log.With().Str("method", g.cfg.Method(ctx)).Logger()
	peer, err := g.cfg.Authenticate(ctx)
	if err != nil {
		kind := "unauthenticated"
		if errors.Is(err, identity.ErrHeaderMissing) { // apart, since a proxy is to blame, and not who calls
			kind = "headerless"
		}
		return Caller{}, g.Refuse(log, kind, err)
	}
	log = log.With().Stringer("spiffe_id", peer.ID).Logger()
	if !time.Now().Before(peer.NotAfter) {
		return Caller{}, g.Refuse(log, "expired", ErrExpired) // a new call on a connection that grew old
	}
	agent, err := g.cfg.Registry.Admit(peer)
	if err != nil {
		return Caller{Peer: peer, Log: log}, g.Refuse(log, "not-registered", err)
	}
	if g.cfg.Quota != nil {
		g.cfg.Quota.Spend(agent.Name, beginning)
	}
	log = log.With().Stringer("agent", agent.Name).Logger()
	arrived, err := g.wait(ctx, agent.Name)
	if err != nil {
		return Caller{}, g.Refuse(log, "busy", err)
	}
	return Caller{
		Agent: agent, Peer: peer, Log: log, arrived: arrived,
		open: func() error { return g.cfg.Open(ctx, agent.Name) },
	}, nil
}

// wait counts a call of an agent as pending until arrived, or until it ends.
func (g *Admission) wait(ctx context.Context, agent identity.AgentName) (arrived func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pending[agent] >= maxPending {
		return nil, fmt.Errorf("%d calls have not said what they are for: %w", maxPending, ErrBusy)
	}
	g.pending[agent]++
	done := sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.pending[agent]--; g.pending[agent] == 0 {
			delete(g.pending, agent)
		}
	})
	stop := context.AfterFunc(ctx, done)
	return func() { stop(); done() }, nil
}

// Refuse logs and counts why a call is refused, and returns what the caller may
// know. The kind is one of a closed set.
func (g *Admission) Refuse(log zerolog.Logger, kind string, err error) error {
	g.refused.WithLabelValues(kind).Inc()
	log = log.Sample(g.refusals) // the metric counts them all
	log.Warn().Err(err).Str("kind", kind).Msg("connection refused")
	return StatusOf(context.Background(), err) //nolint:forbidigo // no cause to look up
}

// First returns the first message of a call. Errors wrap stream.ErrProtocol, or
// ErrDraining.
func First[T any](g *Admission, recv func() (T, error)) (T, error) {
	type result struct {
		message T
		err     error
	}
	received := make(chan result, 1)
	go func() {
		message, err := recv() // ends with the call
		received <- result{message, err}
	}()
	timeout := time.NewTimer(g.cfg.HelloTimeout)
	defer timeout.Stop()
	var none T
	select {
	case r := <-received:
		if r.err != nil {
			return none, fmt.Errorf("receive hello: %w: %w", stream.ErrProtocol, r.err)
		}
		return r.message, nil
	case <-timeout.C:
		return none, fmt.Errorf("no hello within %s: %w", g.cfg.HelloTimeout, stream.ErrProtocol)
	case <-g.draining:
		return none, ErrDraining
	}
}

// Open counts what the caller proved for as long as its call is open: until
// release. An error is ErrBusy: there is no room for the call.
func (g *Admission) Open(c Caller) (release func(), err error) {
	c.arrived()
	if err := c.open(); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.proofs[c.Peer.ID]
	if p == nil {
		p = &proof{}
		g.proofs[c.Peer.ID] = p
	}
	p.calls++
	p.renew(c.Peer)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if p.calls--; p.calls == 0 {
			delete(g.proofs, c.Peer.ID)
		}
	}, nil
}

// Renew counts what a caller with a held call has proven again.
func (g *Admission) Renew(peer identity.Peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.proofs[peer.ID]; p != nil {
		p.renew(peer)
	}
}

func (p *proof) renew(peer identity.Peer) {
	if peer.NotAfter.After(p.notAfter) {
		p.notAfter = peer.NotAfter
	}
}

// remaining is how long a held call may last from now, by all that is known, and why
// not longer: its caller's proof, or ours, is over.
func (g *Admission) remaining(c Caller) (left time.Duration, cause error) {
	g.mu.Lock()
	left, cause = time.Until(g.proofs[c.Peer.ID].notAfter), ErrExpired
	g.mu.Unlock()
	if since := g.cfg.Withdrawn(); !since.IsZero() && time.Until(since) < left {
		left, cause = time.Until(since), ErrUnproven
	}
	return left + g.cfg.Grace, cause
}

// Watch waits until the authority of a held call ends, and returns why:
// stream.ErrRevoked when the registry no longer admits the agent as it was, or
// ErrExpired when the grace after the newest SVID is over that this SPIFFE ID proved
// on any open call, or ErrUnproven when it is over after the withdrawal of our own
// identity. It returns ErrDraining when draining, if not nil, is closed, and nil when
// ctx is done.
func (g *Admission) Watch(ctx context.Context, c Caller, draining <-chan struct{}) error {
	expiry := time.NewTimer(0)
	defer expiry.Stop()
	for {
		changed, updated := g.cfg.Registry.Changed(), g.cfg.Updated()
		if agent, err := g.cfg.Registry.Admit(c.Peer); err != nil || agent.Name != c.Agent.Name ||
			agent.Mode != c.Agent.Mode {
			return stream.ErrRevoked
		}
		left, cause := g.remaining(c)
		if left <= 0 {
			return cause
		}
		expiry.Reset(left)
		select {
		case <-changed:
		case <-updated:
		case <-expiry.C:
		case <-draining:
			return ErrDraining
		case <-ctx.Done():
			return nil
		}
	}
}

// Draining returns a channel that is closed when the server begins to stop.
func (g *Admission) Draining() <-chan struct{} { return g.draining }

// Drain tells all calls that the server stops. It may be called again.
func (g *Admission) Drain() { g.drain() }

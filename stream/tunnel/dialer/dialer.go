// Package dialer is the hub's end of the tunnel: it has the spare streams of agents, takes
// one for each dial, and bounds both.
package dialer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/stream/tunnel"
)

// Config holds what a Dialer needs. Fields without a stated default are
// required.
type Config struct {
	// MaxStreams bounds the open streams of one agent, spare or taken. Zero means
	// 1,024.
	MaxStreams int
	// MaxTotalStreams bounds those of all agents, of which each has the first four
	// beyond it, so that no agent can keep another away. Zero means 16,384.
	MaxTotalStreams int
	// MaxWaiting bounds the dials that wait for a stream of one agent. Zero means
	// 1,024.
	MaxWaiting int
	// MaxTotalWaiting bounds those for all agents. Zero means 4,096.
	MaxTotalWaiting int
	// SpareTimeout bounds the wait for a spare stream. Zero means 5s.
	SpareTimeout time.Duration
	// AnswerTimeout bounds the wait for the agent to reach the service, beside the
	// context of a dial. Zero means 15s.
	AnswerTimeout time.Duration
	// DrainTimeout bounds how long connections go on while the server stops. Zero
	// means 2s.
	DrainTimeout time.Duration
	// Heartbeat is the time between two heartbeats of ours, and Silence that after
	// which an agent of which nothing came is lost. Zero means DefaultHeartbeat and
	// DefaultSilence.
	Heartbeat, Silence time.Duration
	// Quota is where it counts that agents send chunks. Nil means nowhere.
	Quota   *quota.Quota
	Metrics prometheus.Registerer
	Log     zerolog.Logger
}

// aChunk is about how long a chunk has us compute until it is where it goes.
const aChunk = 20 * time.Microsecond

// What the streams of one agent, and of all, may have brought that is not read. Each agent has
// the first freeUnread, whatever the others have.
const (
	maxUnread    = 64 << 20
	maxAllUnread = 256 << 20
	freeUnread   = 4 << 20
)

// reserved is how many streams each agent may have whatever the others have.
const reserved = 4

// Dialer is the hub's end of the tunnels of all agents. It may be used by several
// goroutines at once.
type Dialer struct {
	cfg     Config
	metrics *dialerMetrics
	// logged bounds what an agent can write to our log.
	logged *call.AgentLimiter
	unread *tunnel.Common

	mu      sync.Mutex // guards what follows
	agents  map[identity.AgentName]*pool
	beyond  int // streams that are not the reserved ones of their agent
	waiting int // dials
}

// replaceTimeout is how long an agent whose last stream was used up has to open another,
// before it counts as away.
const replaceTimeout = time.Second

// pool is the streams of one agent. Dialer.mu guards it.
type pool struct {
	unread  *tunnel.Unread
	open    int
	idle    []*tunnel.Conn // the newest last
	waiting []*wait        // the oldest first
	lapse   *time.Timer    // nil, or running while none is open
	// silent says that the last stream that was taken did not answer.
	silent bool
}

// wait is a dial that waits for a stream.
type wait struct {
	service stream.Service
	idle    chan *tunnel.Conn // gets one, or nil when the agent has gone
}

// New checks cfg.
func New(cfg Config) (*Dialer, error) {
	if cfg.Metrics == nil {
		return nil, errors.New("tunnel dialer: metrics are required")
	}
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, 1024)
	cfg.MaxTotalStreams = cmp.Or(cfg.MaxTotalStreams, 16384)
	cfg.MaxWaiting = cmp.Or(cfg.MaxWaiting, 1024)
	cfg.MaxTotalWaiting = cmp.Or(cfg.MaxTotalWaiting, 4096)
	cfg.SpareTimeout = cmp.Or(cfg.SpareTimeout, 5*time.Second)
	cfg.AnswerTimeout = cmp.Or(cfg.AnswerTimeout, 15*time.Second)
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 2*time.Second)
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, tunnel.DefaultHeartbeat)
	cfg.Silence = cmp.Or(cfg.Silence, tunnel.DefaultSilence)
	m, err := newDialerMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("tunnel dialer: %w", err)
	}
	return &Dialer{cfg: cfg, metrics: m, agents: map[identity.AgentName]*pool{}, logged: call.NewAgentLimiter(1, 20),
		unread: tunnel.NewCommon(maxAllUnread, freeUnread)}, nil
}

// Register adds the service by which agents offer streams to r, whose callers come
// through gate. It is a server.Config.Register.
func (d *Dialer) Register(r grpc.ServiceRegistrar, gate *call.Admission) {
	streampb.RegisterTunnelServer(r, &service{dialer: d, admission: gate})
}

// Dial opens a connection to a service of an agent's spoke, once the agent says
// that it is there. The connection has a method CloseWrite() error; the caller
// closes it. Dial returns stream.ErrNotConnected at once when the agent has no
// stream here; ErrNoSpare, ErrBusy or ErrNoAnswer; a ServiceError when the failure is
// on the agent's side; or the error of ctx. ctx has no part in the connection that
// it returns.
func (d *Dialer) Dial(ctx context.Context, to identity.AgentName, service stream.Service) (net.Conn, error) {
	if service.String() == "" {
		return nil, fmt.Errorf("dial %s: no service: %w", to, identity.ErrInvalid)
	}
	began := time.Now()
	c, err := d.dial(ctx, to, service)
	d.metrics.dials.WithLabelValues(service.String(), resultOf(err)).Inc()
	if err != nil {
		return nil, fmt.Errorf("dial %s of %s: %w", service, to, err)
	}
	d.metrics.seconds.WithLabelValues(service.String()).Observe(time.Since(began).Seconds())
	return c, nil
}

func (d *Dialer) dial(ctx context.Context, to identity.AgentName, service stream.Service) (*tunnel.Conn, error) {
	for {
		c, err := d.acquire(ctx, to, service)
		if err != nil {
			return nil, err
		}
		err = d.answer(ctx, c)
		d.record(to, err)
		if err == nil {
			return c, nil
		}
		_ = c.Close() // it has no error to return
		if !errors.Is(err, tunnel.ErrIdleClosed) {
			return nil, err
		}
		// The agent gave the stream up before it received our open.
	}
}

// acquire returns a stream that is now the caller's, and that has not answered.
func (d *Dialer) acquire(ctx context.Context, to identity.AgentName, service stream.Service) (*tunnel.Conn, error) {
	d.mu.Lock()
	p := d.agents[to]
	if p == nil {
		d.mu.Unlock()
		return nil, stream.ErrNotConnected
	}
	if c := d.acquireSpare(p, service); c != nil {
		d.mu.Unlock()
		return c, nil
	}
	if len(p.waiting) >= d.cfg.MaxWaiting || d.waiting >= d.cfg.MaxTotalWaiting {
		d.mu.Unlock()
		return nil, tunnel.ErrBusy
	}
	w := &wait{service: service, idle: make(chan *tunnel.Conn, 1)}
	p.waiting = append(p.waiting, w)
	d.waiting++
	d.metrics.waiting.WithLabelValues(service.String()).Inc()
	d.mu.Unlock()

	timeout := time.NewTimer(d.cfg.SpareTimeout)
	defer timeout.Stop()
	var err error
	select {
	case c := <-w.idle:
		if c == nil {
			return nil, stream.ErrNotConnected
		}
		return c, nil
	case <-timeout.C:
		err = fmt.Errorf("waited for %s: %w", d.cfg.SpareTimeout, d.noSpareError(p))
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(p.waiting, w); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		d.removeWait(w)
	} else if c := <-w.idle; c != nil {
		return c, nil // it came in the same moment
	}
	return nil, err
}

// noSpareError is why an agent opened no stream in time: one that did not answer on the
// last one has not all of them in use.
func (d *Dialer) noSpareError(p *pool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.silent {
		return tunnel.ErrNoAnswer
	}
	return tunnel.ErrNoSpare
}

// record remembers whether the agent has answered on a stream, by what became of the dial.
func (d *Dialer) record(to identity.AgentName, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.agents[to]; p != nil {
		p.silent = errors.Is(err, stream.ErrSilent) || errors.Is(err, context.DeadlineExceeded)
	}
}

// acquireSpare acquires the newest spare stream, which is the likeliest to be alive;
// nil when there is none. d.mu is held.
func (d *Dialer) acquireSpare(p *pool, service stream.Service) *tunnel.Conn {
	for len(p.idle) > 0 {
		last := len(p.idle) - 1
		c := p.idle[last]
		p.idle[last] = nil
		p.idle = p.idle[:last]
		d.metrics.Spare.Dec()
		if d.assign(p, c, service) {
			return c
		}
	}
	return nil
}

// assign acquires c for a service, and reports whether it could be. d.mu is held.
func (d *Dialer) assign(p *pool, c *tunnel.Conn, service stream.Service) bool {
	if !c.Acquire(service, len(p.waiting), d.metrics.Received(service), d.metrics.Sent(service)) {
		return false
	}
	d.metrics.Connections.WithLabelValues(service.String()).Inc()
	return true
}

// removeWait is called with d.mu held when a wait has left its pool.
func (d *Dialer) removeWait(w *wait) {
	d.waiting--
	d.metrics.waiting.WithLabelValues(w.service.String()).Dec()
}

// answer waits until the agent says that it has reached the service.
func (d *Dialer) answer(ctx context.Context, c *tunnel.Conn) error {
	timeout := time.NewTimer(d.cfg.AnswerTimeout)
	defer timeout.Stop()
	select {
	case <-c.Answered:
		return c.Outcome()
	case <-timeout.C:
		return fmt.Errorf("waited for %s: %w", d.cfg.AnswerTimeout, tunnel.ErrNoAnswer)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// join counts a stream of an agent, unless there are too many, and says whether it
// is the first. leave must be called then.
func (d *Dialer) join(agent identity.AgentName) (first bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.agents[agent]
	first = p == nil
	if first {
		p = &pool{unread: d.metrics.Unread(maxUnread, d.unread)}
	}
	if p.open >= d.cfg.MaxStreams || p.open >= reserved && d.beyond >= d.cfg.MaxTotalStreams {
		return false, call.ErrBusy
	}
	if p.open >= reserved {
		d.beyond++
	}
	p.open++
	if p.lapse != nil {
		p.lapse.Stop()
		p.lapse = nil
	}
	d.agents[agent] = p
	return first, nil
}

// unreadOf is the bound of an agent that has joined.
func (d *Dialer) unreadOf(agent identity.AgentName) *tunnel.Unread {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.agents[agent].unread
}

// addIdle makes a stream that has joined a spare one, or gives it to a dial that
// waits.
func (d *Dialer) addIdle(c *tunnel.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.agents[c.Agent]
	if len(p.waiting) == 0 {
		p.idle = append(p.idle, c)
		d.metrics.Spare.Inc()
		return
	}
	w := p.waiting[0]
	p.waiting = slices.Delete(p.waiting, 0, 1)
	if !d.assign(p, c, w.service) {
		p.waiting = slices.Insert(p.waiting, 0, w) // it is over already
		return
	}
	d.removeWait(w)
	w.idle <- c
}

// withdraw takes a stream off the spare ones, and reports whether it was one.
func (d *Dialer) withdraw(c *tunnel.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.agents[c.Agent]
	i := slices.Index(p.idle, c)
	if i < 0 {
		return false
	}
	p.idle = slices.Delete(p.idle, i, i+1)
	d.metrics.Spare.Dec()
	return true
}

// leave ends what join began. An agent without any stream is away, unless the last
// one was used up by a connection, which the agent will replace.
func (d *Dialer) leave(caller call.Caller, usedUp bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.agents[caller.Agent.Name]
	if p.open--; p.open >= reserved {
		d.beyond--
	}
	switch {
	case p.open > 0:
	case usedUp:
		var lapse *time.Timer
		lapse = time.AfterFunc(replaceTimeout, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if p.lapse == lapse {
				d.forget(caller, p)
			}
		})
		p.lapse = lapse
	default:
		d.forget(caller, p)
	}
}

// forget ends the waiting for an agent that is away. d.mu is held.
func (d *Dialer) forget(caller call.Caller, p *pool) {
	delete(d.agents, caller.Agent.Name)
	for _, w := range p.waiting {
		d.removeWait(w)
		w.idle <- nil
	}
	p.waiting = nil
	d.logs(caller, caller.Log).Info().Msg("tunnel of the agent is down")
}

// logs returns log, or nothing where an agent has written there too often of late: metrics
// count all.
func (d *Dialer) logs(caller call.Caller, log zerolog.Logger) *zerolog.Logger {
	if !d.logged.Allow(caller.Agent.Name, time.Now()) {
		log = zerolog.Nop()
	}
	return &log
}

// service is the gRPC service of a Dialer behind one gate.
type service struct {
	streampb.UnimplementedTunnelServer
	dialer    *Dialer
	admission *call.Admission
}

// Serve holds one stream of an agent.
func (s *service) Serve(g grpc.BidiStreamingServer[streampb.Chunk, streampb.Chunk]) error {
	d := s.dialer
	caller, err := s.admission.Admit(g.Context())
	if err != nil {
		return err
	}
	message, err := call.First(s.admission, g.Recv)
	if errors.Is(err, call.ErrDraining) {
		return call.StatusOf(g.Context(), err)
	}
	var hello tunnel.Hello
	if err == nil {
		hello, err = tunnel.HelloOf(message)
	}
	if errors.Is(err, stream.ErrIncompatible) {
		return s.admission.Refuse(caller.Log, "incompatible", err)
	}
	if err != nil {
		return s.admission.Refuse(caller.Log, "protocol", err)
	}
	if hello.Agent != caller.Agent.Name {
		return s.admission.Refuse(caller.Log, "mismatch",
			fmt.Errorf("%w: the agent is configured as %q, but its SPIFFE ID is registered for another Agent", call.ErrMismatch,
				hello.Agent))
	}
	release, err := s.admission.Open(caller)
	if err != nil {
		return s.admission.Refuse(caller.Log, "busy", err)
	}
	defer release()
	proof, err := s.admission.Prove(g.Context(), caller, hello.Nonce)
	if err != nil {
		return s.admission.Refuse(caller.Log, "unproven", err)
	}
	first, err := d.join(caller.Agent.Name)
	if err != nil {
		return s.admission.Refuse(caller.Log, "busy", err)
	}
	if first {
		d.logs(caller, caller.Log).Info().Msg("tunnel of the agent is up")
	}
	c := s.serve(g, caller, proof)
	d.leave(caller, c.Serving() != 0 && c.Failure() == nil)
	return call.StatusOf(g.Context(), c.Failure())
}

// serve answers with our proof, offers the stream until it is over, and returns it.
func (s *service) serve(g grpc.BidiStreamingServer[streampb.Chunk, streampb.Chunk], caller call.Caller,
	proof call.Proof) *tunnel.Conn {
	d := s.dialer
	ctx, cancel := context.WithCancel(g.Context())
	defer cancel()
	hooks := tunnel.Hooks{Finished: func(error) { cancel() }, Unread: d.unreadOf(caller.Agent.Name).Add}
	if d.cfg.Quota != nil {
		hooks.Spend = func() { d.cfg.Quota.Spend(caller.Agent.Name, aChunk) }
	}
	c := tunnel.NewConn(stream.Hub, caller.Agent.Name, uuid.NewString(),
		tunnel.Timing{Heartbeat: d.cfg.Heartbeat, Silence: d.cfg.Silence}, g, hooks)
	log := caller.Log.With().Str("connection", c.ID).Logger()
	c.SendHello(proof)
	go c.Receive() // ends with the call
	d.addIdle(c)
	err := s.admission.Watch(ctx, caller, s.admission.Draining())
	if errors.Is(err, call.ErrDraining) && !d.withdraw(c) { // it is in use
		last := make(chan struct{})
		timeout := time.AfterFunc(d.cfg.DrainTimeout, func() { close(last) })
		defer timeout.Stop()
		err = s.admission.Watch(ctx, caller, last)
	}
	switch {
	case errors.Is(err, call.ErrDraining):
		c.End(err)
	case err != nil:
		c.Revoke(err)
	default:
		c.End(tunnel.ErrLost) // if it is not over, the call is
	}
	d.withdraw(c)
	if service := c.Serving(); service != 0 {
		d.metrics.Connections.WithLabelValues(service.String()).Dec()
	}
	err = c.Failure()
	if v := stream.ViolationOf(err); v != "" {
		d.metrics.Violations.WithLabelValues(string(v)).Inc()
		d.logs(caller, log).Warn().Err(err).Msg("tunnel stream ended by a violation")
	} else {
		log.Debug().Err(err).Stringer("service", c.Serving()).Msg("tunnel stream ended")
	}
	return c
}

// resultOf names what became of a dial, in a closed set.
func resultOf(err error) string {
	var refused *tunnel.ServiceError
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, stream.ErrNotConnected):
		return "not-connected"
	case errors.Is(err, tunnel.ErrBusy):
		return "busy"
	case errors.Is(err, tunnel.ErrNoSpare):
		return "no-spare"
	case errors.Is(err, tunnel.ErrNoAnswer):
		return "no-answer"
	case errors.As(err, &refused):
		return string(refused.Reason)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "canceled"
	}
	return "lost"
}

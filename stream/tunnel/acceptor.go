package tunnel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/streampb"
)

// AcceptorConfig holds what an Acceptor needs. Fields without a stated default are
// required.
type AcceptorConfig struct {
	// Target is the principal's host:port, or a gRPC target.
	Target string
	// Credentials accept the principal only, or whoever ends TLS before it.
	Credentials credentials.TransportCredentials
	// Mutual is for what Credentials leave open: each stream brings a token, and is of
	// no use before the principal has proven itself on it.
	call.Mutual
	Agent identity.AgentName
	// Services is what the hub may reach. Others are refused.
	Services map[stream.Service]Handler
	// Updated returns a channel that is closed when our SVID may have changed since
	// the call. Nil means never.
	Updated func() <-chan struct{}
	// Proves returns when the authority of a connection made now would end: the
	// expiry of our SVID. Nil means that it does not.
	Proves func() time.Time
	// Ready returns nil while we can prove who we are. When that begins, the pause
	// after a connection that failed is over. Nil means always.
	Ready func() error
	// While returns a context that ends with ctx, or when what our identity has opened
	// must end; and a function that is called when it is of no more use. Nil means that
	// it ends with ctx.
	While func(ctx context.Context) (context.Context, context.CancelFunc)
	// MaxStreams bounds the open streams, spare or taken. Zero means 1,024.
	MaxStreams int
	// MinSpares and MaxSpares bound how many spare streams are kept; how many of them
	// follows from demand. Zero means 2 and 64.
	MinSpares, MaxSpares int
	// Review is how long spare streams must have gone unused for some of them to be
	// given up. Zero means 30s.
	Review time.Duration
	// HandshakeTimeout bounds dial, TLS and hello of a stream together. Zero means
	// 15s.
	HandshakeTimeout time.Duration
	// AcceptTimeout bounds the time that a Handler has until it uses its connection.
	// Zero means 10s.
	AcceptTimeout time.Duration
	// StopTimeout bounds how long Run waits for the streams. Zero means 1s.
	StopTimeout time.Duration
	// BackOff is the pause after a TCP connection that failed or ended.
	BackOff call.BackOff
	// Heartbeat is the time between two heartbeats of ours, and Silence that after
	// which a principal of which nothing came is lost. Zero means DefaultHeartbeat and
	// DefaultSilence.
	Heartbeat, Silence time.Duration
	Metrics            prometheus.Registerer
	Log                zerolog.Logger
}

// Acceptor is the spoke's end of the tunnel.
type Acceptor struct {
	cfg     AcceptorConfig
	metrics *acceptorMetrics
	// logged bounds what a hub can write to our log.
	logged zerolog.Sampler
}

// NewAcceptor checks cfg and starts nothing.
func NewAcceptor(cfg AcceptorConfig) (*Acceptor, error) {
	if cfg.Target == "" || cfg.Credentials == nil || cfg.Agent.IsZero() || len(cfg.Services) == 0 || cfg.Metrics == nil {
		return nil, errors.New("tunnel acceptor: target, credentials, agent, services and metrics are required")
	}
	if cfg.Updated == nil {
		cfg.Updated = func() <-chan struct{} { return nil }
	}
	if cfg.Proves == nil {
		cfg.Proves = func() time.Time { return time.Time{} }
	}
	if cfg.Ready == nil {
		cfg.Ready = func() error { return nil }
	}
	if cfg.While == nil {
		cfg.While = context.WithCancel
	}
	cfg.Services = maps.Clone(cfg.Services)
	setDefault(&cfg.MaxStreams, 1024)
	setDefault(&cfg.MinSpares, 2)
	setDefault(&cfg.MaxSpares, 64)
	setDefault(&cfg.Review, 30*time.Second)
	setDefault(&cfg.HandshakeTimeout, 15*time.Second)
	setDefault(&cfg.AcceptTimeout, 10*time.Second)
	setDefault(&cfg.StopTimeout, time.Second)
	setDefault(&cfg.Heartbeat, DefaultHeartbeat)
	setDefault(&cfg.Silence, DefaultSilence)
	if cfg.MinSpares < 1 || cfg.MaxSpares < cfg.MinSpares || cfg.MaxStreams <= cfg.MinSpares {
		return nil, fmt.Errorf("tunnel acceptor: at least one spare stream, and more streams than those: not %d to %d of %d",
			cfg.MinSpares, cfg.MaxSpares, cfg.MaxStreams)
	}
	m, err := newAcceptorMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("tunnel acceptor: %w", err)
	}
	return &Acceptor{cfg: cfg, metrics: m, logged: &zerolog.BurstSampler{Burst: 20, Period: time.Second}}, nil
}

// carrier is one TCP connection, which carries up to call.MaxStreams streams.
type carrier struct {
	cc *grpc.ClientConn
	// proof is when the authority of our SVID ends that it was made with.
	proof time.Time
	// nonce is what the principal answers to on each of its streams. One for all of
	// them, so that a hub's connection does not cost SPIRE a signature.
	nonce stream.Nonce
	// again is when the principal wants to see another; zero: we know by ourselves.
	again   time.Time
	streams int
	up      time.Time // since when a stream of it has been up; zero: none has
	leaving bool      // it gets no more streams
}

// offered is one stream as the loop of Run knows it.
type offered struct {
	carrier *carrier
	state   offer
	conn    *conn // from up on
	// again is when to prove ourselves by another stream, with the next token; zero
	// where there is none.
	again time.Time
}

type offer uint8

const (
	opening offer = iota
	spare
	retiring
	taken
)

// news is what the goroutine of a stream tells the loop.
type news struct {
	of   *offered
	kind offer // spare, taken, or opening when it has ended
	// Of spare: of its carrier, after how long to prove ourselves by another; and of
	// itself, when.
	conn       *conn
	proveAgain time.Duration
	again      time.Time
	// Of taken.
	waiting int
	// Of the end.
	err error
}

// term is one Run.
type term struct {
	*Acceptor
	news     chan news
	streams  map[*offered]struct{}
	carriers map[*carrier]struct{}
	// want is how many spare streams demand asks for, and urgent how many at once.
	want, urgent int
	// unused is the least number of spare streams since the last review.
	unused   int
	failures int
	resting  bool // until pause fires
	pause    *time.Timer
	able     bool        // to prove ourselves, at the last attempt
	aged     *time.Timer // fires when a spare stream, or a carrier, is to be replaced
	stopping bool
}

// Run keeps streams open, again and again, until ctx is done, and returns nil when
// every Handler has returned. It may be called again then.
func (a *Acceptor) Run(ctx context.Context) error {
	t := &term{
		Acceptor: a, news: make(chan news), streams: map[*offered]struct{}{}, carriers: map[*carrier]struct{}{},
		want: a.cfg.MinSpares, pause: time.NewTimer(0), resting: true, able: true, aged: time.NewTimer(0),
	}
	defer t.pause.Stop()
	defer t.aged.Stop()
	review := time.NewTicker(a.cfg.Review)
	defer review.Stop()
	for {
		updated := a.cfg.Updated()
		t.balance(ctx)
		select {
		case <-ctx.Done():
			t.stopping = true
			for len(t.streams) > 0 {
				t.hear(<-t.news)
			}
			return nil
		case <-t.pause.C:
			t.resting = false
		case <-updated:
		case <-t.aged.C:
		case <-review.C:
			t.review()
		case n := <-t.news:
			t.hear(n)
		}
	}
}

// fresh reports whether a carrier may get streams: it is to stay, and neither is there
// a newer SVID to be proven nor has the principal seen this one for too long.
func (t *term) fresh(c *carrier, proves time.Time) bool {
	return !c.leaving && !c.proof.Before(proves) && !passed(c.again)
}

// current reports whether a stream is to stay: its carrier is fresh, and there is no
// next token to be proven.
func (t *term) current(s *offered, proves time.Time) bool {
	return t.fresh(s.carrier, proves) && !passed(s.again)
}

// passed reports whether there is a time, and it has come.
func passed(at time.Time) bool { return !at.IsZero() && !time.Now().Before(at) }

// age lets balance be called again when the next stream or carrier is to be replaced.
func (t *term) age() {
	var next time.Time
	for s := range t.streams {
		for _, at := range []time.Time{s.again, s.carrier.again} {
			if s.state == spare && !at.IsZero() && !passed(at) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	if t.aged.Stop(); !next.IsZero() {
		t.aged.Reset(time.Until(next))
	}
}

// count counts the streams that are, or soon will be, spare.
func (t *term) count(proves time.Time) (ready, coming, stale int) {
	for s := range t.streams {
		switch fresh := t.current(s, proves); {
		case s.state == spare && fresh:
			ready++
		case s.state == spare:
			stale++
		case s.state == opening && fresh:
			coming++
		}
	}
	return ready, coming, stale
}

// balance opens streams that are wanting, and gives up those that were renewed.
func (t *term) balance(ctx context.Context) {
	proves := t.cfg.Proves()
	if t.resting && !t.able && t.cfg.Ready() == nil {
		t.resting = false // we can do now what we could not
	}
	ready, coming, stale := t.count(proves)
	target := max(t.want, t.urgent)
	if ready == 0 && !t.anyUp(proves) {
		target = 1 // the first tells whether others make sense
	}
	for !t.resting && ctx.Err() == nil && ready+coming < target {
		if len(t.streams) >= t.cfg.MaxStreams {
			t.retireOne(proves, true) // to make room
			break
		}
		if !t.open(ctx, proves) {
			break
		}
		coming++
	}
	if ready+coming >= t.urgent {
		t.urgent = 0
	}
	// Make before break.
	for ready >= t.want && stale > 0 && t.retireOne(proves, true) {
		stale--
	}
	t.unused = min(t.unused, ready)
	t.metrics.spare.Set(float64(ready + stale))
	t.metrics.carriers.Set(float64(len(t.carriers)))
	t.age()
}

func (t *term) anyUp(proves time.Time) bool {
	for c := range t.carriers {
		if t.fresh(c, proves) && !c.up.IsZero() {
			return true
		}
	}
	return false
}

// retireOne gives up a spare stream, one that is not current if stale, and reports
// whether there was one.
func (t *term) retireOne(proves time.Time, stale bool) bool {
	var one *offered
	for s := range t.streams {
		if s.state == spare && t.current(s, proves) != stale && (one == nil || s.carrier.streams < one.carrier.streams) {
			one = s // of the emptiest
		}
	}
	if one == nil {
		return false
	}
	one.state = retiring
	_ = one.conn.Close() // it has no error to return
	return true
}

// review adjusts the number of spare streams to what was used of them since the
// last time, by halves, and the number of carriers to that of the streams.
func (t *term) review() {
	proves := t.cfg.Proves()
	ready, _, _ := t.count(proves)
	if t.unused > 0 {
		t.want = max(t.cfg.MinSpares, t.want-(t.unused+1)/2)
	}
	for ; ready > t.want; ready-- {
		t.retireOne(proves, false)
	}
	t.unused = ready
	var emptiest *carrier
	room := 0 // in the others
	for c := range t.carriers {
		if !t.fresh(c, proves) {
			continue
		}
		room += call.MaxStreams - c.streams
		if emptiest == nil || c.streams < emptiest.streams {
			emptiest = c
		}
	}
	if emptiest != nil && room-(call.MaxStreams-emptiest.streams) >= max(emptiest.streams, t.want) {
		emptiest.leaving = true // its spare streams go once the others have more
	}
}

// open begins a stream, and reports whether it could.
func (t *term) open(ctx context.Context, proves time.Time) bool {
	var on *carrier
	for c := range t.carriers {
		if t.fresh(c, proves) && c.streams < call.MaxStreams && (on == nil || c.streams > on.streams) {
			on = c // the fullest, so that others empty
		}
	}
	if on == nil {
		cc, err := grpc.NewClient(t.cfg.Target,
			grpc.WithTransportCredentials(t.cfg.Credentials),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxChunk)),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 15 * time.Second, Timeout: 10 * time.Second}),
			grpc.WithDisableServiceConfig(), // no retries: a call fails with the reason for which the connection did
		)
		if err != nil {
			t.rest(fmt.Errorf("dial: %w", err), true)
			return false
		}
		on = &carrier{cc: cc, proof: proves, nonce: t.cfg.NewNonce()}
		t.carriers[on] = struct{}{}
	}
	t.able = t.cfg.Ready() == nil
	s := &offered{carrier: on}
	on.streams++
	t.streams[s] = struct{}{}
	go t.offer(ctx, s, t.news)
	return true
}

// hear takes news of a stream.
func (t *term) hear(n news) {
	s := n.of
	switch n.kind {
	case spare:
		s.conn, s.state, s.again = n.conn, spare, n.again
		if n.proveAgain > 0 && s.carrier.again.IsZero() {
			s.carrier.again = time.Now().Add(n.proveAgain)
		}
		if s.carrier.up.IsZero() {
			s.carrier.up = time.Now()
			t.cfg.Log.Info().Str("connection", n.conn.id).Msg("tunnel connection to the principal is up")
		}
	case taken:
		s.state = taken
		ready, _, _ := t.count(t.cfg.Proves())
		switch {
		case n.waiting > 0:
			t.want, t.urgent = min(t.cfg.MaxSpares, t.want+n.waiting), max(t.urgent, n.waiting)
		case ready == 0:
			t.want = min(t.cfg.MaxSpares, t.want+1)
		}
	default:
		t.ended(s, n.err)
	}
}

// settledTime is how long a TCP connection must have lasted for its end to be no
// failure.
const settledTime = 10 * time.Second

func (t *term) ended(s *offered, err error) {
	c := s.carrier
	delete(t.streams, s)
	if c.streams--; c.streams == 0 {
		_ = c.cc.Close() // nothing is left to be flushed
		delete(t.carriers, c)
	}
	unasked := s.state == opening || s.state == spare
	switch {
	case !unasked || c.leaving:
	case errors.Is(err, call.ErrBusy):
		t.rest(err, false)
	default:
		c.leaving = true
		up := !c.up.IsZero()
		if up && time.Since(c.up) >= settledTime {
			t.failures = 0
		}
		t.rest(err, !up)
	}
}

// rest lets no stream be opened for a while.
func (t *term) rest(err error, failed bool) {
	if t.stopping {
		return
	}
	t.failures++
	t.able = t.able && t.cfg.Ready() == nil
	delay := t.cfg.BackOff.Pause(t.failures, err)
	t.resting = true
	t.pause.Reset(delay)
	switch log := t.cfg.Log.With().AnErr("error", err).Dur("retry_in", delay).Logger(); {
	case errors.Is(err, call.ErrImpostor):
		log.Error().Msg("what answers is not known to be the principal, so it reaches nothing of this spoke; see principal.address and principal.spiffe_ids")
	case errors.Is(err, stream.ErrIncompatible):
		log.Error().Msg("the principal has no tunnel that this agent understands; upgrade the older of both")
	case errors.Is(err, call.ErrBusy):
		log.Warn().Msg("the principal takes no more streams of the tunnel; see its limits")
	case failed:
		log.Warn().Msg("cannot open the tunnel to the principal")
	default:
		log.Info().Msg("tunnel connection to the principal ended")
	}
}

// offer runs one stream from its opening to its end, and tells news of it.
func (t *term) offer(ctx context.Context, s *offered, tell chan<- news) {
	err := t.stream(ctx, s, tell)
	t.metrics.connects.WithLabelValues(status.Code(err).String()).Inc()
	if v := stream.ViolationOf(err); v != "" {
		t.metrics.violations.WithLabelValues(string(v)).Inc()
		log := t.cfg.Log.Sample(t.logged)
		log.Warn().Err(err).Msg("tunnel stream ended by a violation")
	}
	tell <- news{of: s, err: call.KindOf(err)}
}

var (
	errPatience = errors.New("no hello in time")
	errStopping = errors.New("the agent stops")
)

// stopping is why ctx is done.
func stopping(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return errStopping
}

func (t *term) stream(ctx context.Context, s *offered, tell chan<- news) error {
	ctx, done := t.cfg.While(ctx)
	defer done()
	// Once it is up the call outlasts ctx, so that it can end in good order.
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stopped := context.AfterFunc(ctx, func() { cancel(stopping(ctx)) })
	defer stopped()
	patience := time.AfterFunc(t.cfg.HandshakeTimeout, func() { cancel(errPatience) })
	defer patience.Stop()
	authorized, _, again, err := t.cfg.Authorize(life)
	if err != nil {
		return withCause(life, err)
	}
	g, err := streampb.NewTunnelClient(s.carrier.cc).Serve(authorized)
	if err != nil {
		return withCause(life, err)
	}
	hello := chunk{kind: kindHello, agent: t.cfg.Agent, nonce: s.carrier.nonce}
	if err := g.Send(hello.wire()); err != nil {
		// io.EOF: the status is what Recv returns.
		t.cfg.Log.Debug().Err(err).Msg("cannot send hello")
	}
	first, err := g.Recv()
	if err != nil {
		return withCause(life, err)
	}
	welcome, err := helloOf(first)
	if err != nil {
		return err
	}
	if err := t.cfg.Check(call.Proof{Token: welcome.proof, Nonce: welcome.nonce}, s.carrier.nonce); err != nil {
		return err
	}
	if welcome.agent != t.cfg.Agent {
		return fmt.Errorf("the principal takes this agent for %q: %w", welcome.agent, call.ErrMismatch)
	}
	if !patience.Stop() {
		return errPatience
	}
	if !stopped() {
		return stopping(ctx)
	}

	c := newConn(stream.Spoke, t.cfg.Agent, welcome.connection, pace{heartbeat: t.cfg.Heartbeat, silence: t.cfg.Silence}, g, func(err error) {
		if err == nil {
			_ = g.CloseSend() // the principal ends the call then
			return
		}
		cancel(err)
	})
	use, spent := context.WithCancel(life)
	defer spent()
	c.spent = spent
	var serving sync.WaitGroup
	c.asked = func(service stream.Service, waiting int) {
		tell <- news{of: s, kind: taken, waiting: waiting}
		serving.Go(func() { t.serve(use, c, service) })
	}
	going := context.AfterFunc(ctx, func() {
		c.abandon(ReasonStopping)
		time.AfterFunc(t.cfg.StopTimeout, func() { cancel(stopping(ctx)) })
	})
	defer going()
	tell <- news{of: s, kind: spare, conn: c, proveAgain: welcome.proveAgain, again: again}
	c.receive()
	serving.Wait()
	return c.failure()
}

func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// serve hands a stream that was taken to its handler. ctx ends when c is spent.
func (t *term) serve(ctx context.Context, c *conn, service stream.Service) {
	handler := t.cfg.Services[service]
	if handler == nil {
		t.metrics.accepts.WithLabelValues(service.String(), string(ReasonUnsupported)).Inc()
		c.abandon(ReasonUnsupported)
		return
	}
	c.measure(t.metrics.received(service), t.metrics.sent(service))
	connections := t.metrics.connections.WithLabelValues(service.String())
	connections.Inc()
	defer connections.Dec()
	use, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(t.cfg.AcceptTimeout, func() {
		select {
		case <-c.answered:
		default:
			cancel(context.DeadlineExceeded)
		}
	})
	defer patience.Stop()
	err := handler(use, c)
	if cause := context.Cause(use); err != nil && cause != nil && ctx.Err() == nil {
		err = cause
	}
	result, broken := "ok", err != nil && ctx.Err() == nil
	switch {
	case err == nil:
		_ = c.Close() // it has no error to return
	case !broken:
		result = "ended" // by the hub, or with the way to it
		_ = c.Close()
	case c.accepted():
		result = string(ReasonFailed)
		c.abandon(ReasonFailed)
	default:
		result = string(reasonOf(err))
		c.abandon(reasonOf(err))
	}
	t.metrics.accepts.WithLabelValues(service.String(), result).Inc()
	if broken {
		log := t.cfg.Log.Sample(t.logged)
		log.Warn().Err(err).Str("connection", c.id).Stringer("service", service).Str("reason", result).
			Msg("a connection of the hub to a service of this spoke failed")
	}
}

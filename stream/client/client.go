package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/stream/wire"
	"github.com/argomesh/argomesh/stream/zstd"
)

// Config holds what a Client needs. Fields without a stated default are required.
type Config struct {
	// Target is the principal's host:port, or a gRPC target.
	Target string
	// Credentials accept the principal only, or anyone who terminates TLS before it.
	Credentials credentials.TransportCredentials
	// Mutual is for what Credentials leave open. The next token is sent on the open
	// connection.
	call.Mutual
	// Hello is sent on each connection, with a Turn of its own.
	Hello stream.Hello
	// History returns, for each hello, the hub whose history the spoke saw last and
	// what it keeps of it; an error ends the attempt to connect. Nil means that it keeps
	// nothing.
	History func(context.Context) (hubUID string, h stream.History, err error)
	// Serve runs a connection until it ends, and returns soon after ctx is done; the
	// connection lives until then. A later call takes over from an earlier one,
	// which then returns. The capabilities of w are those that both sides offer.
	Serve func(ctx context.Context, w stream.Welcome, conn *Conn) error
	// Updated returns a channel that is closed when our SVID may have changed since
	// the call. Nil means never.
	Updated func() <-chan struct{}
	// Proves returns when the authority of a connection made now would end: the
	// expiry of our SVID. Nil means that it does not.
	Proves func() time.Time
	// Ready returns nil while we can prove who we are. When that begins, the pause
	// after a connection that failed is over. Nil means always.
	Ready func() error
	// HandshakeTimeout bounds dial, TLS and welcome together. Zero means 15s.
	HandshakeTimeout time.Duration
	// BackOff is the pause after a connection that failed or ended.
	BackOff call.BackOff
	// Quota is the room for messages on their way. Nil means one of its own.
	Quota   *quota.Quota
	Metrics prometheus.Registerer
	Log     zerolog.Logger
}

// Client keeps a connection to a principal.
type Client struct {
	cfg       Config
	connected atomic.Bool
	failure   atomic.Pointer[error] // of the last attempt; nil before the first one ended
	turns     atomic.Uint64         // connections opened
	up        prometheus.Gauge
	attempts  *prometheus.CounterVec
	cuts      prometheus.Histogram
	// violations and unsupported are the principal's.
	violations, limits, unsupported *prometheus.CounterVec
}

// New checks cfg and starts nothing.
func New(cfg Config) (*Client, error) {
	if cfg.Target == "" || cfg.Credentials == nil || cfg.Serve == nil || cfg.Hello.Agent.IsZero() || cfg.Metrics == nil {
		return nil, errors.New("stream client: target, credentials, hello, serve and metrics are required")
	}
	if cfg.HandshakeTimeout == 0 {
		cfg.HandshakeTimeout = 15 * time.Second
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
	if cfg.Quota == nil {
		var err error
		if cfg.Quota, err = quota.New(nil); err != nil {
			return nil, fmt.Errorf("stream client: %w", err)
		}
	}
	c := &Client{
		cfg: cfg,
		up: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_stream_up", Help: "1 while the agent has a connection to its principal.",
		}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_stream_connects_total", Help: "Attempts to connect to the principal, by what became of them.",
		}, []string{"result"}),
		cuts: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "argomesh_stream_cut_seconds", Help: "How old connections to the principal were that ended without a word of either side.",
			Buckets: []float64{10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400},
		}),
		violations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_stream_violations_total", Help: "Connections that ended since the peer broke the protocol, by how.",
		}, []string{"kind"}),
		limits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_stream_limits_total",
			Help: "Frames of peers that were refused before they were decoded, by the limit that they exceeded.",
		}, []string{"limit"}),
		unsupported: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_stream_unsupported_total", Help: "Frames and events of peers that this release does not know.",
		}, []string{"what"}),
	}
	for _, v := range stream.Violations() {
		c.violations.WithLabelValues(string(v)) // so that the first one is seen as a change
	}
	for _, m := range []prometheus.Collector{c.up, c.attempts, c.cuts, c.violations, c.limits, c.unsupported} {
		if err := cfg.Metrics.Register(m); err != nil {
			return nil, fmt.Errorf("stream client: %w", err)
		}
	}
	return c, nil
}

// Connected reports whether a connection is up.
func (c *Client) Connected() bool { return c.connected.Load() }

// Failure returns why there is no connection: the error of the last one, or of the last
// attempt. It is ErrNotTried before the first attempt has ended, and nil while a
// connection is up.
func (c *Client) Failure() error {
	if c.Connected() {
		return nil
	}
	if err := c.failure.Load(); err != nil {
		return *err
	}
	return ErrNotTried
}

// ErrNotTried says that no attempt to connect has ended yet.
var ErrNotTried = errors.New("the first connection to the principal is under way")

// Refused reports whether err, of Failure, stands until a person changes something: the
// principal does not take this agent as it is. It is false of a suspended agent, and of one
// that did not find its principal, which has refused nothing.
func Refused(err error) bool {
	for _, other := range []error{identity.ErrSuspended, stream.ErrRevoked, call.ErrImpostor} {
		if errors.Is(err, other) {
			return false
		}
	}
	for _, refusal := range []error{identity.ErrDenied, identity.ErrUnauthenticated, call.ErrMismatch,
		stream.ErrIncompatible, stream.ErrProtocol} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// progress is what a connection's goroutine reports to Run.
type progress struct {
	connection int
	up         bool // welcome has come; else the connection is over
	// reproveAfter is after how long to prove ourselves by another connection; zero when we
	// know by ourselves.
	reproveAfter time.Duration
	err          error
}

// Run connects, again and again, until ctx is done, and returns nil when every
// call of Serve has returned. It may be called again then.
func (c *Client) Run(ctx context.Context) error {
	c.failure.Store(nil) // that of an earlier run may be long over
	defer c.show(false)
	r := newConnections(c)
	defer r.pause.Stop()
	defer r.reprove.Stop()
	for {
		updated := c.cfg.Updated()
		r.dialDue(ctx)
		select {
		case <-ctx.Done():
			r.await()
			return nil
		case <-r.pause.C:
			r.resting = false
		case <-updated:
		case <-r.reprove.C:
			r.due = true
		case p := <-r.reports:
			r.handle(p)
		}
	}
}

// show says whether a connection is up.
func (c *Client) show(up bool) {
	c.connected.Store(up)
	c.up.Set(map[bool]float64{true: 1}[up])
}

// stableAfter is how long a connection must have lasted for its end to be no
// failure: one that comes up only to end is tried again ever more seldom.
const stableAfter = 10 * time.Second

// revokedMessage is for anyone who looks after the spoke.
const revokedMessage = "connection to the principal ended by revocation; see the Agent on the hub, which may be suspended, deleted or changed"

// revoked reports whether a connection that was up ended because the hub withdrew what
// it had granted.
func revoked(err error) bool {
	return errors.Is(err, stream.ErrRevoked) || errors.Is(err, identity.ErrDenied)
}

func (c *Client) logEnd(err error, was bool, delay time.Duration) {
	switch {
	case errors.Is(err, call.ErrImpostor):
		c.cfg.Log.Error().Err(err).Stringer("retry_in", delay.Round(time.Millisecond)).
			Msg("the server did not prove that it is the principal, so it was sent nothing more; see principal.address and principal.spiffe_ids")
	case was && revoked(err):
		c.cfg.Log.Error().Err(err).Stringer("retry_in", delay.Round(time.Millisecond)).Msg(revokedMessage)
	case errors.Is(err, stream.ErrProtocol):
		c.cfg.Log.Error().Err(err).Stringer("retry_in", delay.Round(time.Millisecond)).
			Msg("the principal and this agent do not understand each other; keep their releases at most one minor version apart")
	case was:
		c.cfg.Log.Info().Err(err).Stringer("retry_in", delay.Round(time.Millisecond)).Msg("connection to the principal ended")
	case errors.Is(err, identity.ErrSuspended):
		c.cfg.Log.Warn().Err(err).Stringer("retry_in", delay.Round(time.Millisecond)).
			Msg("the hub has suspended this agent; the spoke goes on by itself")
	case errors.Is(err, identity.ErrDenied):
		c.cfg.Log.Error().Err(err).Stringer("retry_in", delay.Round(time.Millisecond)).
			Msg("the principal does not know this agent; register its SPIFFE ID with agentctl agent create or set on the hub")
	case errors.Is(err, stream.ErrIncompatible):
		c.cfg.Log.Error().Err(err).Stringer("retry_in", delay.Round(time.Millisecond)).
			Msg("the principal speaks another protocol; upgrade the older of the two")
	case errors.Is(err, call.ErrMismatch):
		c.cfg.Log.Error().Err(err).Stringer("retry_in", delay.Round(time.Millisecond)).
			Msg("the name or mode of this agent does not match its registration on the hub")
	default:
		c.cfg.Log.Warn().Err(err).Stringer("retry_in", delay.Round(time.Millisecond)).Msg("cannot connect to the principal")
	}
}

// isCut reports whether a connection that was up ended without a word of the principal: by what is between, or
// since it is gone.
func isCut(err error) bool {
	if errors.Is(err, stream.ErrSilent) {
		return true
	}
	said, is := status.FromError(err)
	if !is { // the two of us agreed on it
		return false
	}
	switch said.Code() { //nolint:exhaustive // with the others a principal says what it means
	case codes.Unavailable, codes.Internal, codes.Canceled:
		return said.Message() != call.ErrDraining.Error() && said.Message() != call.ErrUnproven.Error() &&
			!errors.Is(err, stream.ErrProtocol) && !revoked(err)
	}
	return false
}

// connection runs one connection from dial to end, reporting both.
func (c *Client) connection(ctx context.Context, number int, reports chan<- progress) {
	var since time.Time
	err := c.connect(ctx, func(reproveAfter time.Duration) {
		since = time.Now()
		reports <- progress{connection: number, up: true, reproveAfter: reproveAfter}
	})
	if !since.IsZero() && ctx.Err() == nil && isCut(err) {
		c.cuts.Observe(time.Since(since).Seconds())
	}
	result := "ok"
	if err != nil {
		result = status.Code(err).String()
	}
	c.attempts.WithLabelValues(result).Inc()
	if v := stream.ViolationOf(err); v != "" {
		c.violations.WithLabelValues(string(v)).Inc()
	}
	if name := stream.LimitOf(err); name != "" {
		c.limits.WithLabelValues(name).Inc()
	}
	reports <- progress{connection: number, err: call.KindOf(err)}
}

func (c *Client) connect(ctx context.Context, up func(reproveAfter time.Duration)) error {
	// Once it is up the connection outlasts ctx, so that Serve can say goodbye.
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stopped := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stopped()
	limits := grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(stream.MaxFrameBytes),
		grpc.MaxCallSendMsgSize(stream.MaxFrameBytes))
	cc, err := grpc.NewClient(c.cfg.Target, append(call.DialOptions(c.cfg.Credentials), limits)...)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer func() { _ = cc.Close() }() // nothing is left to be flushed
	timeout := time.AfterFunc(c.cfg.HandshakeTimeout, func() { cancel(errWelcomeTimeout) })
	defer timeout.Stop()
	authorized, token, renewAt, err := c.cfg.Authorize(life)
	if err != nil {
		return withCause(life, err)
	}
	nonce := c.cfg.NewNonce()
	frames, frame, err := c.call(authorized, streampb.NewStreamClient(cc), nonce)
	if err != nil {
		return withCause(life, err)
	}
	welcome, err := stream.ParseWelcome(frame)
	if err != nil {
		return err
	}
	if err := c.cfg.Check(call.Proof{Token: welcome.Proof, Nonce: welcome.Nonce}, nonce); err != nil {
		return err
	}
	if welcome.Agent != c.cfg.Hello.Agent {
		return fmt.Errorf("the principal takes this agent for %q: %w", welcome.Agent, call.ErrMismatch)
	}
	welcome.Capabilities = welcome.Capabilities.Common(c.cfg.Hello.Capabilities)
	if !timeout.Stop() {
		return errWelcomeTimeout
	}
	if !stopped() {
		return context.Cause(ctx)
	}
	up(welcome.ProveAgain)
	c.cfg.Log.Info().Str("connection", welcome.Connection).Str("version", welcome.Version).
		Msg("connected to the principal")
	conn := &Conn{frames: frames, agent: c.cfg.Hello.Agent, quota: c.cfg.Quota, unsupported: c.unsupported}
	if c.cfg.Token != nil {
		renewing, stop := context.WithCancel(life)
		var renewal sync.WaitGroup
		renewal.Go(func() { c.renew(renewing, conn, token, renewAt) })
		defer renewal.Wait()
		defer cancel(nil) // what it sends may wait for the peer
		defer stop()
	}
	return c.cfg.Serve(ctx, welcome, conn)
}

// codings are the content codings of the stream, by preference.
func codings() []string { return []string{zstd.Name, gzip.Name, encoding.Identity} }

// call says hello and returns the first frame of the principal. A content coding
// that it does not know is answered with the code Unimplemented before it reads
// anything, and the next one is tried on the same connection; it answers in the
// coding it was called in.
func (c *Client) call(ctx context.Context, service streampb.StreamClient,
	nonce stream.Nonce) (frames grpc.BidiStreamingClient[streampb.Frame, streampb.Frame], first *streampb.Frame,
	err error) {
	hello := c.cfg.Hello
	hello.Nonce, hello.Turn = nonce, c.turns.Add(1)
	if c.cfg.History != nil {
		if hello.HubUID, hello.History, err = c.cfg.History(ctx); err != nil {
			return nil, nil, err
		}
	}
	for _, coding := range codings() {
		if frames, err = service.Connect(ctx, grpc.UseCompressor(coding)); err != nil {
			return nil, nil, err
		}
		if err := frames.Send(stream.HelloFrame(hello)); err != nil {
			// io.EOF: the status is what Recv returns.
			c.cfg.Log.Debug().Err(err).Msg("cannot send hello")
		}
		first = &streampb.Frame{}
		if err = wire.Receive(frames,
			&wire.Message{Into: first, Most: stream.MaxSmallBytes}); status.Code(err) != codes.Unimplemented {
			break
		}
		c.cfg.Log.Debug().Err(err).Str("coding", coding).Msg("the principal does not know this content coding")
	}
	return frames, first, err
}

var errWelcomeTimeout = errors.New("no welcome in time")

func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// Conn is one connection after its handshake.
type Conn struct {
	frames      grpc.BidiStreamingClient[streampb.Frame, streampb.Frame]
	agent       identity.AgentName
	quota       *quota.Quota
	unsupported *prometheus.CounterVec

	sending sync.Mutex // held by Send: a link and the renewal of its proof send
}

// Send blocks while the peer takes nothing.
func (c *Conn) Send(m stream.Message) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.frames.Send(stream.FrameOf(m))
}

// Recv returns neither a message nor an error for a frame of a newer peer. An error
// wraps a stream.Violation for what no one should have sent.
func (c *Conn) Recv() (stream.Message, error) {
	frame := &streampb.Frame{}
	m := &wire.Message{Into: frame, Most: stream.MaxFrameBytes, Peer: c.agent}
	if err := wire.ReceiveInto(c.frames.Context(), c.frames, m, c.quota); err != nil {
		return nil, err
	}
	turn := c.quota.Compute(c.agent)
	msg, err := stream.ParseFrame(frame)
	turn.End()
	if _, ok := msg.(stream.Credential); ok {
		return nil, fmt.Errorf("the principal renews its proof: %w", stream.ViolationOrder.Err())
	}
	if batch, ok := msg.(stream.Batch); ok && len(batch.Unsupported) > 0 {
		c.unsupported.WithLabelValues("event").Add(float64(len(batch.Unsupported)))
	}
	if msg == nil && err == nil {
		c.unsupported.WithLabelValues("frame").Inc()
	}
	return msg, err
}

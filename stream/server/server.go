package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // agents may call in it
	"google.golang.org/grpc/keepalive"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/stream/wire"
	_ "github.com/argomesh/argomesh/stream/zstd" // as above; gRPC answers in the coding of the call
)

// Registry says who may connect.
type Registry = call.Registry

// Session is one admitted connection.
type Session struct {
	Agent stream.Agent
	Peer  identity.Peer
	Hello stream.Hello
	// Capabilities are those that both sides offer; nothing else may be used.
	Capabilities stream.Capabilities
	Connection   string
}

// Config holds what a Server needs. Fields without a stated default are required.
type Config struct {
	// Credentials and Authenticate are the Method of listeners that have no other by
	// Method.On: mutual TLS, which neither renews nor has anything to prove.
	Credentials  credentials.TransportCredentials
	Authenticate func(ctx context.Context) (identity.Peer, error)
	Registry     Registry
	// Withdrawn returns since when this process may no longer use its own identity, and
	// Updated a channel that is closed when that may have changed since the call. Nil
	// for both means that it may always.
	Withdrawn func() time.Time
	Updated   func() <-chan struct{}
	// Serve runs an admitted connection until it ends, and returns soon after ctx
	// is done, whose cause says why: stream.ErrRevoked when the registry no longer
	// admits the agent.
	Serve func(ctx context.Context, s Session, conn *Conn) error
	// Opened is told of an admitted connection before its agent is, and what it
	// returns is called when the connection has ended. Nil means that no one asks.
	Opened func(Session) (closed func())
	// Refused is told of each connection that is refused to someone who has proven who he
	// is, for longer than a moment. It does not block. Nil means that no one asks.
	Refused func(Refusal)
	// Renewed is told when the peer of a connection has proven itself again. Nil means
	// that no one asks.
	Renewed func(Session)
	// Register adds other services to the same listener, whose callers come through
	// the same gate. Nil means none.
	Register func(grpc.ServiceRegistrar, *call.Admission)
	// HubUID identifies the hub to its agents.
	HubUID string
	// Version is the release of the principal.
	Version string
	// Capabilities are offered to agents. Zero means none beyond the protocol.
	Capabilities stream.Capabilities
	// MaxConnections bounds the open connections of each listener; more wait to be
	// accepted. A tenth of them, one at least, may have no call that was admitted, but for
	// those of a proxy of this pod; who comes then takes the place of one that was refused,
	// or the oldest of the address that has the most. Zero means 20,000.
	MaxConnections int
	// MaxAgentConnections bounds those on which one agent has admitted calls, but for
	// those of a proxy of this pod. Zero means 64.
	MaxAgentConnections int
	// HandshakeTimeout bounds TLS, the wait for a call and the wait for hello, each.
	// Zero means 10s.
	HandshakeTimeout time.Duration
	// Grace is how long a connection outlasts the newest proof of its agent, and the
	// withdrawal of our own identity. Zero means 30s.
	Grace time.Duration
	// DrainTimeout bounds how long Run waits for open streams and handshakes. Zero
	// means 5s.
	DrainTimeout time.Duration
	// Quota is the room for messages on their way. Nil means one of its own.
	Quota   *quota.Quota
	Metrics prometheus.Registerer
	Log     zerolog.Logger
}

// Server is the gRPC server of the stream.
type Server struct {
	streampb.UnimplementedStreamServer
	cfg       Config
	fallback  Method // of listeners without another
	admission *call.Admission
	grpc      *grpc.Server
	metrics   *metrics

	connections *tally // on which an agent has calls
	streams     *tally // of the sync service
	signatures  *signatures
	arrivals    *call.AgentLimiter // of the sync service
}

// New checks cfg and starts nothing.
func New(cfg Config) (*Server, error) {
	if cfg.Credentials == nil || cfg.Authenticate == nil || cfg.Serve == nil || cfg.HubUID == "" {
		return nil, errors.New("stream server: credentials, authenticate, serve and hub uid are required")
	}
	cfg = cfg.withDefaults()
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("stream server: %w", err)
	}
	if cfg.Quota == nil {
		if cfg.Quota, err = quota.New(nil); err != nil {
			return nil, fmt.Errorf("stream server: %w", err)
		}
	}
	s := &Server{
		cfg: cfg, metrics: m, connections: newTally(cfg.MaxAgentConnections), streams: newTally(maxAgentStreams),
		signatures: newSignatures(), arrivals: call.NewAgentLimiter(arrivalsPerSecond, arrivalsAtOnce),
	}
	s.fallback = Method{Name: identity.MethodX509, Credentials: cfg.Credentials, Authenticate: cfg.Authenticate}
	s.admission, err = call.NewAdmission(call.AdmissionConfig{
		Method:       func(ctx context.Context) string { return s.method(ctx).Name },
		Authenticate: func(ctx context.Context) (identity.Peer, error) { return s.method(ctx).Authenticate(ctx) },
		Open:         s.open,
		Prove:        s.prove, Withdrawn: cfg.Withdrawn, Updated: cfg.Updated,
		Registry: cfg.Registry, HelloTimeout: cfg.HandshakeTimeout, Grace: cfg.Grace, Quota: cfg.Quota,
		Metrics: cfg.Metrics, Log: cfg.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("stream server: %w", err)
	}
	s.grpc = grpc.NewServer(append(call.ServerOptions(cfg.Quota),
		grpc.Creds(byMethod{cfg.Credentials}),
		grpc.ConnectionTimeout(cfg.HandshakeTimeout),
		grpc.StreamInterceptor(count), grpc.UnknownServiceHandler(unknown),
		grpc.MaxRecvMsgSize(stream.MaxFrameBytes),
		grpc.MaxSendMsgSize(stream.MaxFrameBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: 15 * time.Second, Timeout: 10 * time.Second,
			// Who proves an SVID and then calls nothing does not keep the connection.
			MaxConnectionIdle: cfg.HandshakeTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)...)
	streampb.RegisterStreamServer(s.grpc, s)
	if cfg.Register != nil {
		cfg.Register(s.grpc, s.admission)
	}
	return s, nil
}

// withDefaults are the settings with what was left out.
func (cfg Config) withDefaults() Config {
	if cfg.Opened == nil {
		cfg.Opened = func(Session) func() { return func() {} }
	}
	if cfg.Refused == nil {
		cfg.Refused = func(Refusal) {}
	}
	if cfg.Renewed == nil {
		cfg.Renewed = func(Session) {}
	}
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, 20000)
	cfg.MaxAgentConnections = cmp.Or(cfg.MaxAgentConnections, 64)
	cfg.HandshakeTimeout = cmp.Or(cfg.HandshakeTimeout, 10*time.Second)
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 5*time.Second)
	return cfg
}

// maxHeaderBytes bounds the metadata of a call, as Envoy does: room for what a few
// proxies say of their clients, certificates included.
const maxHeaderBytes = 64 << 10

// Run serves on all listeners until ctx is done, then says goodbye to the agents and
// waits for their streams. It closes the listeners in every case and is called once.
func (s *Server) Run(ctx context.Context, listeners ...net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	var accepted []*listener
	for _, l := range listeners {
		a := newListener(l, room{
			all: s.cfg.MaxConnections, strangers: max(s.cfg.MaxConnections/10, 1), strangerTimeout: 2 * s.cfg.HandshakeTimeout,
		}, s.metrics)
		accepted = append(accepted, a)
		g.Go(func() error {
			err := s.grpc.Serve(a)
			if errors.Is(err, grpc.ErrServerStopped) {
				return nil // stopped before it began
			}
			return err
		})
	}
	g.Go(func() error {
		<-ctx.Done()
		s.admission.Drain()
		force := time.AfterFunc(s.cfg.DrainTimeout, func() {
			for _, a := range accepted {
				a.cut() // gRPC would wait for handshakes under way
			}
			s.grpc.Stop()
		})
		defer force.Stop()
		s.grpc.GracefulStop()
		return nil
	})
	return g.Wait()
}

// Connect is the service's one method.
func (s *Server) Connect(g grpc.BidiStreamingServer[streampb.Frame, streampb.Frame]) error {
	caller, err := s.admission.Admit(g.Context())
	if err != nil {
		s.notAdmitted(caller, err)
		return err
	}
	log, peer, agent := caller.Log, caller.Peer, caller.Agent
	hello, err := s.readHello(g, caller)
	if err != nil {
		return err
	}
	if !s.arrivals.Allow(agent.Name, time.Now()) {
		return s.admission.Refuse(log, "busy", fmt.Errorf("it reconnects too often: %w", call.ErrBusy))
	}
	release, err := s.admission.Open(caller)
	if err != nil {
		return s.admission.Refuse(log, "busy", err)
	}
	defer release()
	if !s.streams.enter(agent.Name) {
		return s.admission.Refuse(log, "busy", call.ErrBusy)
	}
	defer s.streams.leave(agent.Name)
	session := Session{
		Agent: agent, Peer: peer, Hello: hello, Connection: uuid.NewString(),
		Capabilities: s.cfg.Capabilities.Common(hello.Capabilities),
	}
	log = log.With().Str("connection", session.Connection).Logger()
	proof, err := s.admission.Prove(g.Context(), caller, hello.Nonce)
	if err != nil {
		return s.admission.Refuse(log, "unproven", err)
	}
	welcome := stream.Welcome{
		Protocol: stream.Protocol, Version: s.cfg.Version, Capabilities: s.cfg.Capabilities, Agent: agent.Name,
		HubUID: s.cfg.HubUID, Connection: session.Connection, Children: agent.Children,
		Proof: proof.Token, Nonce: proof.Nonce, ProveAgain: proof.ProveAgain,
	}
	// Before the agent knows: at its welcome it ends the connection before this one,
	// and a takeover must show no gap.
	closed := s.cfg.Opened(session)
	defer closed()
	s.metrics.connections.Inc()
	defer s.metrics.connections.Dec()
	if err := g.Send(stream.WelcomeFrame(welcome)); err != nil {
		return err
	}
	return s.serve(g, caller, session)
}

// readHello takes the hello of a caller, and refuses one that is not as it should be.
func (s *Server) readHello(g grpc.BidiStreamingServer[streampb.Frame, streampb.Frame],
	caller call.Caller) (stream.Hello, error) {
	log, agent := caller.Log, caller.Agent
	hello, err := s.hello(g)
	if errors.Is(err, call.ErrDraining) {
		return hello, call.StatusOf(g.Context(), err) // nothing is wrong with the caller
	}
	if err != nil {
		s.refused(caller, err)
	}
	if errors.Is(err, stream.ErrIncompatible) {
		return hello, s.admission.Refuse(log, "incompatible", err)
	}
	if errors.Is(err, io.EOF) {
		// Who ends its call without a word asks as whom it is known.
		g.SetTrailer(call.Trailer(agent))
	}
	if err != nil {
		s.metrics.exceeded(err)
		return hello, s.admission.Refuse(log, "protocol", err)
	}
	if err := check(hello, agent); err != nil {
		s.refused(caller, err)
		return hello, s.admission.Refuse(log, "mismatch", err)
	}
	return hello, nil
}

// serve runs an admitted connection until it ends.
func (s *Server) serve(g grpc.BidiStreamingServer[streampb.Frame, streampb.Frame], caller call.Caller,
	session Session) error {
	peer, agent := caller.Peer, caller.Agent
	log := caller.Log.With().Str("connection", session.Connection).Logger()
	ctx, end := context.WithCancelCause(g.Context())
	var guard sync.WaitGroup
	guard.Go(func() { end(s.admission.Watch(ctx, caller, s.admission.Draining())) })
	defer guard.Wait()
	defer end(nil)

	log.Info().Str("version", session.Hello.Version).Stringer("mode", agent.Mode).Time("svid_not_after", peer.NotAfter).
		Msg("agent connected")
	conn := &Conn{frames: g, agent: agent.Name, quota: s.cfg.Quota, unsupported: s.metrics.unsupported, renewal: &renewal{
		method: s.method(g.Context()), peer: peer, total: s.metrics.renewals,
		proven: func(p identity.Peer) {
			s.admission.Renew(p)
			renewed := session
			renewed.Peer = p
			s.cfg.Renewed(renewed)
		},
	}}
	err := s.cfg.Serve(ctx, session, conn)
	s.metrics.violated(err)
	log.Info().AnErr("reason", reason(ctx, err)).Msg("agent disconnected")
	return call.StatusOf(ctx, err)
}

// hello waits for the first frame.
func (s *Server) hello(g grpc.BidiStreamingServer[streampb.Frame, streampb.Frame]) (stream.Hello, error) {
	frame, err := call.First(s.admission, g.Recv)
	if err != nil {
		return stream.Hello{}, err
	}
	return stream.ParseHello(frame)
}

func reason(ctx context.Context, err error) error {
	if stream.ViolationOf(err) != "" {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// Conn is one admitted connection.
type Conn struct {
	frames      grpc.BidiStreamingServer[streampb.Frame, streampb.Frame]
	agent       identity.AgentName
	quota       *quota.Quota
	unsupported *prometheus.CounterVec
	renewal     *renewal
	waits       atomic.Bool
}

// Waits reports whether what the agent sent is not read yet for want of memory, so that it is
// held up by us and not silent.
func (c *Conn) Waits() bool { return c.waits.Load() }

// Send blocks while the peer takes nothing.
func (c *Conn) Send(m stream.Message) error { return c.frames.Send(stream.FrameOf(m)) }

// Recv returns neither a message nor an error for a frame of a newer peer, and for a
// proof that the peer renewed. An error wraps a stream.Violation for what no one should
// have sent, such as what is larger than stream.MaxFrameBytes once it is unpacked.
func (c *Conn) Recv() (stream.Message, error) {
	frame := &streampb.Frame{}
	if err := wire.Receive(c.frames,
		&wire.Message{Into: frame, Most: stream.MaxFrameBytes, Peer: c.agent, Waits: &c.waits}); err != nil {
		return nil, err
	}
	turn := c.quota.Compute(c.agent)
	msg, err := stream.ParseFrame(frame)
	turn.End()
	if credential, ok := msg.(stream.Credential); ok {
		return nil, c.renewal.renew(credential) // a matter of this connection, not of what runs on it
	}
	if batch, ok := msg.(stream.Batch); ok && len(batch.Unsupported) > 0 {
		c.unsupported.WithLabelValues("event").Add(float64(len(batch.Unsupported)))
	}
	if msg == nil && err == nil {
		c.unsupported.WithLabelValues("frame").Inc()
	}
	return msg, err
}

type metrics struct {
	connections prometheus.Gauge
	strangers   prometheus.Gauge
	ended       *prometheus.CounterVec
	violations  *prometheus.CounterVec
	limits      *prometheus.CounterVec
	unsupported *prometheus.CounterVec
	renewals    *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	if r == nil {
		return nil, errors.New("a metrics registerer is required")
	}
	m := &metrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_stream_connections", Help: "Admitted connections of agents.",
		}),
		strangers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_stream_strangers",
			Help: "Open connections on which no call is admitted; they have a tenth of stream.max_connections.",
		}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_stream_strangers_ended_total", Help: "Connections without an admitted call that were ended, by why.",
		}, []string{"why"}),
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
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_stream_renewals_total", Help: "Proofs of agents on open connections, by what became of them.",
		}, []string{"result"}),
	}
	for _, c := range []prometheus.Collector{m.connections, m.strangers, m.ended, m.violations, m.limits, m.unsupported,
		m.renewals} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	for _, v := range stream.Violations() {
		m.violations.WithLabelValues(string(v)) // so that the first one is seen as a change
	}
	return m, nil
}

// violated counts what a peer broke, if err tells of it.
func (m *metrics) violated(err error) {
	if v := stream.ViolationOf(err); v != "" {
		m.violations.WithLabelValues(string(v)).Inc()
	}
	m.exceeded(err)
}

// exceeded counts the limit that err names, if it does.
func (m *metrics) exceeded(err error) {
	if name := stream.LimitOf(err); name != "" {
		m.limits.WithLabelValues(name).Inc()
	}
}

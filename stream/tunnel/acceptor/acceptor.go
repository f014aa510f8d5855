// Package acceptor is the spoke's end of the tunnel: it keeps spare streams open, and hands
// each that is taken to the handler of its service.
package acceptor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/grpc/credentials"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/tunnel"
)

// Config holds what an Acceptor needs. Fields without a stated default are
// required.
type Config struct {
	// Target is the principal's host:port, or a gRPC target.
	Target string
	// Credentials accept the principal only, or anyone who terminates TLS before it.
	Credentials credentials.TransportCredentials
	// Mutual is for what Credentials leave open: each stream brings a token, and is of
	// no use before the principal has proven itself on it.
	call.Mutual
	Agent identity.AgentName
	// Services is what the hub may reach. Others are refused.
	Services map[stream.Service]tunnel.Handler
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
	cfg     Config
	metrics *acceptorMetrics
	// logged bounds what a hub can write to our log.
	logged zerolog.Sampler
	unread *tunnel.Unread
}

// maxUnread bounds the bytes of the hub, in its streams, that the services of the spoke have
// not read: a fourth of what the windows of 1,024 streams allow.
const maxUnread = 64 << 20

// New checks cfg and starts nothing.
func New(cfg Config) (*Acceptor, error) {
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
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, 1024)
	cfg.MinSpares = cmp.Or(cfg.MinSpares, 2)
	cfg.MaxSpares = cmp.Or(cfg.MaxSpares, 64)
	cfg.Review = cmp.Or(cfg.Review, 30*time.Second)
	cfg.HandshakeTimeout = cmp.Or(cfg.HandshakeTimeout, 15*time.Second)
	cfg.AcceptTimeout = cmp.Or(cfg.AcceptTimeout, 10*time.Second)
	cfg.StopTimeout = cmp.Or(cfg.StopTimeout, time.Second)
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, tunnel.DefaultHeartbeat)
	cfg.Silence = cmp.Or(cfg.Silence, tunnel.DefaultSilence)
	if cfg.MinSpares < 1 || cfg.MaxSpares < cfg.MinSpares || cfg.MaxStreams <= cfg.MinSpares {
		return nil, fmt.Errorf("tunnel acceptor: at least one spare stream, and more streams than those: not %d to %d of %d",
			cfg.MinSpares, cfg.MaxSpares, cfg.MaxStreams)
	}
	m, err := newAcceptorMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("tunnel acceptor: %w", err)
	}
	return &Acceptor{
		cfg: cfg, metrics: m, logged: &zerolog.BurstSampler{Burst: 20, Period: time.Second},
		unread: m.Unread(maxUnread, nil),
	}, nil
}

// Run keeps streams open, again and again, until ctx is done, and returns nil when
// every Handler has returned. It may be called again then.
func (a *Acceptor) Run(ctx context.Context) error {
	t := newRun(a)
	defer t.pause.Stop()
	defer t.renewTimer.Stop()
	review := time.NewTicker(a.cfg.Review)
	defer review.Stop()
	for {
		updated := a.cfg.Updated()
		t.balance(ctx)
		select {
		case <-ctx.Done():
			t.stopping = true
			for len(t.streams) > 0 {
				t.handle(<-t.events)
			}
			return nil
		case <-t.pause.C:
			t.backingOff = false
		case <-updated:
		case <-t.renewTimer.C:
		case <-review.C:
			t.review()
		case n := <-t.events:
			t.handle(n)
		}
	}
}

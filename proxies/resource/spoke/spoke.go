// Package spoke is the spoke's end of live access: it passes what its owner lets the hub ask
// on to its API server, with the agent's own service account, and the answer back.
//
//	live, err := spoke.New(spoke.Config{REST: config, Policy: policy, ...})
//	err = live.Serve(ctx, conn) // one connection of the tunnel
package spoke

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/resource/callmetrics"
	"github.com/argomesh/argomesh/proxies/resource/concurrency"
	"github.com/argomesh/argomesh/proxies/resource/exchange"
	"github.com/argomesh/argomesh/proxies/resource/objects"
	"github.com/argomesh/argomesh/proxies/resource/pool"
	"github.com/argomesh/argomesh/proxies/resource/secretread"
)

const (
	// spokeIdleTime ends a connection on which no call came. It is longer than
	// idleDialTime, so that the hub is who ends it.
	spokeIdleTime = 2 * time.Minute
	// spokeHeaderTime bounds the wait for the header of a call once it has begun.
	spokeHeaderTime = 30 * time.Second
)

// Policy decides what a call may do. *access.Policy is one.
type Policy interface {
	Decide(access.Request) access.Decision
}

// Config holds what a Spoke needs. Fields without a stated default are
// required.
type Config struct {
	// REST is how the agent itself reaches its API server: its own service account.
	// Its WrapTransport is not used, since what wraps an answer hides its connection.
	REST *rest.Config
	// Policy is the allow-list of the spoke's owner: the last word.
	Policy Policy
	// TrackingLabel is the label by which the spoke's Argo CD tracks objects; empty
	// when it does so by annotation.
	TrackingLabel string
	Tracer        trace.Tracer
	Metrics       prometheus.Registerer
	Log           zerolog.Logger
	// MaxCalls bounds the calls under way; more are answered 429. Zero means 1024.
	MaxCalls int
	// CallsPerSecond bounds the calls that the hub begins in a second, after ten times as
	// many at once; more are answered 429. Zero means 100.
	CallsPerSecond int
	// BodyTimeout bounds the wait for the next bytes of a call's body. Zero means 1m.
	BodyTimeout time.Duration
}

// Spoke is the spoke's end: it serves connections of the tunnel, decides by the
// rules of the spoke's owner, and passes calls on to the spoke's API server. Its
// methods may be called concurrently.
type Spoke struct {
	cfg      Config
	limiter  *concurrency.Limiter
	callRate *rate.Limiter
	reading  chan struct{} // holds one for each answer about groups that is in memory
	masker   *secretread.Masker
	metrics  *callmetrics.Metrics
	base     *url.URL
	server   http.RoundTripper
	tracker  *access.Tracker
	http     *http.Server
}

// New checks cfg and starts nothing.
func New(cfg Config) (*Spoke, error) {
	if cfg.REST == nil || cfg.Policy == nil || cfg.Tracer == nil {
		return nil, errors.New("live access: rest, policy and tracer are required")
	}
	if cfg.MaxCalls < 0 || cfg.CallsPerSecond < 0 || cfg.BodyTimeout < 0 {
		return nil, errors.New("live access: limits must not be negative")
	}
	cfg.MaxCalls = cmp.Or(cfg.MaxCalls, 1024)
	cfg.CallsPerSecond = cmp.Or(cfg.CallsPerSecond, 100)
	cfg.BodyTimeout = cmp.Or(cfg.BodyTimeout, time.Minute)
	config := rest.CopyConfig(cfg.REST)
	config.WrapTransport = nil
	config.DisableCompression = true                         // bodies pass as they are
	config.TLSClientConfig.NextProtos = []string{"http/1.1"} // each call has its connection, and upgrades are bytes
	config.Timeout = 0                                       // a watch is as long as it is
	s := &Spoke{
		cfg:      cfg,
		limiter:  concurrency.New(cfg.MaxCalls, cfg.MaxCalls),
		callRate: newCallRate(cfg.CallsPerSecond),
		reading:  make(chan struct{}, maxReadGroups),
	}
	var err error
	if s.base, _, err = rest.DefaultServerUrlFor(config); err != nil {
		return nil, fmt.Errorf("live access: address of the API server: %w", err)
	}
	room := make(pool.Dials, pool.MaxDials)
	if s.server, err = pool.ServerTransport(config, s.base.Scheme == "https", cfg.MaxCalls, room); err != nil {
		return nil, fmt.Errorf("live access: transport to the API server: %w", err)
	}
	objects, err := objects.New(cfg.REST)
	if err != nil {
		return nil, fmt.Errorf("live access: %w", err)
	}
	s.tracker = &access.Tracker{Objects: objects, Label: cfg.TrackingLabel}
	if s.metrics, err = callmetrics.New(cfg.Metrics, "spoke",
		func() float64 { return float64(s.limiter.Count()) }); err != nil {
		return nil, fmt.Errorf("live access: metrics: %w", err)
	}
	if err := showCallRate(cfg.Metrics, s.callRate); err != nil {
		return nil, fmt.Errorf("live access: metrics: %w", err)
	}
	if err := callmetrics.ShowDials(cfg.Metrics, room); err != nil {
		return nil, fmt.Errorf("live access: metrics: %w", err)
	}
	s.masker = secretread.NewMasker(s.metrics.Masked, secretread.Bytes)
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: spokeHeaderTime,
		IdleTimeout:       spokeIdleTime,
		MaxHeaderBytes:    exchange.MaxHeader,
		ErrorLog:          exchange.StdlibLog(cfg.Log),
		BaseContext:       func(l net.Listener) context.Context { return l.(*singleConnListener).ctx },
	}
	return s, nil
}

// errServerLost ends a connection whose other half, behind an upgrade, was lost.
var errServerLost = errors.New("the connection to the API server was lost")

// Serve serves one connection until it ends or ctx is done. Then it has closed conn,
// but where an upgraded connection was lost behind us: then it returns an error, and
// the caller ends conn so that the hub does not take it for complete.
func (s *Spoke) Serve(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &singleConnListener{ctx: ctx, conn: conn, ended: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { _ = l.end() }) // its error is no one's
	defer stop()
	if err := s.http.Serve(l); !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve a connection of the hub: %w", err)
	}
	return l.lossErr
}

// ServeHTTP serves one call of the hub.
func (s *Spoke) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &spokeCall{spoke: s, start: time.Now(), path: r.RequestURI, verb: callmetrics.VerbNone}
	ctx, span := exchange.StartSpan(r, s.cfg.Tracer, "resource.forward", trace.SpanKindServer)
	r = r.WithContext(ctx)
	defer func() {
		e := &v.exchange
		s.metrics.Ended(v.verb, e.Status, time.Since(v.start), v.long, e.Sent.Load(), e.Received.Load())
		if v.entered {
			s.limiter.Release(noAgent)
		}
		span.SetAttributes(attribute.String("k8s.verb", v.verb), attribute.Int("http.response.status_code", e.Status))
		span.End()
		exchange.BoundRest(w, r, s.cfg.BodyTimeout)
	}()
	v.serve(w, r)
}

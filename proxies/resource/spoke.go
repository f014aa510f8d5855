package resource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/masking"
	"github.com/argomesh/argomesh/proxies/resource/mediatype"
	"github.com/argomesh/argomesh/proxies/resource/objects"
	"github.com/argomesh/argomesh/proxies/resource/pool"
)

const (
	// spokeIdleTime ends a connection on which no call came. It is longer than
	// idleDialTime, so that the hub is who ends it.
	spokeIdleTime = 2 * time.Minute
	// spokeHeaderTime bounds the wait for the header of a call once it has begun.
	spokeHeaderTime = 30 * time.Second
)

// SpokeConfig holds what a Spoke needs. Fields without a stated default are
// required.
type SpokeConfig struct {
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
	// BodyTimeout bounds the wait for the next bytes of a call's body. Zero means 1m.
	BodyTimeout time.Duration
}

// Spoke is the spoke's end: it serves connections of the tunnel, decides by the
// rules of the spoke's owner, and passes calls on to the spoke's API server. Its
// methods may be called concurrently.
type Spoke struct {
	cfg     SpokeConfig
	gate    *gate
	reading chan struct{} // holds one for each answer about groups that is in memory
	masker  *masker
	metrics *metrics
	base    *url.URL
	server  http.RoundTripper
	tracker *access.Tracker
	http    *http.Server
}

// NewSpoke checks cfg and starts nothing.
func NewSpoke(cfg SpokeConfig) (*Spoke, error) {
	if cfg.REST == nil || cfg.Policy == nil || cfg.Tracer == nil {
		return nil, errors.New("live access: rest, policy and tracer are required")
	}
	if cfg.MaxCalls < 0 || cfg.BodyTimeout < 0 {
		return nil, errors.New("live access: limits must not be negative")
	}
	cfg.MaxCalls = cmp.Or(cfg.MaxCalls, 1024)
	cfg.BodyTimeout = cmp.Or(cfg.BodyTimeout, time.Minute)
	config := rest.CopyConfig(cfg.REST)
	config.WrapTransport = nil
	config.DisableCompression = true                         // bodies pass as they are
	config.TLSClientConfig.NextProtos = []string{"http/1.1"} // each call has its connection, and upgrades are bytes
	config.Timeout = 0                                       // a watch is as long as it is
	s := &Spoke{cfg: cfg, gate: newGate(cfg.MaxCalls, cfg.MaxCalls), reading: make(chan struct{}, maxReadGroups)}
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
	if s.metrics, err = newMetrics(cfg.Metrics, "spoke", func() float64 { return float64(s.gate.count()) }); err != nil {
		return nil, fmt.Errorf("live access: metrics: %w", err)
	}
	if err := showDials(cfg.Metrics, room); err != nil {
		return nil, fmt.Errorf("live access: metrics: %w", err)
	}
	s.masker = newMasker(s.metrics, maskBytes)
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: spokeHeaderTime,
		IdleTimeout:       spokeIdleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          stdlibLog(cfg.Log),
		BaseContext:       func(l net.Listener) context.Context { return l.(*only).ctx },
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
	l := &only{ctx: ctx, conn: conn, ended: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { _ = l.end() }) // its error is nobody's
	defer stop()
	if err := s.http.Serve(l); !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve a connection of the hub: %w", err)
	}
	return l.lost
}

// only is a listener that accepts one connection. Accept fails once that has ended.
type only struct {
	ctx   context.Context //nolint:containedctx // of the connection's calls, by http.Server.BaseContext
	conn  net.Conn
	given bool // Accept is called by one goroutine

	once  sync.Once
	ended chan struct{}
	err   error // of closing the connection; set before ended is closed
	lost  error // why the connection was left open; as above
}

// Accept implements net.Listener.
func (l *only) Accept() (net.Conn, error) {
	if !l.given {
		l.given = true
		return &servedConn{Conn: l.conn, only: l}, nil
	}
	<-l.ended
	return nil, net.ErrClosed
}

// Close implements net.Listener. The server calls it when Accept has failed.
func (l *only) Close() error { return l.end() }

// Addr implements net.Listener.
func (l *only) Addr() net.Addr { return l.conn.LocalAddr() }

func (l *only) end() error {
	l.once.Do(func() {
		l.err = l.conn.Close()
		close(l.ended)
	})
	return l.err
}

// lose leaves the connection to the caller of Serve.
func (l *only) lose() error {
	l.once.Do(func() {
		l.lost = errServerLost
		l.err = l.conn.SetDeadline(time.Unix(1, 0)) // whoever still reads is done
		close(l.ended)
	})
	return l.err
}

// servedConn ends its listener when it is closed, by the server or by who took it
// over for an upgrade.
type servedConn struct {
	net.Conn
	only *only
}

// Close ends the connection.
func (c *servedConn) Close() error { return c.only.end() }

func (c *servedConn) abort() error { return c.only.lose() }

// CloseWrite ends our direction alone.
func (c *servedConn) CloseWrite() error { return closeWrite(c.Conn) }

// visit is one call at the spoke.
type visit struct {
	spoke    *Spoke
	start    time.Time
	path     string // as it was sent
	verb     string
	long     bool
	exchange exchange
	entered  bool
}

// nobody stands in the gate of a Spoke, which has one agent: itself.
var nobody identity.AgentName

// ServeHTTP serves one call of the hub.
func (s *Spoke) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &visit{spoke: s, start: time.Now(), path: r.RequestURI, verb: verbNone}
	ctx, span := startSpan(r, s.cfg.Tracer, "resource.forward", trace.SpanKindServer)
	r = r.WithContext(ctx)
	defer func() {
		e := &v.exchange
		s.metrics.ended(v.verb, e.status, time.Since(v.start), v.long, e.sent.Load(), e.received.Load())
		if v.entered {
			s.gate.leave(nobody)
		}
		span.SetAttributes(attribute.String("k8s.verb", v.verb), attribute.Int("http.response.status_code", e.status))
		span.End()
		boundRest(w, r, s.cfg.BodyTimeout)
	}()
	v.serve(w, r)
}

func (v *visit) serve(w http.ResponseWriter, r *http.Request) {
	s := v.spoke
	upgrade, err := checkMessage(r)
	if err != nil {
		v.refuse(w, ruleMessage, badRequest(err))
		return
	}
	request, err := access.Parse(r.Method, r.RequestURI, r.Header)
	if err != nil {
		v.refuse(w, ruleMessage, access.StatusOf(err))
		return
	}
	target, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		v.refuse(w, ruleMessage, badRequest(errors.New("the target cannot be read"))) // Parse has read it before
		return
	}
	v.verb, v.long = request.Verb, isLong(request, target, upgrade)
	decision := s.cfg.Policy.Decide(request)
	if decision.Allowed && (decision.Tracked || r.Header.Get(access.TrackedOnlyHeader) != "") {
		if decision, err = s.tracker.Check(r.Context(), decision); err != nil {
			v.fail(w, objectStatus(err))
			return
		}
	}
	if !decision.Allowed {
		v.refuse(w, decision.Rule, decision.Status())
		return
	}
	var masked *maskedRead
	if access.ReadsSecrets(request) {
		var refusal *metav1.Status
		masked, refusal = maskedReadOf(request, target, r.Header)
		switch asked := masked != nil && masked.form == masking.Outlined; { // by the hub
		case !decision.Masked && !asked:
			masked = nil
		case refusal != nil:
			v.refuse(w, ruleMessage, refusal)
			return
		}
	}
	if refusal := s.gate.enter(nobody); refusal != "" {
		v.refuse(w, ruleConcurrency, tooMany("argomesh spoke: "+refusal))
		return
	}
	v.entered = true
	v.pass(w, r, forwarding{target: target, request: request, own: decision.OwnKinds, masked: masked, maskedHere: decision.Masked})
}

// forwarding says what is passed on to the API server.
type forwarding struct {
	target  *url.URL
	request access.Request
	own     bool        // of an answer about the groups, only Kubernetes' own
	masked  *maskedRead // nil for an answer that passes as it is
	// maskedHere says that it is by the rules of the spoke's owner.
	maskedHere bool
}

// errCredentials is an answer of the API server that does not know the agent. To the
// hub's caller it would say that its own token is no good.
var errCredentials = errors.New("the api server does not accept the agent's own credentials")

func badCredentials() *metav1.Status {
	return access.BadGateway("argomesh spoke: its API server does not accept the agent's own credentials")
}

// objectStatus is the answer when the object of a call could not be looked at: what
// the API server said about it, if it said something.
func objectStatus(err error) *metav1.Status {
	var said apierrors.APIStatus
	if errors.As(err, &said) {
		status := said.Status()
		if status.Code == http.StatusUnauthorized {
			return badCredentials()
		}
		if status.Code >= http.StatusBadRequest {
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			return &status
		}
	}
	return access.BadGateway("argomesh spoke: the object of the call cannot be looked at")
}

// pass passes the call on to the API server, and its answer back.
func (v *visit) pass(w http.ResponseWriter, r *http.Request, f forwarding) {
	e := &v.exchange
	groups := f.own && strings.TrimSuffix(f.target.Path, "/") == "/apis"
	e.out = v.spoke.server
	e.base = v.spoke.base
	e.target = f.target
	if f.masked != nil {
		e.target = f.masked.target(f.target)
	}
	e.bodyTimeout = v.spoke.cfg.BodyTimeout
	e.log = v.spoke.cfg.Log
	e.outgoing = func(header http.Header) {
		propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(header))
		if groups {
			askForGroups(header)
		}
		if f.masked != nil {
			f.masked.ask(header, mediatype.Plain)
		}
	}
	e.answer = func(res *http.Response) error { return v.answer(r.Context(), res, f, groups) }
	e.failed = func(w http.ResponseWriter, err error) { v.notAnswered(w, f, err) }
	e.run(w, r)
}

// answer makes of the API server's answer what the hub gets. groups says that it is the
// list of groups, of which only the API server's own are told.
func (v *visit) answer(ctx context.Context, res *http.Response, f forwarding, groups bool) error {
	stripAnswer(res.Header)
	unbase(res, v.exchange.base)
	if f.own {
		res.Header.Set(headerOwnKinds, "true")
	}
	if groups {
		select {
		case v.spoke.reading <- struct{}{}:
			defer func() { <-v.spoke.reading }()
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := keepOwnGroups(res); err != nil {
			return err
		}
	}
	if res.StatusCode == http.StatusUnauthorized && !f.request.IsProxy() { // behind a proxy it may be a service's
		return errCredentials
	}
	if f.masked == nil {
		return nil
	}
	if err := v.spoke.masker.fromServer(ctx, f.masked, res); err != nil {
		return err
	}
	if f.maskedHere {
		res.Header.Set(headerMasked, "true")
	}
	return nil
}

// notAnswered answers a call that the API server did not.
func (v *visit) notAnswered(w http.ResponseWriter, f forwarding, err error) {
	v.exchange.log.Warn().Err(err).Msg("the spoke's api server does not answer a call of the hub")
	status := badCredentials()
	notMasked := maskFailure(access.Spoke, err)
	switch {
	case f.masked != nil && notMasked != nil:
		status = notMasked
	case errors.Is(err, errGroups):
		status = access.BadGateway("argomesh spoke: what its API server says of its groups cannot be read")
	case !errors.Is(err, errCredentials):
		v.exchange.peerLost.Store(true)
		status = access.BadGateway("argomesh spoke: its API server does not answer")
	}
	w.Header().Set(headerFailed, "true")
	writeStatus(w, f.target.Path, status)
}

// refuse answers a call that the spoke does not let through, and tells the hub by
// which rule.
func (v *visit) refuse(w http.ResponseWriter, rule string, status *metav1.Status) {
	w.Header().Set(headerRefusedBy, rule)
	writeStatus(&meter{ResponseWriter: w, exchange: &v.exchange}, v.path, status)
}

// fail answers a call in place of the API server.
func (v *visit) fail(w http.ResponseWriter, status *metav1.Status) {
	w.Header().Set(headerFailed, "true")
	writeStatus(&meter{ResponseWriter: w, exchange: &v.exchange}, v.path, status)
}

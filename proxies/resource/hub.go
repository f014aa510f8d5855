package resource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/proxies/resource/callmetrics"
	"github.com/argomesh/argomesh/proxies/resource/concurrency"
	"github.com/argomesh/argomesh/proxies/resource/exchange"
	"github.com/argomesh/argomesh/proxies/resource/pool"
	"github.com/argomesh/argomesh/proxies/resource/secretread"
)

const (
	// maxAnswerHeader bounds the header of an answer, in bytes.
	maxAnswerHeader = 256 << 10
	// headerTimeout bounds the wait for the header of a call once it has begun.
	headerTimeout = 10 * time.Second
	// idleTimeout ends connections of Envoy between calls. Envoy ends its own earlier.
	idleTimeout = 10 * time.Minute
	// spareConnections bounds the connections beyond those of MaxCalls: between calls,
	// and of calls that agents have reserved.
	spareConnections = 8192
)

// Hub is the hub's end. It serves calls that Envoy has already checked, and checks
// them again: the token, whose path it is for, whether the agent is registered, and
// what the hub allows there. A call that goes on ends when the last two change so that
// it would be refused.
type Hub struct {
	cfg     HubConfig
	limiter *concurrency.Limiter
	active  *activeCalls
	metrics *callmetrics.Metrics
	masker  *secretread.Masker
	// refusals are those of spokes, and lastObjects has a value for each object that is
	// looked for without one.
	refusals    refusals
	lastObjects chan struct{}
	agents      *http.Transport
	http        *http.Server
}

// NewHub checks cfg and starts nothing.
func NewHub(cfg HubConfig) (*Hub, error) {
	if cfg.Dial == nil || cfg.Tokens == nil || cfg.Agents == nil || cfg.Audit == nil || cfg.Replies == nil ||
		cfg.Tracer == nil {
		return nil, errors.New("resource proxy: dial, tokens, agents, audit, replies and tracer are required")
	}
	if cfg.MaxCalls < 0 || cfg.MaxCallsPerAgent < 0 || cfg.BodyTimeout < 0 || cfg.DrainTimeout < 0 {
		return nil, errors.New("resource proxy: limits must not be negative")
	}
	cfg.MaxCalls = cmp.Or(cfg.MaxCalls, 4096)
	cfg.MaxCallsPerAgent = cmp.Or(cfg.MaxCallsPerAgent, 1024)
	cfg.BodyTimeout = cmp.Or(cfg.BodyTimeout, time.Minute)
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 5*time.Second)
	h := &Hub{cfg: cfg, limiter: concurrency.New(cfg.MaxCalls, cfg.MaxCallsPerAgent),
		active: newActiveCalls(cfg.Agents, cfg.Tokens), lastObjects: make(chan struct{}, lastObjects)}
	var err error
	if h.metrics, err = callmetrics.New(cfg.Metrics, "hub",
		func() float64 { return float64(h.limiter.Count()) }); err != nil {
		return nil, fmt.Errorf("resource proxy: metrics: %w", err)
	}
	h.masker = secretread.NewMasker(h.metrics.Masked, secretread.BytesOfAgent)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	h.agents = &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			name, err := identity.ParseAgentName(host)
			if err != nil {
				return nil, err
			}
			conn, err := cfg.Dial(ctx, name)
			if err != nil {
				return nil, dialError{err}
			}
			return conn, nil
		},
		Protocols:              &protocols,
		DisableCompression:     true, // bodies pass as they are
		MaxIdleConns:           pool.IdleDialsInAll,
		MaxIdleConnsPerHost:    pool.IdleDials,
		IdleConnTimeout:        pool.IdleDialTime,
		MaxResponseHeaderBytes: maxAnswerHeader,
	}
	h.http = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    exchange.MaxHeader,
		ErrorLog:          exchange.StdlibLog(cfg.Log),
		// OPTIONS * is refused as all else that is no path.
		DisableGeneralOptionsHandler: true,
	}
	return h, nil
}

// dialError is an error of HubConfig.Dial, before anything was sent.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

// errStopping is why calls end that outlast the drain.
var errStopping = errors.New("the principal stops")

// Run serves on l until ctx is done, then lets calls finish for a moment and ends
// the rest. It closes l in every case and is called once.
func (h *Hub) Run(ctx context.Context, l net.Listener) error {
	h.cfg.Log.Info().Stringer("listener", l.Addr()).Msg("resource proxy listening")
	calls, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer h.agents.CloseIdleConnections()
	h.http.BaseContext = func(net.Listener) context.Context { return calls }
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.cfg.Replies.Run(ctx) })
	g.Go(func() error {
		h.active.run(calls) // to the end: access is withdrawn from what drains, too
		return nil
	})
	g.Go(func() error {
		if err := h.http.Serve(newLimitListener(l, h.cfg.MaxCalls+spareConnections)); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the resource proxy: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.cfg.DrainTimeout)
		defer cancel()
		err := h.http.Shutdown(drain)
		stop(errStopping) // upgraded connections too, which the server no longer knows
		if err != nil {
			err = h.http.Close()
		}
		return errors.Join(err, h.waitHandlers(drain))
	})
	return g.Wait()
}

// waitHandlers waits until the handlers of calls that were ended have returned, which they
// do at once, so that each has its record.
func (h *Hub) waitHandlers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return h.limiter.Wait(ctx)
}

// call is one call at the hub.
type call struct {
	hub      *Hub
	start    time.Time
	path     string // at the agent's API server, as it was sent; empty when there is none
	token    string
	record   audit.Record
	long     bool
	exchange exchange.Exchange
	entered  bool
	refused  bool
	// finish ends the call for a reason.
	finish context.CancelCauseFunc
}

// ServeHTTP serves one call.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{hub: h, start: time.Now(), record: audit.Record{
		Call: h.cfg.Audit.Call(), Verb: callmetrics.VerbNone, DecidedBy: audit.Hub, Decision: audit.Deny,
		HubDecision: audit.Deny,
		Source:      source(r.Header), UserAgent: r.UserAgent(),
	}}
	c.record.Time = c.start
	ctx, span := exchange.StartSpan(r, h.cfg.Tracer, "resource.call", trace.SpanKindServer)
	ctx, c.finish = context.WithCancelCause(ctx)
	defer c.finish(nil)
	r = r.WithContext(ctx)
	if sc := trace.SpanContextFromContext(ctx); sc.HasTraceID() {
		c.record.TraceID = sc.TraceID().String()
	}
	defer func() {
		c.end(r)
		endSpan(span, &c.record)
		exchange.BoundRest(w, r, h.cfg.BodyTimeout)
	}()
	c.serve(w, r)
}

// serve checks the call and passes it on.
func (c *call) serve(w http.ResponseWriter, r *http.Request) {
	upgrade, err := exchange.CheckMessage(r)
	if err != nil {
		c.refuse(w, exchange.RuleMessage, exchange.BadRequest(err))
		return
	}
	c.record.Upgrade = upgrade
	name, path, err := splitTarget(r.RequestURI)
	if err != nil {
		c.refuse(w, rulePath, exchange.BadRequest(err))
		return
	}
	c.path = path
	target, ok := c.admit(w, r, name)
	if !ok {
		return
	}
	request, err := access.Parse(r.Method, path, r.Header)
	if err != nil {
		c.refuse(w, exchange.RuleMessage, access.StatusOf(err))
		return
	}
	there, err := url.ParseRequestURI(path)
	if err != nil {
		c.refuse(w, rulePath, exchange.BadRequest(errors.New("the target cannot be read"))) // Parse has read it before
		return
	}
	c.describe(request, there)
	decision := target.Policy.Decide(request)
	c.record.Rule, c.record.HubRule = decision.Rule, decision.Rule
	if !decision.Allowed {
		c.refuse(w, decision.Rule, decision.Status())
		return
	}
	var masked *secretread.Call
	if decision.Masked {
		var refusal *metav1.Status
		if masked, refusal = secretread.Of(request, there, r.Header); refusal != nil {
			c.refuse(w, exchange.RuleMessage, refusal)
			return
		}
		masked.Agent, c.record.Masked = name, audit.Hub
	}
	if refusal := c.hub.limiter.Acquire(name); refusal != "" {
		c.refuse(w, exchange.RuleConcurrency, exchange.TooMany("argomesh hub: "+refusal))
		return
	}
	c.entered = true
	c.record.Decision, c.record.HubDecision = audit.Allow, audit.Allow
	ended := c.begin(name, target, request, decision)
	defer ended()
	if c.long {
		c.open(r)
	}
	c.pass(w, r, passing{
		name: name, request: request, target: there, uid: target.UID, tracked: decision.Tracked, masked: masked,
		kubernetes: target.Kubernetes,
	})
}

// begin has the call end when the agent or its access changes, until the returned function is called.
func (c *call) begin(name identity.AgentName, target Target, request access.Request,
	decision access.Decision) (ended func()) {
	return c.hub.active.add(name, &activeCall{
		token: c.token, request: request, target: target, tracked: decision.Tracked, masked: decision.Masked, end: c.withdraw,
	})
}

// admit returns the agent of a call whose token is for it.
func (c *call) admit(w http.ResponseWriter, r *http.Request, name identity.AgentName) (Target, bool) {
	token, found := bearer(r.Header)
	if !found {
		c.refuse(w, ruleToken, exchange.Unauthorized())
		return Target{}, false
	}
	of, err := c.hub.cfg.Tokens.Verify(token)
	if err != nil {
		c.hub.cfg.Log.Debug().Err(err).Msg("token refused")
		if !errors.Is(err, identity.ErrUnauthenticated) {
			c.refuse(w, ruleToken, access.Unavailable("argomesh hub: the keys of tokens are not known yet", 0))
			return Target{}, false
		}
		c.refuse(w, ruleToken, exchange.Unauthorized())
		return Target{}, false
	}
	c.token, c.record.Agent = token, of
	c.record.Subject, c.record.TokenID, c.record.User = claims(token)
	if of != name {
		c.refuse(w, ruleToken, exchange.Forbidden("the token is for another agent"))
		return Target{}, false
	}
	target, err := c.hub.cfg.Agents.Target(name)
	if err != nil {
		if !errors.Is(err, identity.ErrDenied) {
			c.refuse(w, ruleRegistry, access.Unavailable("argomesh hub: the registry of agents is not known yet", 0))
			return Target{}, false
		}
		c.refuse(w, ruleRegistry,
			exchange.Forbidden("agent "+name.String()+" is not registered, or suspended: see the Agent "+name.String()))
		return Target{}, false
	}
	if !c.hub.cfg.Tokens.Bound(token, target) {
		c.refuse(w, ruleToken, exchange.Unauthorized())
		return Target{}, false
	}
	return target, true
}

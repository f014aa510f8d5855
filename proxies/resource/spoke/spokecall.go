package spoke

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/masking"
	"github.com/argomesh/argomesh/proxies/resource/exchange"
	"github.com/argomesh/argomesh/proxies/resource/mediatype"
	"github.com/argomesh/argomesh/proxies/resource/secretread"
)

// spokeCall is one call at the spoke.
type spokeCall struct {
	spoke    *Spoke
	start    time.Time
	path     string // as it was sent
	verb     string
	long     bool
	exchange exchange.Exchange
	entered  bool
}

// noAgent stands in the limiter of a Spoke, which has one agent: itself.
var noAgent identity.AgentName

func (v *spokeCall) serve(w http.ResponseWriter, r *http.Request) {
	s := v.spoke
	if !s.callRate.Allow() { // before anything that costs the spoke's API server
		v.refuse(w, exchange.RuleRate, exchange.TooMany(
			"argomesh spoke: the hub begins more calls a second than live_access.calls_per_second of the agent"))
		return
	}
	upgrade, err := exchange.CheckMessage(r)
	if err != nil {
		v.refuse(w, exchange.RuleMessage, exchange.BadRequest(err))
		return
	}
	request, err := access.Parse(r.Method, r.RequestURI, r.Header)
	if err != nil {
		v.refuse(w, exchange.RuleMessage, access.StatusOf(err))
		return
	}
	target, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		// Parse has read it before
		v.refuse(w, exchange.RuleMessage, exchange.BadRequest(errors.New("the target cannot be read")))
		return
	}
	v.verb, v.long = request.Verb, exchange.IsLong(request, target, upgrade)
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
	var masked *secretread.Call
	if access.ReadsSecrets(request) {
		var refusal *metav1.Status
		masked, refusal = secretread.Of(request, target, r.Header)
		switch asked := masked != nil && masked.Form == masking.Outlined; { // by the hub
		case !decision.Masked && !asked:
			masked = nil
		case refusal != nil:
			v.refuse(w, exchange.RuleMessage, refusal)
			return
		}
	}
	if refusal := s.limiter.Acquire(noAgent); refusal != "" {
		v.refuse(w, exchange.RuleConcurrency, exchange.TooMany("argomesh spoke: "+refusal))
		return
	}
	v.entered = true
	v.pass(w, r,
		forwarding{target: target, request: request, own: decision.OwnKinds, masked: masked, maskedHere: decision.Masked})
}

// forwarding says what is passed on to the API server.
type forwarding struct {
	target  *url.URL
	request access.Request
	own     bool             // of an answer about the groups, only Kubernetes' own
	masked  *secretread.Call // nil for an answer that passes as it is
	// maskedHere says that it is by the rules of the spoke's owner.
	maskedHere bool
}

// errCredentials is an answer of the API server that does not know the agent. To the
// hub's caller it would say that its own token is no good.
var errCredentials = errors.New("the api server does not accept the agent's own credentials")

func badCredentials() *metav1.Status {
	return access.BadGateway("argomesh spoke: its API server does not accept the agent's own credentials")
}

// objectStatus is the answer when the object of a call could not be read: what
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
func (v *spokeCall) pass(w http.ResponseWriter, r *http.Request, f forwarding) {
	e := &v.exchange
	groups := f.own && strings.TrimSuffix(f.target.Path, "/") == "/apis"
	e.Out = v.spoke.server
	e.Base = v.spoke.base
	e.Target = f.target
	if f.masked != nil {
		e.Target = f.masked.Target(f.target)
	}
	e.BodyTimeout = v.spoke.cfg.BodyTimeout
	e.Log = v.spoke.cfg.Log
	e.Outgoing = func(header http.Header) {
		propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(header))
		if groups {
			askForGroups(header)
		}
		if f.masked != nil {
			f.masked.Ask(header, mediatype.Plain)
		}
	}
	e.Answer = func(res *http.Response) error { return v.answer(r.Context(), res, f, groups) }
	e.Failed = func(w http.ResponseWriter, err error) { v.notAnswered(w, f, err) }
	e.Run(w, r)
}

// answer makes of the API server's answer what the hub gets. groups says that it is the
// list of groups, of which only the API server's own are told.
func (v *spokeCall) answer(ctx context.Context, res *http.Response, f forwarding, groups bool) error {
	exchange.StripAnswer(res.Header)
	unbase(res, v.exchange.Base)
	if f.own {
		res.Header.Set(exchange.HeaderOwnKinds, "true")
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
	if err := v.spoke.masker.FromServer(ctx, f.masked, res); err != nil {
		return err
	}
	if f.maskedHere {
		res.Header.Set(exchange.HeaderMasked, "true")
	}
	return nil
}

// notAnswered answers a call that the API server did not.
func (v *spokeCall) notAnswered(w http.ResponseWriter, f forwarding, err error) {
	v.exchange.Log.Warn().Err(err).Msg("the spoke's API server does not answer a call of the hub")
	status := badCredentials()
	notMasked := secretread.Failure(access.Spoke, err)
	switch {
	case f.masked != nil && notMasked != nil:
		status = notMasked
	case errors.Is(err, errGroups):
		status = access.BadGateway("argomesh spoke: what its API server says of its groups cannot be read")
	case !errors.Is(err, errCredentials):
		v.exchange.PeerLost.Store(true)
		status = access.BadGateway("argomesh spoke: its API server does not answer")
	}
	w.Header().Set(exchange.HeaderFailed, "true")
	exchange.WriteStatus(w, f.target.Path, status)
}

// refuse answers a call that the spoke does not let through, and tells the hub by
// which rule.
func (v *spokeCall) refuse(w http.ResponseWriter, rule string, status *metav1.Status) {
	w.Header().Set(exchange.HeaderRefusedBy, rule)
	exchange.WriteStatus(&exchange.Meter{ResponseWriter: w, Exchange: &v.exchange}, v.path, status)
}

// fail answers a call in place of the API server.
func (v *spokeCall) fail(w http.ResponseWriter, status *metav1.Status) {
	w.Header().Set(exchange.HeaderFailed, "true")
	exchange.WriteStatus(&exchange.Meter{ResponseWriter: w, Exchange: &v.exchange}, v.path, status)
}

// unbase takes the path of an API server's address off the Location of its answer. Not
// every API server knows what it is behind.
func unbase(res *http.Response, base *url.URL) {
	path := strings.TrimSuffix(base.EscapedPath(), "/")
	rest, found := strings.CutPrefix(res.Header.Get("Location"), path+"/")
	if path != "" && found && exchange.Moves(res.StatusCode) {
		res.Header.Set("Location", "/"+rest)
	}
}

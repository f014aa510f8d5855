package resource

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/proxies/masking"
	"github.com/argomesh/argomesh/proxies/resource/exchange"
	"github.com/argomesh/argomesh/proxies/resource/replies"
	"github.com/argomesh/argomesh/proxies/resource/secretread"
	"github.com/argomesh/argomesh/stream"
)

// describe puts what is asked into the record.
func (c *call) describe(request access.Request, target *url.URL) {
	r := &c.record
	r.Verb, r.Group, r.Version = request.Verb, request.Group, request.Version
	r.Resource, r.Subresource = request.Resource, request.Subresource
	r.Namespace, r.Name = request.Namespace, request.Name
	r.AsUser = request.Impersonate.User
	if !request.IsResource() {
		r.Path = request.Path
	}
	c.long = exchange.IsLong(request, target, r.Upgrade)
}

// refuse answers a call that is not passed on.
func (c *call) refuse(w http.ResponseWriter, rule string, status *metav1.Status) {
	c.refused = true
	c.record.Rule, c.record.HubRule, c.record.AnsweredBy = rule, rule, audit.ByHub
	exchange.WriteStatus(&exchange.Meter{ResponseWriter: w, Exchange: &c.exchange}, c.path, status)
}

// withdraw ends a call under way, so that what came of it does not look complete.
func (c *call) withdraw(reason error) {
	c.exchange.PeerLost.Store(true)
	c.finish(reason)
}

// open records that a long call begins.
func (c *call) open(r *http.Request) {
	record := c.record
	record.Stage = audit.Open
	c.hub.cfg.Audit.Write(r.Context(), record)
}

// pass passes the call on to the agent, and its answer back.
func (c *call) pass(w http.ResponseWriter, r *http.Request, p passing) {
	h := c.hub
	key, kept := replies.KeyOf(p.name, p.uid, p.request, p.target, r.Header)
	e := &c.exchange
	e.Out = h.agents
	e.Base = &url.URL{Scheme: "http", Host: p.name.String()}
	e.Target = p.target
	if p.masked != nil {
		e.Target = p.masked.Target(p.target)
	}
	e.BodyTimeout = h.cfg.BodyTimeout
	e.Log = h.cfg.Log.With().Stringer("agent", p.name).Logger()
	e.Outgoing = func(header http.Header) {
		propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(header))
		if p.tracked {
			header.Set(access.TrackedOnlyHeader, "true")
		}
		if p.masked != nil {
			p.masked.Ask(header, masking.MediaType)
		}
	}
	e.Answer = func(res *http.Response) error { return c.answer(res, p, key, kept) }
	e.Failed = func(w http.ResponseWriter, err error) { c.fail(w, r, p, err, key, kept) }
	e.Run(w, r)
}

// answer makes of the spoke's answer what the caller gets. key is that of the kept replies,
// if the call is one that is kept.
func (c *call) answer(res *http.Response, p passing, key replies.Key, kept bool) error {
	h := c.hub
	c.noteAnsweredBy(res)
	h.refusals.noteAnswer(p, &c.record, res.StatusCode)
	own := res.Header.Get(exchange.HeaderOwnKinds) != ""
	exchange.StripAnswer(res.Header)
	if err := redirect(res, p.name); err != nil {
		return err
	}
	if p.masked != nil {
		return h.masker.FromAgent(p.masked, res, c.record.AnsweredBy == audit.ByAgent)
	}
	if err := exchange.BoundAnswer(res, exchange.AnswerLimit(p.request, c.long), h.metrics.Cut.Inc); err != nil {
		return err
	}
	switch {
	case kept && c.record.AnsweredBy == audit.ByAPIServer:
		h.cfg.Replies.Observe(key, own, res, time.Now())
	case kept && c.record.DecidedBy == audit.Spoke:
		h.cfg.Replies.Forget(key)
	}
	return nil
}

// fail answers a call that the spoke did not: by what is known from before, where that may
// be, or by why there is no answer.
func (c *call) fail(w http.ResponseWriter, r *http.Request, p passing, err error, key replies.Key, kept bool) {
	h := c.hub
	c.exchange.Log.Debug().Err(err).Msg("call not answered")
	if p.masked != nil && c.failMasked(w, p, err) {
		return
	}
	why := unansweredBy(err)
	c.exchange.PeerLost.Store(why == isAway || why == isLost)
	switch {
	case why == isClosed:
		h.cfg.Replies.ForgetAgent(p.name, p.uid)
		h.refusals.close(p.name, p.uid)
	case why != isRedirect && why != isTooMuch && why != isGarbled && kept &&
		h.cfg.Replies.Serve(w, r, key, why.warning()):
		c.record.AnsweredBy = audit.ByLastKnown
		return
	}
	if kept && why != isRedirect && key.Path == versionPath && writeVersion(w, p.name, p.kubernetes, why) ||
		c.serveLast(w, r, p, why) {
		c.record.AnsweredBy = audit.ByLastKnown
		return
	}
	c.record.AnsweredBy = audit.ByHub
	exchange.WriteStatus(w, p.target.Path, why.status(p.name))
}

// failMasked answers a call whose answer could not be masked; false when that is not why it
// failed.
func (c *call) failMasked(w http.ResponseWriter, p passing, err error) bool {
	status := secretread.Failure(access.Hub, err)
	if errors.Is(err, secretread.ErrNotMasked) {
		c.record.Decision, c.record.HubDecision, c.record.DecidedBy = audit.Deny, audit.Deny, audit.Hub
		c.record.Rule, c.record.HubRule = access.RuleSecrets, access.RuleSecrets
		status = exchange.Forbidden("refused by the hub, rule \"" + access.RuleSecrets +
			"\": spec.access.secrets of the Agent is masked, and agent " + p.name.String() +
			" is of a release that does not mask Secrets: upgrade it")
	}
	if status == nil {
		return false
	}
	c.record.AnsweredBy = audit.ByHub
	exchange.WriteStatus(w, p.target.Path, status)
	return true
}

// noteAnsweredBy notes who answered, by what the agent says, which no one else can say. An answer
// that is none of a refusal or a failure is neither, whatever is said of it.
func (c *call) noteAnsweredBy(res *http.Response) {
	rules := res.Header[exchange.HeaderRefusedBy]
	if res.Header.Get(exchange.HeaderMasked) != "" && c.record.Masked == "" {
		c.record.Masked = audit.Spoke
	}
	switch code := res.StatusCode; {
	case code >= http.StatusBadRequest && code < http.StatusInternalServerError && len(rules) == 1 &&
		access.IsRule(rules[0]):
		c.record.Decision, c.record.DecidedBy, c.record.Rule = audit.Deny, audit.Spoke, rules[0]
		c.record.AnsweredBy = audit.ByAgent
	case code >= http.StatusBadRequest && res.Header.Get(exchange.HeaderFailed) != "":
		c.record.AnsweredBy = audit.ByAgent
	default:
		c.record.AnsweredBy = audit.ByAPIServer
	}
}

func unansweredBy(err error) notAnswered {
	var dial dialError
	switch {
	case errors.Is(err, errRedirect):
		return isRedirect
	case errors.Is(err, exchange.ErrLongAnswer):
		return isTooMuch
	case errors.Is(err, exchange.ErrNotPacked):
		return isGarbled
	case errors.Is(err, stream.ErrNotConnected):
		return isAway
	case errors.As(err, &dial) && errors.Is(err, stream.ErrRefused):
		return isClosed
	case errors.As(err, &dial) && errors.Is(err, stream.ErrSilent):
		return isSilent
	case errors.As(err, &dial):
		return isBusy
	}
	return isLost
}

// end records what became of the call, and makes room for the next one.
func (c *call) end(r *http.Request) {
	e, record := &c.exchange, &c.record
	took := time.Since(c.start)
	record.Stage = audit.End
	record.Status = e.Status
	record.RequestBytes, record.ResponseBytes = e.Sent.Load(), e.Received.Load()
	record.Seconds = took.Seconds()
	var withdrawn withdrawnError
	switch cause := context.Cause(r.Context()); {
	case errors.Is(cause, errStopping):
		record.Result = audit.Stopped
	case errors.As(cause, &withdrawn):
		record.Result, record.Rule = audit.Withdrawn, withdrawn.rule
	case e.PeerLost.Load():
		record.Result = audit.AgentGone
	case e.CallerLost.Load() || r.Context().Err() != nil:
		record.Result = audit.CallerGone
	default:
		record.Result = audit.Complete
	}
	c.hub.cfg.Audit.Write(r.Context(), *record)
	c.hub.metrics.Ended(record.Verb, record.Status, took, c.long, record.RequestBytes, record.ResponseBytes)
	if c.entered {
		c.hub.limiter.Release(record.Agent)
	}
}

// claims returns sub, jti and username of a token that was verified. What cannot be read is
// empty.
func claims(token string) (subject, id, person string) {
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return "", "", ""
	}
	var c struct {
		Subject string `json:"sub"`
		ID      string `json:"jti"`
		Person  string `json:"username"`
	}
	if json.Unmarshal(text, &c) != nil {
		return "", "", ""
	}
	return c.Subject, c.ID, c.Person
}

// source returns the address that Envoy saw the call come from: what it appended to
// X-Forwarded-For. Whatever stands before that is the caller's own word.
func source(h http.Header) string {
	lines := h["X-Forwarded-For"]
	if len(lines) == 0 {
		return ""
	}
	last := lines[len(lines)-1]
	address, err := netip.ParseAddr(strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:]))
	if err != nil {
		return ""
	}
	return address.String()
}

// endSpan ends the span of a call with what its record says.
func endSpan(span trace.Span, record *audit.Record) {
	span.SetAttributes(
		attribute.String("argomesh.agent", record.Agent.String()),
		attribute.String("k8s.verb", record.Verb),
		attribute.String("k8s.group", record.Group),
		attribute.String("k8s.resource", record.Resource),
		attribute.String("k8s.subresource", record.Subresource),
		attribute.Int("http.response.status_code", record.Status),
		attribute.String("argomesh.result", string(record.Result)),
	)
	if record.Status >= http.StatusInternalServerError || record.Result == audit.AgentGone {
		span.SetStatus(codes.Error, string(record.Result))
	}
	span.End()
}

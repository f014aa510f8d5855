package audit

import (
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/argomesh/argomesh/identity"
)

// Stage says at which point of a call a record was made.
type Stage string

const (
	// Open is the begin of a call that is long by its nature: a watch, a log that is
	// followed, an upgraded connection. It is there so that a call which outlives the
	// process is known. A record of stage End follows.
	Open Stage = "open"
	// End is the end of a call: every call has one.
	End Stage = "end"
)

// Decision says whether the call was let through.
type Decision string

// The values of [Decision].
const (
	Allow Decision = "allow"
	Deny  Decision = "deny"
)

// Side says whose rules decided.
type Side string

const (
	// Hub is the principal, by spec.access of the Agent and its own rules.
	Hub Side = "hub"
	// Spoke is the agent, by the rules of the spoke's owner.
	Spoke Side = "spoke"
)

// Answerer says whose answer the caller got.
type Answerer string

const (
	// ByAPIServer is an answer of the spoke's own API server.
	ByAPIServer Answerer = "api-server"
	// ByAgent is an answer of the agent in place of its API server: a refusal or a
	// failure.
	ByAgent Answerer = "agent"
	// ByHub is an answer of the principal.
	ByHub Answerer = "hub"
	// ByLastKnown is an earlier answer of the spoke's API server, given since the spoke
	// is away.
	ByLastKnown Answerer = "last-known"
)

// Result says how a call ended.
type Result string

const (
	// Complete is an answer that was passed on to its end, whatever its status.
	Complete Result = "complete"
	// CallerGone is a call whose caller left before its end.
	CallerGone Result = "caller-gone"
	// AgentGone is a call for which the agent was away, or during which it was lost.
	AgentGone Result = "agent-gone"
	// Stopped is a call that ended since the principal did.
	Stopped Result = "stopped"
	// Withdrawn is a call that was let through, and ended since it would be refused now.
	// Rule names what would refuse it.
	Withdrawn Result = "withdrawn"
)

// Record is one line of the log. It holds no body, no token, and no query, since
// the query of an exec is a command. Texts that a caller chooses are cut at
// [MaxText] bytes.
type Record struct {
	// Time is when the call began.
	Time time.Time `json:"time"`
	// Process names the process that wrote the record: [Config.Process] and a part of
	// its own for each start. Set by [Log.Write].
	Process string `json:"process"`
	// Seq counts the records of Process from 1, without gaps but for records that were
	// lost. Set by [Log.Write].
	Seq uint64 `json:"seq"`
	// Call is the same in the records of one call, and unique in Process.
	Call  uint64 `json:"call"`
	Stage Stage  `json:"stage"`

	// Agent is zero when the caller proved no token of an agent.
	Agent identity.AgentName `json:"agent,omitzero"`
	// Subject and TokenID are claims sub and jti of the token.
	Subject string `json:"subject,omitempty"`
	TokenID string `json:"token_id,omitempty"`
	// User is the person to whom the token was made out, as the hub's API server knows her; empty
	// for a token of the hub's Argo CD.
	User string `json:"user,omitempty"`
	// Source is the caller's address as Envoy saw it.
	Source    string `json:"source,omitempty"`
	UserAgent string `json:"user_agent,omitempty"`
	// AsUser is whom the caller asked to be taken for.
	AsUser string `json:"as_user,omitempty"`

	// Verb is Kubernetes' word: get, list, watch, create, update, patch, delete,
	// deletecollection; of a path that is no resource, the method in lower case.
	Verb        string `json:"verb"`
	Group       string `json:"group,omitempty"`
	Version     string `json:"version,omitempty"`
	Resource    string `json:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	// Path is that of a call which is about no resource, such as /version.
	Path string `json:"path,omitempty"`
	// Upgrade is the protocol that the caller asked for, such as SPDY/3.1.
	Upgrade string `json:"upgrade,omitempty"`

	Decision Decision `json:"decision"`
	// DecidedBy is the side that refused; Hub when none did.
	DecidedBy Side `json:"decided_by"`
	// Rule names the rule that decided.
	Rule string `json:"rule,omitempty"`
	// HubDecision and HubRule are the hub's own, whatever the spoke says of the call: that
	// the spoke refused it is the spoke's word.
	HubDecision Decision `json:"hub_decision"`
	HubRule     string   `json:"hub_rule,omitempty"`

	// Masked is the side that let no values of Secrets through; empty when none did. That
	// it was the spoke is the spoke's word.
	Masked Side `json:"masked,omitempty"`

	// Status is the status that the caller got; 0 when it got none, and in Open.
	Status int `json:"status"`
	// AnsweredBy is empty in Open, and when there was no answer.
	AnsweredBy Answerer `json:"answered_by,omitempty"`
	// Result is empty in Open.
	Result Result `json:"result,omitempty"`
	// RequestBytes and ResponseBytes count bodies and the bytes of an upgraded
	// connection, without headers.
	RequestBytes  int64 `json:"request_bytes"`
	ResponseBytes int64 `json:"response_bytes"`
	// Seconds is how long the call took so far.
	Seconds float64 `json:"duration_seconds"`
	TraceID string  `json:"trace_id,omitempty"`
}

// MaxText is the longest text of a record that a caller chooses, in bytes.
const MaxText = 512

// clip shortens what a caller chose, so that no line is longer than a few KiB.
func (r *Record) clip() {
	for _, text := range []*string{
		&r.Subject, &r.TokenID, &r.User, &r.Source, &r.UserAgent, &r.AsUser, &r.Verb, &r.Group, &r.Version, &r.Resource,
		&r.Subresource, &r.Namespace, &r.Name, &r.Path, &r.Upgrade, &r.Rule, &r.HubRule,
	} {
		*text = cut(*text)
	}
}

func cut(text string) string {
	if len(text) > MaxText {
		text = text[:MaxText-len("…")] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// attributes are the fields as OpenTelemetry's attributes, those without a value
// left out.
func (r *Record) attributes() []attribute.KeyValue {
	out := []attribute.KeyValue{
		attribute.String("argomesh.process", r.Process),
		attribute.Int64("argomesh.audit.seq", int64(r.Seq)),   //nolint:gosec // no process writes 2^63 records
		attribute.Int64("argomesh.audit.call", int64(r.Call)), //nolint:gosec // as above
		attribute.String("argomesh.audit.stage", string(r.Stage)),
		attribute.String("argomesh.audit.decision", string(r.Decision)),
		attribute.String("argomesh.audit.decided_by", string(r.DecidedBy)),
		attribute.String("argomesh.audit.hub_decision", string(r.HubDecision)),
		attribute.Int("http.response.status_code", r.Status),
		attribute.Int64("argomesh.request_bytes", r.RequestBytes),
		attribute.Int64("argomesh.response_bytes", r.ResponseBytes),
		attribute.Float64("argomesh.duration_seconds", r.Seconds),
	}
	for _, text := range []struct{ key, value string }{
		{"argomesh.agent", r.Agent.String()},
		{"argomesh.subject", r.Subject},
		{"argomesh.token_id", r.TokenID},
		{"user.name", r.User},
		{"client.address", r.Source},
		{"user_agent.original", r.UserAgent},
		{"argomesh.as_user", r.AsUser},
		{"k8s.verb", r.Verb},
		{"k8s.group", r.Group},
		{"k8s.version", r.Version},
		{"k8s.resource", r.Resource},
		{"k8s.subresource", r.Subresource},
		{"k8s.namespace.name", r.Namespace},
		{"k8s.name", r.Name},
		{"url.path", r.Path},
		{"argomesh.upgrade", r.Upgrade},
		{"argomesh.audit.rule", r.Rule},
		{"argomesh.audit.hub_rule", r.HubRule},
		{"argomesh.audit.masked", string(r.Masked)},
		{"argomesh.answered_by", string(r.AnsweredBy)},
		{"argomesh.result", string(r.Result)},
	} {
		if text.value != "" {
			out = append(out, attribute.String(text.key, text.value))
		}
	}
	return out
}

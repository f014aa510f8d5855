package resource

import (
	"context"
	"net"
	"time"

	"github.com/argomesh/argomesh/proxies/resource/replies"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
)

// Verifier knows the agent of a token.
type Verifier interface {
	// Verify returns the agent for which token was issued. The error wraps
	// identity.ErrUnauthenticated when the token counts for nothing; any other means that
	// no one knows yet. It is not shown to the caller.
	Verify(token string) (identity.AgentName, error)
	// Bound reports whether a token that Verify found good is one of the agent as it is
	// now. It does not block.
	Bound(token string, of Target) bool
	// Revoked reports whether a token that was good counts for nothing now, although its
	// time has not come. It does not block.
	Revoked(token string) bool
	// Changed returns a channel that is closed when Revoked may return something else than
	// at the time of the call. It does not block.
	Changed() <-chan struct{}
}

// Policy decides what a call may do. *access.Policy is one. Two that are equal decide
// the same.
type Policy interface {
	Decide(access.Request) access.Decision
}

// Target is an agent that may be reached.
type Target struct {
	// UID is that of the Agent object, and Created when that was made.
	UID     string
	Created time.Time
	// TokenGeneration is that of the tokens that count.
	TokenGeneration int64
	// Policy is what the hub allows there.
	Policy Policy
	// Kubernetes is the version of the spoke's API server, as the agent reported it;
	// empty when it has not.
	Kubernetes string
}

// Registry knows the agents of the hub.
type Registry interface {
	// Target returns what is known of an agent. The error wraps identity.ErrDenied
	// when the agent is not registered, suspended or on its way out. It does not block.
	Target(identity.AgentName) (Target, error)
	// Changed returns a channel that is closed when Target may return something else than
	// at the time of the call. It does not block.
	Changed() <-chan struct{}
}

// HubConfig holds what a Hub needs. Fields without a stated default are required.
type HubConfig struct {
	// Dial opens a connection to the agent's Spoke. It returns stream.ErrNotConnected
	// at once when the agent is away, and an error that wraps stream.ErrRefused when the
	// agent serves no Kubernetes API. Of the connection CloseWrite, if there is one,
	// ends one direction, and a Read after the agent was lost fails with another error
	// than io.EOF.
	Dial    func(context.Context, identity.AgentName) (net.Conn, error)
	Tokens  Verifier
	Agents  Registry
	Audit   *audit.Log
	Replies *replies.Replies
	// Objects is asked for the object of a call while its agent is away. Nil knows none.
	Objects LastObjects
	Tracer  trace.Tracer
	Metrics prometheus.Registerer
	Log     zerolog.Logger
	// MaxCalls bounds the calls under way, beyond the first four to each agent, and
	// MaxCallsPerAgent those to one agent; more are answered 429. Zero means 4096 and
	// 1024.
	MaxCalls         int
	MaxCallsPerAgent int
	// BodyTimeout bounds the wait for the next bytes of a call's body. Zero means 1m.
	BodyTimeout time.Duration
	// DrainTimeout bounds how long Run waits for calls under way. Zero means 5s.
	DrainTimeout time.Duration
}

// LastObjects knows objects of spokes that are away. What it returns is a spoke's word, of
// which nothing is believed.
type LastObjects interface {
	// Object returns the object for which a call asks, as JSON, and when it was seen to be
	// that; false when it is not known. The UID is that of the Agent object.
	Object(ctx context.Context, agent identity.AgentName, uid string, r access.Request) (raw []byte, at time.Time, ok bool)
}

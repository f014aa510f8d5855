// Package probe asks a principal whether it would take us for an agent, as the agent would
// connect to it, and says in what way it would not.
//
//	result := probe.Ask(ctx, source, probe.Config{Address: "hub.example.org:8443", Method: method})
package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/streampb"
)

// Config says whom to ask.
type Config struct {
	// Address is the principal's, as principal.address of an agent.
	Address string
	// Method is the agent's. With no Principal anyone is accepted: what is dialled is told
	// nothing.
	Method workload.Method
	// Agent is for whom the principal is to take us; zero for whomever.
	Agent identity.AgentName
}

// Problem is what is in the way.
type Problem uint8

const (
	// None means that nothing is.
	None Problem = iota
	// Unusable means that Config is of no use.
	Unusable
	// NoToken means that our Workload API gives no JWT-SVID for the principal.
	NoToken
	// OtherPeer means that who terminates TLS is not accepted.
	OtherPeer
	// NotRegistered means that the principal knows no agent with our SPIFFE ID that may
	// connect.
	NotRegistered
	// Unproven means that the principal does not take our proof.
	Unproven
	// NoPrincipal means that something else answers.
	NoPrincipal
	// Silent means that the answer did not come in time.
	Silent
	// Ended means that the other end showed who it is, and then ended the connection.
	Ended
	// NoHandshake means that it did not come to that.
	NoHandshake
	// OtherAgent means that the principal takes us for another agent.
	OtherAgent
)

// Result is what came of it.
type Result struct {
	// Peer is what the principal, or the gateway before it, proved to be; zero when it did
	// not come to that, or when a host name is what counts.
	Peer spiffeid.ID
	// Handshake says that both accepted each other, as far as TLS goes.
	Handshake bool
	// Registered says that the registry knows our SPIFFE ID for an agent that may connect.
	Registered bool
	// Agent is which; zero when a principal of an older release does not say.
	Agent stream.Agent
	// Problem is what is in the way, and Err says it for people, as what the principal does.
	Problem Problem
	Err     error
}

func (r Result) because(p Problem, format string, args ...any) Result {
	r.Problem, r.Err = p, fmt.Errorf(format, args...)
	return r
}

// Ask calls the principal as an agent does, with the SVIDs of source, but says nothing: a
// principal checks a caller before the first frame, so no connection of the agent comes
// about that would take the place of another. It takes as long as ctx lets it.
func Ask(ctx context.Context, source *workload.Source, cfg Config) Result {
	var met peerRecorder
	cfg.Method.Allow = met.authorizer
	trusted, err := cfg.Method.Credentials(source)
	if err != nil {
		return Result{}.because(Unusable, "%w", err)
	}
	// as the agent, and so by the proxy of the environment
	conn, err := grpc.NewClient(cfg.Address, call.DialOptions(trusted)...)
	if err != nil {
		return Result{}.because(Unusable, "%w", err)
	}
	defer func() { _ = conn.Close() }() // nothing is under way
	proof := call.Mutual{Token: cfg.Method.Token(source)}
	proven, _, _, err := proof.Authorize(ctx)
	if err != nil {
		return Result{}.because(NoToken, "no JWT-SVID for it can be had: %w", err)
	}
	agent, err := silentCall(proven, conn)
	id, refused := met.result()
	r := Result{Peer: id}
	if refused != nil {
		return r.because(OtherPeer, "is %s, which is not accepted", id)
	}
	if r = r.ended(err, cfg.Method.Presents()); !r.Registered || agent.Name.IsZero() {
		return r
	}
	r.Agent = agent
	if !cfg.Agent.IsZero() && agent.Name != cfg.Agent {
		return r.because(OtherAgent, "knows our SPIFFE ID for agent %s (%s), not for agent %s", agent.Name, agent.Mode,
			cfg.Agent)
	}
	return r
}

// ended tells what err, the end of a call without a frame, means. Presents says that our
// X.509-SVID was shown.
func (r Result) ended(err error, presents bool) Result {
	st := status.Convert(err)
	text := strings.Join(strings.Fields(st.Message()), " ")
	r.Handshake = !r.Peer.IsZero()
	switch st.Code() {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated:
		r.Handshake = true
	}
	switch st.Code() {
	case codes.InvalidArgument: // it misses the first frame, so it let us in
		r.Registered = true
		return r
	case codes.PermissionDenied:
		return r.because(NotRegistered, "does not let our SPIFFE ID in: %s", text)
	case codes.Unauthenticated:
		return r.because(Unproven, "%s", text)
	case codes.Unimplemented:
		return r.because(NoPrincipal, "is not a principal: %s", text)
	case codes.DeadlineExceeded:
		return r.because(Silent, "did not answer in time")
	}
	if r.Peer.IsZero() {
		return r.because(NoHandshake, "no handshake: %s", text)
	}
	r.Handshake = false
	if !presents {
		return r.because(Ended, "presented its SVID, and then ended the connection: %s", text)
	}
	return r.because(Ended, "presented its SVID, and then refused ours or went away: %s", text)
}

// silentCall opens the stream, says that nothing will come, and returns how it ends, and
// for whom the other end says to take us; the zero Agent when it does not.
func silentCall(ctx context.Context, conn *grpc.ClientConn) (stream.Agent, error) {
	g, err := streampb.NewStreamClient(conn).Connect(ctx)
	if err != nil {
		return stream.Agent{}, err
	}
	if err := g.CloseSend(); err != nil {
		return stream.Agent{}, err
	}
	for {
		if _, err = g.Recv(); err != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = status.Error(codes.Unimplemented, "it ended the call without a reason")
	}
	agent, _ := call.FromTrailer(g.Trailer())
	return agent, err
}

// peerRecorder notes whom a handshake met. Its zero value has met no one.
type peerRecorder struct {
	mu      sync.Mutex // guards what follows
	id      spiffeid.ID
	refused error
}

// authorizer accepts those of accept, or anyone when there is none.
func (m *peerRecorder) authorizer(accept ...spiffeid.ID) identity.Authorizer {
	allow := func(spiffeid.ID) error { return nil }
	if len(accept) > 0 {
		allow = identity.AllowIDs(accept...)
	}
	return func(id spiffeid.ID) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.id, m.refused = id, allow(id)
		return m.refused
	}
}

func (m *peerRecorder) result() (spiffeid.ID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id, m.refused
}

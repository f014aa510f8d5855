package identities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/identity/inspect"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/streampb"
)

// ProbeResult is what came of dialling a principal with our SVID.
type ProbeResult struct {
	Address string `json:"address"`
	// SPIFFEID is what the principal, or the gateway before it, proved to be; empty when
	// it did not come to that, or when a host name is what counts.
	SPIFFEID string `json:"spiffeID,omitempty"`
	// Handshake says that both accepted each other, as far as TLS goes.
	Handshake bool `json:"handshake"`
	// Registered says that the registry knows our SPIFFE ID for an agent that may connect.
	Registered bool `json:"registered"`
	// Agent and Mode say for which; empty when a principal of an older release does not.
	Agent string `json:"agent,omitempty"`
	Mode  string `json:"mode,omitempty"`
	// Problem says what went wrong, and Cure what helps.
	Problem string `json:"problem,omitempty"`
	Cure    string `json:"cure,omitempty"`
}

func (d ProbeResult) finding(by way) inspect.Finding {
	f := inspect.Finding{Level: inspect.Problem, About: "principal " + d.Address, Says: d.Problem, Cure: d.Cure}
	if d.Problem == "" {
		f.Level, f.Says = inspect.Fine, "knows our SPIFFE ID for "+d.known()
		switch {
		case d.SPIFFEID == "":
		case by.gateway():
			f.Says += ", behind " + d.SPIFFEID
		default:
			f.Says = "is " + d.SPIFFEID + ", and " + f.Says
		}
	}
	return f
}

// known names whom the principal takes us for.
func (d ProbeResult) known() string {
	if d.Agent == "" {
		return "a registered agent (its release does not say which)"
	}
	return fmt.Sprintf("agent %s (%s)", d.Agent, d.Mode)
}

func (d ProbeResult) because(cure, problem string, args ...any) ProbeResult {
	d.Problem, d.Cure = fmt.Sprintf(problem, args...), cure
	return d
}

// dial calls the principal as an agent does, but says nothing: a principal judges a
// caller before the first frame, so no connection of the agent comes about that would
// take the place of another.
func (l *localIdentity) dial(ctx context.Context, socket string, e inspect.Expectation, to callee) ProbeResult {
	d := ProbeResult{Address: l.principal}
	if err := l.by.checkAddress(l.principal); err != nil {
		return d.because("give --principal as principal.address of the configuration has it", "%s", cli.OneLine(err))
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	source, stop, err := startSource(ctx, workload.Config{Socket: socket, SPIFFEID: e.SPIFFEID, Hint: e.Hint, Metrics: prometheus.NewRegistry()})
	defer stop()
	defer cancel()
	if err != nil {
		return d.because("see what else is found", "our identity cannot be used: %s", cli.OneLine(err))
	}
	var met meeting
	trusted, err := l.by.credentials(source, &met, to)
	if err != nil {
		return d.because("correct the flags", "%s", cli.OneLine(err))
	}
	conn, err := grpc.NewClient(l.principal, call.DialOptions(trusted)...) // as the agent, and so by the proxy of the environment
	if err != nil {
		return d.because("correct --principal", "%s", cli.OneLine(err))
	}
	defer func() { _ = conn.Close() }() // nothing is under way
	proven, err := l.by.prove(ctx, source, to.principal)
	if err != nil {
		return d.because("check the log of the SPIRE agent, which asks its server for each", "no JWT-SVID for it can be had: %s", cli.OneLine(err))
	}
	agent, err := silentCall(proven, conn)
	id, refused := met.result()
	if !id.IsZero() {
		d.SPIFFEID = id.String()
	}
	if refused != nil {
		return d.because(l.by.otherPeerCure(), "is %s, which is not accepted", id)
	}
	d = d.judge(err, l.by)
	if !d.Registered || agent.Name.IsZero() {
		return d
	}
	d.Agent, d.Mode = agent.Name.String(), agent.Mode.String()
	if !to.agent.IsZero() && agent.Name != to.agent {
		return d.because("correct name in the agent's configuration, or on the hub give the SPIFFE ID to the other Agent (agentctl agent edit)",
			"knows our SPIFFE ID for %s, not for agent %s", d.known(), to.agent)
	}
	return d
}

// judge tells what err, the end of a call without a frame, means.
func (d ProbeResult) judge(err error, by way) ProbeResult {
	st := status.Convert(err)
	text := cli.OneLine(errors.New(st.Message()))
	d.Handshake = d.SPIFFEID != ""
	switch st.Code() {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated:
		d.Handshake = true
	}
	switch st.Code() {
	case codes.InvalidArgument: // it misses the first frame, so it let us in
		d.Registered = true
		return d
	case codes.PermissionDenied:
		return d.because("on the hub: agentctl agent create with this SPIFFE ID, or agentctl agent resume if it is suspended", "does not let our SPIFFE ID in: %s", text)
	case codes.Unauthenticated:
		return d.because(by.unauthenticatedCure(), "does not take our proof of method %s: %s", by.method, text)
	case codes.Unimplemented:
		return d.because("correct the address: something else answers there", "is no principal: %s", text)
	case codes.DeadlineExceeded:
		return d.because("check the address, the network and the firewall between", "did not answer in time")
	}
	if d.SPIFFEID != "" {
		d.Handshake = false
		if !by.presents() {
			return d.because("check that this listener of the principal has method spiffe-jwt, which asks for no certificate", "presented its SVID, and then ended the connection: %s", text)
		}
		return d.because("on the hub: see the log of the principal for the reason; most often its Workload API has no bundle of our trust domain (agentctl identity doctor --hub there)",
			"presented its SVID, and then refused ours or went away: %s", text)
	}
	return d.because("check the address, that the principal runs, and that our Workload API has the bundle of its trust domain", "no handshake: %s", text)
}

// silentCall opens the stream, says that nothing will come, and returns how it ends, and
// for whom the other end says to take us; the zero Agent when it does not.
func silentCall(ctx context.Context, conn *grpc.ClientConn) (stream.Agent, error) {
	flow, err := streampb.NewStreamClient(conn).Connect(ctx)
	if err != nil {
		return stream.Agent{}, err
	}
	if err := flow.CloseSend(); err != nil {
		return stream.Agent{}, err
	}
	for {
		if _, err = flow.Recv(); err != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = status.Error(codes.Unimplemented, "it ended the call without a reason")
	}
	agent, _ := call.FromTrailer(flow.Trailer())
	return agent, err
}

// startSource starts a source and waits until it has an SVID. Stop ends it, in every case.
func startSource(ctx context.Context, cfg workload.Config) (source *workload.Source, stop func(), err error) {
	source, err = workload.New(cfg)
	if err != nil {
		return nil, func() {}, err
	}
	running, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() { _ = source.Run(running) }) // WaitReady says what is wrong
	stop = func() {
		cancel()
		ended.Wait()
	}
	patience, done := context.WithTimeout(ctx, registration.WorkloadAPITimeout)
	defer done()
	err = source.WaitReady(patience)
	return source, stop, err
}

package identities

import (
	"context"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/identity/inspect"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream/probe"
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

func (d ProbeResult) finding(by method) inspect.Finding {
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

// dial asks the principal whether it would take us.
func (l *localIdentity) dial(ctx context.Context, socket string, e inspect.Expectation, to expectedPeer) ProbeResult {
	d := ProbeResult{Address: l.principal}
	if err := l.by.checkAddress(l.principal); err != nil {
		d.Problem, d.Cure = cli.OneLine(err), "give --principal as principal.address of the configuration has it"
		return d
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	source, stop, err := startSource(ctx,
		workload.Config{Socket: socket, SPIFFEID: e.SPIFFEID, Hint: e.Hint, Metrics: prometheus.NewRegistry()})
	defer stop()
	defer cancel()
	if err != nil {
		d.Problem, d.Cure = "our identity cannot be used: "+cli.OneLine(err), "see what else is found"
		return d
	}
	r := probe.Ask(ctx, source, probe.Config{Address: l.principal, Method: l.by.of(to), Agent: to.agent})
	d.Handshake, d.Registered = r.Handshake, r.Registered
	if !r.Peer.IsZero() {
		d.SPIFFEID = r.Peer.String()
	}
	if !r.Agent.Name.IsZero() {
		d.Agent, d.Mode = r.Agent.Name.String(), r.Agent.Mode.String()
	}
	if r.Err != nil {
		d.Problem, d.Cure = cli.OneLine(r.Err), l.by.cure(r.Problem)
	}
	if r.Problem == probe.Unproven {
		d.Problem = "does not take our proof of method " + l.by.method + ": " + d.Problem
	}
	return d
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
	limited, done := context.WithTimeout(ctx, registration.WorkloadAPITimeout)
	defer done()
	err = source.WaitReady(limited)
	return source, stop, err
}

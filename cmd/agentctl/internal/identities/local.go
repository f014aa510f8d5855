package identities

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/inspect"
)

// Report is all that was seen.
type Report struct {
	inspect.Offer
	// Registry says of each SVID whose it is on the hub.
	Registry []registryAnswer `json:"registry,omitempty"`
	// Principal is what came of dialling it.
	Principal *ProbeResult `json:"principal,omitempty"`

	findings []inspect.Finding
}

// registryAnswer is what the registry of the hub says of one SPIFFE ID.
type registryAnswer struct {
	SPIFFEID string `json:"spiffeID"`
	// Agent is whose it is; empty when it is no one's, or may not connect.
	Agent string `json:"agent,omitempty"`
	// Refused says why it may not connect.
	Refused string `json:"refused,omitempty"`
}

// report sees all that the flags ask for, and finds what is wrong. The error is that of
// the Workload API itself, or of the hub's.
func (l *localIdentity) report(ctx context.Context, conn *cli.Connection) (Report, error) {
	expect, to, err := l.expectation()
	if err != nil {
		return Report{}, err
	}
	socket, err := registration.WorkloadAPI(l.socket)
	if err != nil {
		return Report{}, err
	}
	offer, err := l.ask(ctx, socket)
	if err != nil {
		return Report{}, err
	}
	s := Report{Offer: offer, findings: inspect.Diagnose(offer, expect)}
	if l.hub {
		agents, err := cli.ListAgents(ctx, conn, conn.Namespace)
		if err != nil {
			return s, err
		}
		s.Registry = askRegistry(agents, offer)
		s.findings = append(s.findings, diagnoseRegistry(agents, offer, s.Registry, to.principal)...)
	}
	if l.principal != "" {
		if _, ok := expect.Chosen(offer); ok {
			d := l.dial(ctx, socket, expect, to)
			s.Principal = &d
			s.findings = append(s.findings, d.finding(l.by))
		}
	}
	return s, nil
}

func (l *localIdentity) ask(ctx context.Context, socket string) (inspect.Offer, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	return inspect.Ask(ctx, inspect.Config{Socket: socket, Audience: l.audience})
}

// expectation returns what the flags say is needed, of the Workload API and of the
// principal. The error names the flag that is wrong.
func (l *localIdentity) expectation() (e inspect.Expectation, to expectedPeer, err error) {
	e.Hint, e.JWT = l.hint, l.audience != ""
	if l.spiffeID != "" {
		if e.SPIFFEID, err = identity.ParseID(l.spiffeID); err != nil {
			return e, to, fmt.Errorf("--spiffe-id: %w", err)
		}
	}
	if to.principal, err = parseIDs("principal-id", l.principalIDs); err != nil {
		return e, to, err
	}
	if to.gateway, err = parseIDs("gateway-id", l.by.gatewayIDs); err != nil {
		return e, to, err
	}
	for _, id := range slices.Concat(to.principal, to.gateway) {
		e.Peers = append(e.Peers, id.TrustDomain())
	}
	for _, text := range l.peers {
		td, err := spiffeid.TrustDomainFromString(text)
		if err != nil {
			return e, to, fmt.Errorf("--trusts %q: %w", text, err)
		}
		e.Peers = append(e.Peers, td)
	}
	if l.agent != "" {
		if to.agent, err = identity.ParseAgentName(l.agent); err != nil {
			return e, to, fmt.Errorf("--agent: %w", err)
		}
	}
	switch {
	case l.timeout <= 0:
		return e, to, fmt.Errorf("--timeout %s: a time such as %s is expected", l.timeout, registration.WorkloadAPITimeout)
	case l.agent != "" && l.principal == "":
		return e, to, errors.New("--agent is for --principal: give its address too")
	}
	slices.SortFunc(e.Peers, spiffeid.TrustDomain.Compare)
	e.Peers = slices.Compact(e.Peers)
	return e, to, l.by.check(l.principal != "", len(to.principal) > 0)
}

// parseIDs reads the values of a flag.
func parseIDs(flag string, texts []string) ([]spiffeid.ID, error) {
	var ids []spiffeid.ID
	for _, text := range texts {
		id, err := identity.ParseID(text)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// askRegistry asks the registry about each SVID of the offer, as the principal does.
func askRegistry(agents []v1alpha1.Agent, offer inspect.Offer) []registryAnswer {
	var registry fleet.Registry
	registry.Set(agents)
	out := make([]registryAnswer, 0, len(offer.SVIDs))
	for _, svid := range offer.SVIDs {
		v := registryAnswer{SPIFFEID: svid.SPIFFEID}
		agent, err := registry.Admit(identity.Peer{ID: svid.ID(), NotAfter: svid.NotAfter, Method: identity.MethodX509})
		if err != nil {
			v.Refused = cli.OneLine(err)
		} else {
			v.Agent = agent.Name.String()
		}
		out = append(out, v)
	}
	return out
}

// diagnoseRegistry says of each SVID whose it is, and of each Agent whether this
// Workload API, if it is the principal's, lets the principal check it. principal are the
// SPIFFE IDs that the principal is known to have; they may be none.
func diagnoseRegistry(agents []v1alpha1.Agent, offer inspect.Offer, verdicts []registryAnswer,
	principal []spiffeid.ID) []inspect.Finding {
	var found []inspect.Finding
	for _, v := range verdicts {
		if v.Agent != "" {
			found = append(found,
				inspect.Finding{Level: inspect.Fine, About: v.SPIFFEID, Says: "is agent " + v.Agent + " to the hub"})
			continue
		}
		// The principal's own SVID is no one's, and that is right.
		if slices.ContainsFunc(principal, func(id spiffeid.ID) bool { return id.String() == v.SPIFFEID }) {
			found = append(found,
				inspect.Finding{Level: inspect.Fine, About: v.SPIFFEID,
					Says: "is the principal's, and not registered for an agent, as it should be"})
			continue
		}
		found = append(found, inspect.Finding{
			Level: inspect.Warning, About: v.SPIFFEID, Says: "is not registered for an agent on the hub: " + v.Refused,
			Cure: "nothing if it is the principal's, which --principal-id says; else agentctl agent create, or agentctl agent edit for spec.identity.spiffeIDs",
		})
	}
	_, conflicts := fleet.OwnersOfIDs(agents)
	for _, agent := range agents {
		name, err := identity.ParseAgentName(agent.Name)
		if err != nil {
			continue
		}
		for _, c := range conflicts[name] {
			found = append(found, inspect.Finding{
				Level: inspect.Problem, About: "agent " + agent.Name,
				Says: fmt.Sprintf("does not have %s, which belongs to agent %s", c.ID, c.Owner),
				Cure: "take it out of one of them with agentctl agent edit",
			})
		}
		found = append(found, diagnoseAgent(agent, offer)...)
	}
	return found
}

func diagnoseAgent(agent v1alpha1.Agent, offer inspect.Offer) []inspect.Finding {
	var found []inspect.Finding
	var missing []string
	for _, text := range agent.Spec.Identity.SPIFFEIDs {
		id, err := identity.ParseID(text)
		if err != nil {
			found = append(found, inspect.Finding{
				Level: inspect.Problem, About: "agent " + agent.Name, Says: cli.OneLine(err),
				Cure: "correct it with agentctl agent edit " + agent.Name,
			})
			continue
		}
		td := id.TrustDomain().Name()
		if !slices.Contains(missing, td) &&
			!slices.ContainsFunc(offer.Bundles, func(b inspect.Bundle) bool { return b.TrustDomain == td }) {
			missing = append(missing, td)
			found = append(found, inspect.Finding{
				Level: inspect.Warning, About: "agent " + agent.Name,
				Says: fmt.Sprintf("is of trust domain %s, whose bundle is not here: a principal with this Workload API refuses it",
					td),
				Cure: fmt.Sprintf("on the hub: agentctl identity federate %s, and register the principal with --federates-with %s",
					td, td),
			})
		}
	}
	return found
}

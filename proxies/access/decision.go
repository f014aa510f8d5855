package access

import "fmt"

// Decision is what one side says to one call.
type Decision struct {
	Allowed bool
	// Side is who decided.
	Side Side
	// Rule is the name of the rule that allowed or refused the call.
	Rule string
	// Message says for people why the call is refused, by whom and by which rule.
	// Empty when it is allowed. It holds nothing that the caller did not send.
	Message string
	// Tracked says that the call is allowed only if its object is tracked by an Argo
	// CD Application, which a Tracker finds out on the spoke; a hub passes it on in
	// TrackedOnlyHeader.
	Tracked bool
	// Masked says that the answer tells keys and sizes of Secrets, and no values.
	Masked bool
	// OwnKinds says that the answer names Kubernetes' own kinds alone ([IsOwnGroup]):
	// the spoke's owner shows no others.
	OwnKinds bool

	request Request
}

// TrackedOnlyHeader is set by the principal, to "true", on a call that its side
// allows for tracked objects only. What a caller sends under this name is removed.
const TrackedOnlyHeader = "Argomesh-Tracked-Only"

// Policy decides for one side. It is not changed once made, and its methods may be
// called concurrently. The zero value refuses everything.
type Policy struct {
	side   Side
	config Config
}

// New returns the Policy of a Config, or every problem of it.
func New(side Side, config Config) (*Policy, error) {
	if side != Hub && side != Spoke {
		return nil, fmt.Errorf("access: side %d is neither hub nor spoke", side)
	}
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	if len(config.Rules) == 0 {
		config.Rules = []Rule{{Name: CommonRule}}
	}
	return &Policy{side: side, config: config}, nil
}

// refuse returns the refusal of r by a rule.
func (p *Policy) refuse(r Request, rule, why string) Decision {
	return Decision{Side: p.side, Rule: rule, request: r, Message: refusal(p.side, rule, why)}
}

func refusal(side Side, rule, why string) string {
	return fmt.Sprintf("refused by the %s, rule %q: %s", side, rule, why)
}

// key names a setting, for anyone who may change it.
func (p *Policy) key(hub, spoke string) string {
	if p.side == Hub {
		return "spec.access." + hub + " of the Agent"
	}
	return "access." + spoke + " in the agent's configuration"
}

// use is a kind of use that has a switch.
type use struct {
	rule             string
	on               bool
	what             string
	hubKey, spokeKey string
}

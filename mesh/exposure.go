package mesh

import (
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/identity"
)

// Exposure is the way of the agents' connections to the principal's pod.
type Exposure string

// The exposures.
const (
	// ExposureDirect has no gateway: a load balancer, or the mesh's own routing,
	// brings connections to the pod.
	ExposureDirect Exposure = "direct"
	// ExposurePassthrough has a gateway that routes by SNI and does not terminate TLS.
	ExposurePassthrough Exposure = "passthrough"
	// ExposureGateway has a gateway that terminates the agents' TLS.
	ExposureGateway Exposure = "gateway"
)

// Policy is what the mesh is to enforce on the stream's port, beside the registry.
type Policy string

// The policies, each stronger than the one before.
const (
	// PolicyOpen lets everyone connect who can reach the port. The registry alone
	// checks.
	PolicyOpen Policy = "open"
	// PolicyGateway lets only the gateway connect to the principal.
	PolicyGateway Policy = "gateway"
	// PolicyAgents lets only registered SPIFFE IDs through, exactly.
	PolicyAgents Policy = "agents"
)

// Exposures returns all there are, in the order of the table.
func Exposures() []Exposure { return []Exposure{ExposureDirect, ExposurePassthrough, ExposureGateway} }

// Methods returns the methods by which agents prove themselves.
func Methods() []string {
	var names []string
	for _, m := range identity.Methods() {
		names = append(names, m.Name)
	}
	return names
}

// Policies returns the policies from the weakest to the strongest.
func Policies() []Policy { return []Policy{PolicyOpen, PolicyGateway, PolicyAgents} }

// TLSTerminator is who terminates the agents' TLS.
type TLSTerminator string

// Where TLS is terminated.
const (
	TerminatorPrincipal TLSTerminator = "the principal"
	TerminatorPod       TLSTerminator = "the proxy of the principal's pod"
	TerminatorGateway   TLSTerminator = "the gateway"
)

// Row is one row of the table: what can be enforced with an exposure and a method.
type Row struct {
	Exposure Exposure
	Method   string
	// TerminatedBy is who terminates the agents' TLS. Empty means that the two do not go together.
	TerminatedBy TLSTerminator
	// Enforceable are the policies that can be kept, from the weakest to the
	// strongest.
	Enforceable []Policy
	// Refused says why the two do not go together, or why the policies that are not
	// in Enforceable cannot be kept, and Cure what to choose instead.
	Refused, Cure string
}

const (
	noGateway         = "there is no gateway on the way"
	invisibleIdentity = "the principal itself terminates TLS, so no proxy sees which agent connects"
)

// Table returns what can be enforced where, one row for each exposure and method.
func Table() []Row {
	return []Row{
		{
			Exposure: ExposureDirect, Method: identity.MethodX509, TerminatedBy: TerminatorPrincipal,
			Enforceable: []Policy{PolicyOpen},
			Refused:     invisibleIdentity + ", and " + noGateway,
			Cure:        "leave the check to the registry with policy open, or choose exposure gateway with method header",
		},
		{
			Exposure: ExposureDirect, Method: identity.MethodJWT, TerminatedBy: TerminatorPrincipal,
			Enforceable: []Policy{PolicyOpen},
			Refused:     "the token is for the principal, so no proxy sees which agent connects, and " + noGateway,
			Cure:        "leave the check to the registry with policy open, or choose method header",
		},
		{
			Exposure: ExposureDirect, Method: identity.MethodHeader, TerminatedBy: TerminatorPod,
			Enforceable: []Policy{PolicyOpen, PolicyAgents},
			Refused:     noGateway,
			Cure:        "choose policy agents, or exposure gateway",
		},
		{
			Exposure: ExposurePassthrough, Method: identity.MethodX509, TerminatedBy: TerminatorPrincipal,
			Enforceable: []Policy{PolicyOpen, PolicyGateway},
			Refused: invisibleIdentity +
				": not the gateway, which passes bytes by SNI, and not the proxy of the pod, which sees the gateway",
			Cure: "leave the check to the registry with policy gateway, or choose exposure gateway with method header",
		},
		{
			Exposure: ExposurePassthrough, Method: identity.MethodJWT, TerminatedBy: TerminatorPrincipal,
			Enforceable: []Policy{PolicyOpen, PolicyGateway},
			Refused:     "the token is inside TLS that terminates at the principal, so no proxy sees which agent connects",
			Cure:        "leave the check to the registry with policy gateway, or choose exposure gateway with method header",
		},
		{
			Exposure: ExposurePassthrough, Method: identity.MethodHeader,
			Refused: "no proxy terminates the agents' TLS, so there is none that could say who they are",
			Cure:    "choose method spiffe-x509, or exposure gateway",
		},
		{
			Exposure: ExposureGateway, Method: identity.MethodX509,
			Refused: "the gateway terminates TLS, so the principal would see the gateway's certificate in place of the agent's",
			Cure:    "choose method header, or exposure passthrough",
		},
		{
			Exposure: ExposureGateway, Method: identity.MethodJWT, TerminatedBy: TerminatorGateway,
			Enforceable: []Policy{PolicyOpen, PolicyGateway},
			Refused:     "the gateway asks for no certificate, and the token is for the principal",
			Cure:        "leave the check to the registry with policy gateway, or choose method header",
		},
		{
			Exposure: ExposureGateway, Method: identity.MethodHeader, TerminatedBy: TerminatorGateway,
			Enforceable: []Policy{PolicyGateway, PolicyAgents},
			Refused:     "the principal would hear from others than the gateway who an agent is",
			Cure:        "choose policy gateway or agents",
		},
	}
}

// Strongest returns the strongest policy that can be kept. It is empty for what does
// not go together.
func Strongest(exposure Exposure, method string) Policy {
	row, _ := rowOf(exposure, method)
	if len(row.Enforceable) == 0 {
		return ""
	}
	return row.Enforceable[len(row.Enforceable)-1]
}

// Enforce returns the policy that holds: the one asked for, or with none
// [Strongest]. When it promises more than can be kept, the error says why and what to
// choose instead. It wraps [identity.ErrInvalid].
func Enforce(exposure Exposure, method string, asked Policy) (Policy, error) {
	bad := func(format string, args ...any) (Policy, error) {
		return "", fmt.Errorf("mesh: "+format+": %w", append(args, identity.ErrInvalid)...)
	}
	row, known := rowOf(exposure, method)
	switch {
	case !slices.Contains(Exposures(), exposure):
		return bad("%q is not an exposure: use %s", exposure, joinOr(Exposures()))
	case !known:
		return bad("%q is not a method: use %s", method, joinOr(Methods()))
	case asked != "" && !slices.Contains(Policies(), asked):
		return bad("%q is not a policy: use %s", asked, joinOr(Policies()))
	case len(row.Enforceable) == 0:
		return bad("exposure %s does not go with method %s: %s; %s", exposure, method, row.Refused, row.Cure)
	case asked == "":
		return Strongest(exposure, method), nil
	case !slices.Contains(row.Enforceable, asked):
		return bad("policy %s cannot be kept with exposure %s and method %s: %s; %s", asked, exposure, method, row.Refused,
			row.Cure)
	}
	return asked, nil
}

// TLSTerminatorOf returns who terminates the agents' TLS; empty for what does not go together.
func TLSTerminatorOf(exposure Exposure, method string) TLSTerminator {
	row, _ := rowOf(exposure, method)
	return row.TerminatedBy
}

func rowOf(exposure Exposure, method string) (Row, bool) {
	for _, row := range Table() {
		if row.Exposure == exposure && row.Method == method {
			return row, true
		}
	}
	return Row{}, false
}

func joinOr[T ~string](words []T) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// Markdown returns the table for documents, with a mark for each policy that can be
// kept.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| Exposure | Method | Ends TLS | open | gateway | agents | What is refused, and what to do |\n|---|---|---|---|---|---|---|\n")
	for _, row := range Table() {
		ends := string(row.TerminatedBy)
		if ends == "" {
			ends = "–"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |", row.Exposure, row.Method, ends)
		for _, policy := range Policies() {
			mark := "refused"
			switch {
			case policy == Strongest(row.Exposure, row.Method):
				mark = "**yes** (default)"
			case slices.Contains(row.Enforceable, policy):
				mark = "yes"
			}
			fmt.Fprintf(&b, " %s |", mark)
		}
		fmt.Fprintf(&b, " %s: %s |\n", row.Refused, row.Cure)
	}
	return b.String()
}

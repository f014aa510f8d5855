package istio

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/mesh"
)

// principal returns id as a policy names it: without the scheme. With it, Istio takes
// the policy and it matches no one. A SPIFFE ID has no asterisk, so it never is a
// pattern.
func principal(id spiffeid.ID) string { return strings.TrimPrefix(id.String(), "spiffe://") }

func principals(ids []spiffeid.ID) []string {
	var out []string
	for _, id := range mesh.SortedIDs(ids) {
		out = append(out, principal(id))
	}
	return out
}

// account returns the namespace of the service account whose workloads have id in
// Istio; ok is false for any other form.
func account(id spiffeid.ID) (namespace string, ok bool) {
	parts := strings.Split(id.Path(), "/")
	if len(parts) != 5 || parts[1] != "ns" || parts[3] != "sa" {
		return "", false
	}
	return parts[2], true
}

const (
	// rewrittenSegments is the number of segments, the trust domain among them, of
	// those principals whose trust domain Istio replaces.
	rewrittenSegments = 5
	// pointerDomain in a principal means to Istio whatever the mesh's trust domain is.
	pointerDomain = "cluster.local"
)

// checkPrincipals reports every principal that Istio would take for another one.
func (c Config) checkPrincipals(r mesh.Reach, self spiffeid.ID) error {
	own := self.TrustDomain()
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("istio: "+format+": %w", append(args, ErrRefused)...))
	}
	for _, p := range []mesh.Port{r.ResourceProxy, r.RedisProxy, r.Metrics} {
		for _, id := range mesh.SortedIDs(p.Callers) {
			if _, ok := account(id); !ok {
				bad("caller %s is not spiffe://<trust domain>/ns/<namespace>/sa/<service account>, so no workload of Istio has it",
					id)
			} else if id.TrustDomain() != own {
				bad("caller %s is not of the mesh's trust domain %s, so the principal's proxy refuses its certificate", id, own)
			}
			problems = append(problems, c.checkMeaning(id, own))
		}
	}
	if r.Stream.Exposure != mesh.ExposureDirect {
		if r.Stream.Gateway.TrustDomain() != own {
			bad("gateway %s is not of the mesh's trust domain %s, so the principal's proxy refuses its certificate",
				r.Stream.Gateway, own)
		}
		problems = append(problems, c.checkMeaning(r.Stream.Gateway, own))
	}
	if policy, err := mesh.Enforce(r.Stream.Exposure, r.Stream.Method, r.Stream.Policy); err == nil &&
		policy == mesh.PolicyAgents {
		for _, id := range r.AgentIDs() {
			problems = append(problems, c.checkMeaning(id, own))
		}
	}
	return errors.Join(problems...)
}

// checkMeaning returns an error when a policy that names id would mean others too, or
// another one. Istio replaces the trust domain of a principal of the mesh by all
// aliases.
func (c Config) checkMeaning(id spiffeid.ID, own spiffeid.TrustDomain) error {
	if strings.Count(principal(id), "/")+1 != rewrittenSegments {
		return nil
	}
	td := id.TrustDomain()
	if td.Name() == pointerDomain && own != td {
		return fmt.Errorf("istio: %s: to Istio %s means the mesh's own trust domain, so a policy would admit %s in its place: give that workload another path: %w",
			id, pointerDomain, strings.Replace(principal(id), td.Name(), own.Name(), 1), ErrRefused)
	}
	others := slices.DeleteFunc(append([]spiffeid.TrustDomain{own}, c.TrustDomainAliases...),
		func(other spiffeid.TrustDomain) bool { return other == td })
	if len(c.TrustDomainAliases) == 0 || len(others) > len(c.TrustDomainAliases) {
		return nil // no aliases, or not one of the mesh's trust domains
	}
	names := make([]string, len(others))
	for i, other := range others {
		names[i] = strings.Replace(principal(id), td.Name(), other.Name(), 1)
	}
	return fmt.Errorf("istio: %s: meshConfig.trustDomainAliases makes a policy for it admit its namesakes too, such as %s: "+
		"remove the aliases, and run istiod with PILOT_SKIP_VALIDATE_TRUST_DOMAIN=true if workloads of other trust domains connect: %w", id, names[0], ErrRefused)
}

package spire

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
)

// Registration is a workload that is to have one or more SPIFFE IDs. It is rendered
// as entries of a SPIRE server or as objects of spire-controller-manager.
type Registration struct {
	// Name is the registration's: that of the agent, or any other DNS label.
	Name identity.AgentName
	// IDs are the SPIFFE IDs of the workload, all of one trust domain. At least one.
	IDs []spiffeid.ID
	// ParentIDs are the SPIRE agents, or aliases of several, on whose nodes the
	// workload runs. Entries need at least one. Objects need none: without,
	// spire-controller-manager finds the nodes of the pods itself.
	ParentIDs []spiffeid.ID
	// Selectors are properties of the workload, beside those that Pods stands for.
	Selectors []Selector
	// Pods says which pods are the workload. The zero value says nothing of pods.
	Pods Pods
	// The rest is as in [Entry].
	FederatesWith   []spiffeid.TrustDomain
	X509TTL, JWTTTL time.Duration
	DNSNames        []string
	Hint            string
	Admin           bool
	// ClassName is the class of the spire-controller-manager that is to handle the
	// objects. Empty is for one that handles objects without class.
	ClassName string
}

// Pods selects pods of one namespace.
type Pods struct {
	Namespace string
	// ServiceAccount is that of the pods. Empty is any, which lets anyone who may
	// create pods with the right labels in that namespace have the identity.
	ServiceAccount string
	// Labels are labels of the pods.
	Labels map[string]string
}

// IsZero reports whether p says nothing.
func (p Pods) IsZero() bool { return p.Namespace == "" && p.ServiceAccount == "" && len(p.Labels) == 0 }

// selectors are those of SPIRE's workload attestor for Kubernetes.
func (p Pods) selectors() []Selector {
	var out []Selector
	if p.Namespace != "" {
		out = append(out, Selector{Type: "k8s", Value: "ns:" + p.Namespace})
	}
	if p.ServiceAccount != "" {
		out = append(out, Selector{Type: "k8s", Value: "sa:" + p.ServiceAccount})
	}
	for key, value := range p.Labels {
		out = append(out, Selector{Type: "k8s", Value: "pod-label:" + key + ":" + value})
	}
	return out
}

// check returns what is wrong with r whichever way it goes. The errors wrap
// [ErrInvalid].
func (r Registration) check() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(format+": %w", append(args, ErrInvalid)...))
	}
	if r.Name.IsZero() {
		bad("the registration has no name")
	}
	if len(r.IDs) == 0 {
		bad("registration %s has no SPIFFE ID", r.Name)
	}
	for _, id := range r.IDs {
		if err := identity.CheckID(id); err != nil {
			problems = append(problems, fmt.Errorf("%w: %w", ErrInvalid, err))
		}
		if td := r.IDs[0].TrustDomain(); id.TrustDomain() != td {
			bad("%s and %s are in different trust domains, and one SPIRE server serves one: register them apart", r.IDs[0], id)
		}
	}
	if r.Hint != "" && len(slices.Compact(slices.Sorted(ids(r.IDs)))) > 1 {
		bad("one hint for %d SPIFFE IDs: SPIRE would serve only the oldest of them; register them apart", len(r.IDs))
	}
	if !r.Pods.IsZero() && r.Pods.Namespace == "" {
		bad("the pods have no namespace")
	}
	return errors.Join(problems...)
}

func ids(list []spiffeid.ID) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, id := range list {
			if !yield(id.String()) {
				return
			}
		}
	}
}

// Entries returns one entry for each SPIFFE ID and parent, with IDs of [EntryID], in
// their order. The error wraps [ErrInvalid] and names every problem.
func (r Registration) Entries() ([]Entry, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if len(r.ParentIDs) == 0 {
		return nil,
			fmt.Errorf("registration %s has no parent: the SPIFFE ID of the SPIRE agent on whose node the workload runs, or of an alias of several: %w", r.Name, ErrInvalid)
	}
	var (
		out      []Entry
		problems []error
	)
	for _, id := range r.IDs {
		for _, parent := range r.ParentIDs {
			e := Entry{
				ID: EntryID(r.Name, id, parent), SPIFFEID: id, ParentID: parent,
				Selectors: slices.Concat(r.Pods.selectors(), r.Selectors),
				X509TTL:   r.X509TTL, JWTTTL: r.JWTTTL, FederatesWith: r.FederatesWith,
				DNSNames: r.DNSNames, Hint: r.Hint, Admin: r.Admin,
			}.Canonical()
			problems = append(problems, e.Check())
			out = append(out, e)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(out, func(a, b Entry) bool { return a.ID == b.ID }), nil
}

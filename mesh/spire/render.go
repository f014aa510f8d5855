package spire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
)

// HubConfig says how the workloads of a hub are to be registered.
type HubConfig struct {
	// PrincipalNames are the DNS names by which Argo CD reaches the principal, which
	// its certificates have to hold.
	PrincipalNames []string
	// ClassName is that of [Registration].
	ClassName string
}

// Registrations returns those of a hub's workloads that s speaks of: the principal, its
// gateway and Argo CD's service accounts. Each has the SPIFFE ID of its service account;
// principal and gateway get the bundles of the agents' trust domains too. It returns none
// for a snapshot without Reach. The error is that of [mesh.Check], or wraps [ErrInvalid].
func Registrations(s mesh.Snapshot, cfg HubConfig) ([]Registration, error) {
	if s.Reach == nil {
		return nil, nil
	}
	if err := mesh.Check(s); err != nil {
		return nil, err
	}
	var federates []spiffeid.TrustDomain
	for _, td := range s.Reach.TrustDomains() {
		if td != s.Self.TrustDomain() {
			federates = append(federates, td)
		}
	}
	var (
		out      []Registration
		problems []error
		seen     = map[spiffeid.ID]bool{}
	)
	add := func(id spiffeid.ID, federates []spiffeid.TrustDomain, names []string) {
		if id.IsZero() || seen[id] {
			return
		}
		seen[id] = true
		r, err := serviceAccount(id)
		r.FederatesWith, r.DNSNames, r.ClassName = federates, names, cfg.ClassName
		out, problems = append(out, r), append(problems, err)
	}
	add(s.Self, federates, cfg.PrincipalNames)
	add(s.Reach.Stream.Gateway, federates, nil)
	for _, port := range []mesh.Port{s.Reach.ResourceProxy, s.Reach.RedisProxy} {
		for _, id := range mesh.SortedIDs(port.Callers) {
			add(id, nil, nil)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return out, nil
}

// serviceAccount returns the registration of the pods of the service account that id
// names.
func serviceAccount(id spiffeid.ID) (Registration, error) {
	parts := strings.Split(id.Path(), "/")
	if len(parts) != 5 || parts[1] != "ns" || parts[3] != "sa" {
		return Registration{},
			fmt.Errorf("%s is not spiffe://<trust domain>/ns/<namespace>/sa/<service account>, so it does not say which pods have it: register it with agentctl identity register: %w", id, ErrInvalid)
	}
	name, err := identity.ParseAgentName(parts[4])
	if err != nil {
		return Registration{}, fmt.Errorf("%s: the name of the service account also names the registration: %w: %w", id,
			ErrInvalid, err)
	}
	return Registration{Name: name, IDs: []spiffeid.ID{id}, Pods: Pods{Namespace: parts[2], ServiceAccount: parts[4]}}, nil
}

// HubObjects returns the objects of [Registrations], in their order.
func HubObjects(s mesh.Snapshot, cfg HubConfig) ([]*unstructured.Unstructured, error) {
	registrations, err := Registrations(s, cfg)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, r := range registrations {
		objects, err := r.Objects()
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
	return out, nil
}

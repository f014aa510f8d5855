package install

import (
	"context"
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/chartvalues"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
)

// planIdentity plans that the pods of this side have SPIFFE IDs. The API server has tried it.
func (s *side) planIdentity(ctx context.Context, f *identityFlags, r spire.Registration) (*registering, error) {
	target, err := registration.NewObjects(s.conn)
	if err != nil {
		return nil, err
	}
	if r.ClassName = f.className; r.ClassName == "" {
		if r.ClassName, err = target.ClassName(ctx); err != nil {
			return nil, fmt.Errorf("%w; or register the pods otherwise, with --register=false here", err)
		}
	}
	r.Pods = spire.Pods{Namespace: s.namespace, ServiceAccount: s.chart} // as the chart calls it
	objects, err := r.Objects()
	if err != nil {
		return nil, err
	}
	observed, err := target.Observe(ctx, r.Name, objects)
	if err != nil {
		return nil, err
	}
	out := &registering{objects: target, wants: objects, plan: spire.PlanObjects(r.Name, objects, observed)}
	return out, target.Apply(ctx, out.plan, true, func(diff.Change[*unstructured.Unstructured]) {})
}

// principalRegistration is that of the principal in a namespace.
func principalRegistration(trustDomain, namespace string) (spire.Registration, error) {
	td, err := spiffeid.TrustDomainFromString(trustDomain)
	if err != nil {
		return spire.Registration{}, fmt.Errorf("--trust-domain %q: %w", trustDomain, err)
	}
	name, err := identity.ParseAgentName(chartvalues.PrincipalRegistration)
	if err != nil {
		return spire.Registration{}, err
	}
	id, err := spiffeid.FromSegments(td, "argomesh", "principal")
	if err != nil {
		return spire.Registration{}, err
	}
	return spire.Registration{
		Name: name, IDs: []spiffeid.ID{id},
		// By this name Argo CD reaches the resource proxy.
		DNSNames: []string{charts.Principal + "." + namespace + ".svc"},
	}, nil
}

// agentRegistration is that of an agent whose hub has a principal of that SPIFFE ID.
func agentRegistration(agent string, ids []string, principalID string) (spire.Registration, error) {
	name, err := identity.ParseAgentName(agent)
	if err != nil {
		return spire.Registration{}, err
	}
	r := spire.Registration{Name: name}
	for _, text := range ids {
		id, err := identity.ParseID(text)
		if err != nil {
			return r, err
		}
		r.IDs = append(r.IDs, id)
	}
	if principalID == "" || len(r.IDs) == 0 {
		return r, nil
	}
	hub, err := identity.ParseID(principalID)
	if err != nil {
		return r, fmt.Errorf("--principal-id: %w", err)
	}
	if hub.TrustDomain() != r.IDs[0].TrustDomain() {
		r.FederatesWith = []spiffeid.TrustDomain{hub.TrustDomain()}
	}
	return r, nil
}

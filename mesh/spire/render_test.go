package spire_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/spire"
)

func TestRegistrationsOfAHub(t *testing.T) {
	id := spiffeid.RequireFromString
	server := id("spiffe://own.test/ns/argocd/sa/argocd-server")
	s := mesh.Snapshot{
		Self: id("spiffe://own.test/ns/argocd/sa/argomesh-principal"),
		Reach: &mesh.Reach{
			Stream: mesh.StreamPort{
				Port: 8443, Exposure: mesh.ExposurePassthrough, Method: identity.MethodX509,
				Gateway: id("spiffe://own.test/ns/istio-ingress/sa/istio-ingress"), Hub: mesh.HubAddress{Host: "hub.test", Port: 443},
			},
			ResourceProxy: mesh.Port{Number: 9090, Callers: []spiffeid.ID{server}},
			RedisProxy:    mesh.Port{Number: 6379, Callers: []spiffeid.ID{server}},
			Agents:        map[identity.AgentName][]spiffeid.ID{edge: {id("spiffe://partner.test/a"), id("spiffe://own.test/b")}},
		},
	}
	registrations, err := spire.Registrations(s, spire.HubConfig{PrincipalNames: []string{"principal.argocd.svc"}, ClassName: "c"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range registrations {
		got = append(got, fmt.Sprintf("%s %v %s/%s %v %v %s", r.Name, r.IDs, r.Pods.Namespace, r.Pods.ServiceAccount, r.FederatesWith, r.DNSNames, r.ClassName))
	}
	want := []string{
		"argomesh-principal [spiffe://own.test/ns/argocd/sa/argomesh-principal] argocd/argomesh-principal [partner.test] [principal.argocd.svc] c",
		"istio-ingress [spiffe://own.test/ns/istio-ingress/sa/istio-ingress] istio-ingress/istio-ingress [partner.test] [] c",
		"argocd-server [spiffe://own.test/ns/argocd/sa/argocd-server] argocd/argocd-server [] [] c",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Registrations() (-want +got):\n%s", diff)
	}
	s.Self = id("spiffe://own.test/principal")
	if got, err := spire.Registrations(s, spire.HubConfig{}); !errors.Is(err, spire.ErrInvalid) || got != nil {
		t.Errorf("Registrations() of a path that names no pods = %v, %v", got, err)
	}
	s.Reach.Stream.Policy = mesh.PolicyAgents
	if got, err := spire.HubObjects(s, spire.HubConfig{}); !errors.Is(err, identity.ErrInvalid) || got != nil {
		t.Errorf("HubObjects() of what cannot be kept = %v, %v", got, err)
	}
	if got, err := spire.HubObjects(mesh.Snapshot{}, spire.HubConfig{}); err != nil || got != nil {
		t.Errorf("HubObjects() without a mesh = %v, %v", got, err)
	}
}

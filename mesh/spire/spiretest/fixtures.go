package spiretest

import (
	"crypto/elliptic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

// What tests of registration are about: trust domains, the SPIRE agent of a node and its
// alias, and the IDs and names of agents.
var (
	Own     = spiffeid.RequireTrustDomainFromString("own.test")
	Partner = spiffeid.RequireTrustDomainFromString("partner.test")
	Other   = spiffeid.RequireTrustDomainFromString("other.test")
	Node    = spiffeid.RequireFromString("spiffe://own.test/spire/agent/k8s_psat/edge/1")
	Alias   = spiffeid.RequireFromString("spiffe://own.test/nodes/edge")
	EdgeID  = spiffeid.RequireFromString("spiffe://own.test/argomesh/agent/edge-1")
	NewID   = spiffeid.RequireFromString("spiffe://own.test/argomesh/agent/edge-1-new")
	Edge    = Name("edge-1")
	Edge2   = Name("edge-2")
)

// Name returns the name of an agent, and panics if it is none.
func Name(s string) identity.AgentName {
	n, err := identity.ParseAgentName(s)
	if err != nil {
		panic(err) // a constant of the tests
	}
	return n
}

// Selectors reads selectors in the form of SPIRE: k8s:ns:argocd.
func Selectors(t testing.TB, texts ...string) []spire.Selector {
	t.Helper()
	var out []spire.Selector
	for _, text := range texts {
		s, err := spire.ParseSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// Registration returns that of edge-1, changed by change; nil changes nothing.
func Registration(change func(*spire.Registration)) spire.Registration {
	r := spire.Registration{
		Name: Edge, IDs: []spiffeid.ID{EdgeID}, ParentIDs: []spiffeid.ID{Node},
		Selectors: []spire.Selector{{Type: "k8s", Value: "sa:agent"}, {Type: "k8s", Value: "ns:argocd"}},
	}
	if change != nil {
		change(&r)
	}
	return r
}

// Entries returns those of a registration.
func Entries(t testing.TB, r spire.Registration) []spire.Entry {
	t.Helper()
	entries, err := r.Entries()
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// NewBundle returns a bundle of td with a fresh root and JWT key.
func NewBundle(t testing.TB, td spiffeid.TrustDomain) *spiffebundle.Bundle {
	t.Helper()
	root := certkit.NewRoot(t, td, elliptic.P256())
	b := spiffebundle.New(td)
	b.AddX509Authority(root.Certificate)
	if err := b.AddJWTAuthority("key-1", root.Key.Public()); err != nil {
		t.Fatal(err)
	}
	b.SetSequenceNumber(7)
	b.SetRefreshHint(5 * time.Minute)
	return b
}

// Bundles returns a new one of each trust domain.
func Bundles(t testing.TB, tds ...spiffeid.TrustDomain) []*spiffebundle.Bundle {
	t.Helper()
	var out []*spiffebundle.Bundle
	for _, td := range tds {
		out = append(out, NewBundle(t, td))
	}
	return out
}

// Federation returns one with a new bundle, polled from a SPIRE server.
func Federation(t testing.TB, td spiffeid.TrustDomain) spire.Federation {
	t.Helper()
	return spire.Federation{
		TrustDomain: td, EndpointURL: "https://" + td.Name() + ":8443/", EndpointID: spire.ServerID(td),
		Bundle: NewBundle(t, td),
	}
}

// ByValue has cmp compare identities by their value.
var ByValue = cmp.Options{
	cmp.Comparer(func(a, b spiffeid.ID) bool { return a == b }),
	cmp.Comparer(func(a, b spiffeid.TrustDomain) bool { return a == b }),
}

package workload_test

import (
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

// modulus is an RSA key of so many bits, of which nobody has to know the factors: what costs time is done before
// anything is found wrong with a signature.
func modulus(bits int) *rsa.PublicKey {
	n := new(big.Int).SetBit(new(big.Int), bits-1, 1)
	return &rsa.PublicKey{N: n.SetBit(n, 0, 1), E: 65537}
}

// rootWith is a root of a trust domain with a key.
func rootWith(t *testing.T, td spiffeid.TrustDomain, public any) *x509.Certificate {
	t.Helper()
	// Who signed it does not matter to who believes it.
	return certkit.New(t, x509.Certificate{Subject: pkix.Name{CommonName: "signer"}}).SignKey(t, x509.Certificate{
		Subject: pkix.Name{CommonName: "root"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign, URIs: []*url.URL{td.ID().URL()},
	}, public)
}

// A partner chooses its authorities, and anyone can have signatures checked with them: none is held that costs more
// than those that a peer may show.
func TestAuthoritiesOfAPartnerCostLittle(t *testing.T) {
	td := spiffeid.RequireTrustDomainFromString("partner.test")
	partner := spiffebundle.New(td)
	for name, bits := range map[string]int{"usual": 2048, "longest": identity.MaxRSABits, "too long": identity.MaxRSABits + 8, "giant": 64 << 13} {
		partner.AddX509Authority(rootWith(t, td, modulus(bits)))
		if err := partner.AddJWTAuthority(name, modulus(bits)); err != nil {
			t.Fatal(err)
		}
	}
	hub := newAPI(t, devworkload.Config{Entries: entries(principal)})
	if err := hub.SetFederated(partner); err != nil {
		t.Fatal(err)
	}
	s := ready(t, workload.Config{Socket: hub.start().socket(), JWTBundles: true})
	roots, err := s.GetX509BundleForTrustDomain(td)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(roots.X509Authorities()); n != 2 {
		t.Errorf("%d roots are held, want 2", n)
	}
	keys, err := s.GetJWTBundleForTrustDomain(td)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"usual": true, "longest": true, "too long": false, "giant": false} {
		if _, held := keys.FindJWTAuthority(name); held != want {
			t.Errorf("the key that is %s is held: %t", name, held)
		}
	}
}

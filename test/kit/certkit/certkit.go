// Package certkit makes certificates for tests, of whatever content: what an identity may not
// have included. It is imported by tests only; package spiffekit has trust domains that hand
// out identities as SPIRE does.
package certkit

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// Pair is a certificate with its key. It can sign others, whatever it says of itself.
type Pair struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
}

// Key makes a key on a curve.
func Key(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// New makes a certificate that signs itself, with a key on P-256. What template leaves out of
// serial number and time is filled in: an hour before now and an hour after.
func New(t testing.TB, template x509.Certificate) Pair {
	t.Helper()
	return selfSigned(t, Key(t, elliptic.P256()), template)
}

// NewRoot makes the root of a trust domain, with a key on a curve.
func NewRoot(t testing.TB, td spiffeid.TrustDomain, curve elliptic.Curve) Pair {
	t.Helper()
	return selfSigned(t, Key(t, curve), x509.Certificate{
		Subject: pkix.Name{CommonName: td.Name()}, URIs: []*url.URL{td.ID().URL()}, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
	})
}

// Sign makes a certificate that p signs, with a key of its own on P-256, as New does.
func (p Pair) Sign(t testing.TB, template x509.Certificate) Pair {
	t.Helper()
	key := Key(t, elliptic.P256())
	return Pair{Certificate: p.SignKey(t, template, key.Public()), Key: key}
}

// SignKey makes a certificate of someone's public key that p signs, as Sign does.
func (p Pair) SignKey(t testing.TB, template x509.Certificate, public crypto.PublicKey) *x509.Certificate {
	t.Helper()
	if template.SerialNumber == nil {
		template.SerialNumber = big.NewInt(time.Now().UnixNano())
	}
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, &template, p.Certificate, public, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// SVID makes an X.509-SVID that p signs, for a client and a server.
func (p Pair) SVID(t testing.TB, id spiffeid.ID) *x509svid.SVID {
	t.Helper()
	leaf := p.Sign(t, x509.Certificate{
		URIs: []*url.URL{id.URL()}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
	return &x509svid.SVID{ID: id, Certificates: []*x509.Certificate{leaf.Certificate}, PrivateKey: leaf.Key}
}

// Files writes certificate and key, in PEM, into dir.
func (p Pair) Files(t testing.TB, dir string) (certificate, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(p.Key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for file, block := range map[string]*pem.Block{
		certificate: {Type: "CERTIFICATE", Bytes: p.Certificate.Raw},
		key:         {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

// selfSigned makes a certificate of key that signs itself.
func selfSigned(t testing.TB, key crypto.Signer, template x509.Certificate) Pair {
	t.Helper()
	self := Pair{Certificate: &template, Key: key}
	self.Certificate = self.SignKey(t, template, key.Public())
	return self
}

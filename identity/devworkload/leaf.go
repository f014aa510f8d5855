package devworkload

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/url"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Leaf describes one end-entity certificate for [Server.Sign], in particular one
// that no honest authority signs. With nothing but one URI it is a good
// X.509-SVID.
type Leaf struct {
	// URIs are the URI SANs, as written. A good SVID has exactly one.
	URIs []string
	// DNSNames are the DNS SANs; the first is the common name too.
	DNSNames []string
	// NotBefore zero means 10 s ago, NotAfter zero means in one hour.
	NotBefore, NotAfter time.Time
	// IsCA makes it an authority, which an SVID must not be.
	IsCA bool
	// KeyUsage zero means that of SPIRE: digital signature, key encipherment
	// and key agreement.
	KeyUsage x509.KeyUsage
	// ExtKeyUsage nil means server and client authentication.
	ExtKeyUsage []x509.ExtKeyUsage
}

// ExpiredLeaf describes the SVID of id as it was until one minute ago.
func ExpiredLeaf(id spiffeid.ID) Leaf {
	now := time.Now()
	return Leaf{URIs: []string{id.String()}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(-time.Minute)}
}

// FutureLeaf describes an SVID of id that becomes valid in one hour.
func FutureLeaf(id spiffeid.ID) Leaf {
	now := time.Now()
	return Leaf{URIs: []string{id.String()}, NotBefore: now.Add(time.Hour), NotAfter: now.Add(2 * time.Hour)}
}

// TwoURILeaf describes a certificate that claims two SPIFFE IDs, so none.
func TwoURILeaf(a, b spiffeid.ID) Leaf {
	return Leaf{URIs: []string{a.String(), b.String()}}
}

// CALeaf describes a signing certificate that claims the ID of a workload.
func CALeaf(id spiffeid.ID) Leaf {
	return Leaf{URIs: []string{id.String()}, IsCA: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
}

// NoURILeaf describes an ordinary web server certificate, without SPIFFE ID.
func NoURILeaf(dnsName string) Leaf {
	return Leaf{DNSNames: []string{dnsName}}
}

// Sign returns a certificate by the present authority of the server's trust
// domain, with a new key, just as described. It is for tests: the certificate
// may be wrong in any way, even name another trust domain.
func (s *Server) Sign(leaf Leaf) (tls.Certificate, error) {
	s.mu.Lock()
	signer := s.store.current.signer(time.Now())
	s.mu.Unlock()
	return signer.sign(leaf, time.Now())
}

// sign returns leaf as a certificate. It never outlives the authority.
func (a *authority) sign(leaf Leaf, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("generate key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"argomesh devworkload"}},
		NotBefore:             leaf.NotBefore,
		NotAfter:              leaf.NotAfter,
		BasicConstraintsValid: true,
		IsCA:                  leaf.IsCA,
		KeyUsage:              leaf.KeyUsage,
		ExtKeyUsage:           leaf.ExtKeyUsage,
		DNSNames:              leaf.DNSNames,
	}
	if len(leaf.DNSNames) > 0 {
		template.Subject.CommonName = leaf.DNSNames[0]
	}
	if template.NotBefore.IsZero() {
		template.NotBefore = now.Add(-backdate)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = now.Add(time.Hour)
	}
	if template.NotAfter.After(a.root.NotAfter) {
		template.NotAfter = a.root.NotAfter
	}
	if template.KeyUsage == 0 {
		template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageKeyAgreement
	}
	if template.ExtKeyUsage == nil {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	for _, text := range leaf.URIs {
		uri, err := url.Parse(text)
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("parse uri san: %w", err)
		}
		template.URIs = append(template.URIs, uri)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, key.Public(), a.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sign certificate: %w", err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("parse certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: parsed}, nil
}

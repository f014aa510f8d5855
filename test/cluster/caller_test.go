//go:build linux && cluster

package cluster

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/argomesh/argomesh/test/kit/certkit"
)

// caller is with what an API server proves itself to its kubelet, as files: a certificate
// that is its own authority, and the key.
type caller struct{ certificate, key string }

func (n *node) makeCaller(t *testing.T) caller {
	t.Helper()
	if err := os.MkdirAll(n.dir, 0o755); err != nil { //nolint:gosec // pods mount folders below it
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(n.dir, "caller-")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := certkit.New(t, x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver of " + n.name, Organization: []string{user.SystemPrivilegedGroup}}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}).Files(t, dir)
	return caller{certificate: certificate, key: key}
}

//go:build linux

package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// servingFiles are the keys of one control plane's servers.
type servingFiles struct {
	ca, cert, key string
	// serviceAccount signs and verifies service account tokens.
	serviceAccount string
}

// certificateLife is longer than any demo runs.
const certificateLife = 365 * 24 * time.Hour

// ServingCertificate makes a certificate for loopback in a folder of that name, and
// returns the files with its authority, itself and its key.
func (h *Harness) ServingCertificate(name string) (ca, cert, key string, err error) {
	files, err := writeServingFiles(h.Path(name))
	return files.ca, files.cert, files.key, err
}

// writeServingFiles makes a CA and a certificate for loopback in dir. The CA's key is
// forgotten. Existing files are kept, so that kubeconfigs of an earlier run stay valid.
func writeServingFiles(dir string) (servingFiles, error) {
	files := servingFiles{
		ca:             filepath.Join(dir, "ca.crt"),
		cert:           filepath.Join(dir, "server.crt"),
		key:            filepath.Join(dir, "server.key"),
		serviceAccount: filepath.Join(dir, "service-account.key"),
	}
	if _, err := os.Stat(files.serviceAccount); err == nil { // written last
		return files, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return files, err
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return files, err
	}
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "argomesh test control plane"},
		NotBefore:             time.Now().Add(-time.Minute),
		NotAfter:              time.Now().Add(certificateLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return files, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return files, err
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "localhost"},
		NotBefore:    ca.NotBefore,
		NotAfter:     ca.NotAfter,
		DNSNames:     []string{"localhost", "kubernetes.default.svc"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)}, // the second is that of Service kubernetes
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certDER, err := x509.CreateCertificate(rand.Reader, server, ca, &key.PublicKey, caKey)
	if err != nil {
		return files, err
	}
	tokens, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return files, err
	}
	return files, errors.Join(
		writePEM(files.ca, "CERTIFICATE", caDER),
		writePEM(files.cert, "CERTIFICATE", certDER),
		writeKey(files.key, key),
		writeKey(files.serviceAccount, tokens),
	)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

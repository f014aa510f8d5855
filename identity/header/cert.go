package header

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// parseCert returns the one certificate of a Cert value: PEM, percent-encoded.
func parseCert(value string) (*x509.Certificate, error) {
	text, err := url.PathUnescape(value) // a plus sign is one, as in base64
	if err != nil {
		return nil, errors.New("not percent-encoded")
	}
	block, rest := pem.Decode([]byte(text))
	switch {
	case block == nil || block.Type != "CERTIFICATE":
		return nil, errors.New("not a certificate in PEM")
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, errors.New("more than one certificate")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("not a certificate: %w", err)
	}
	return leaf, nil
}

// agree checks that what an element says in two places is the same. The proxy has
// verified the certificate; that is not done again.
func agree(leaf *x509.Certificate, id spiffeid.ID, hash string) error {
	owner, err := x509svid.IDFromCert(leaf)
	if err != nil {
		return err
	}
	if owner != id {
		return fmt.Errorf("is one of %s", owner)
	}
	if leaf.IsCA || leaf.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0 {
		return errors.New("is a signing certificate")
	}
	if sum := sha256.Sum256(leaf.Raw); hash != "" && !strings.EqualFold(hash, hex.EncodeToString(sum[:])) {
		return errors.New("is not the one that Hash is about")
	}
	return nil
}

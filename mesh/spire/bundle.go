package spire

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream/jsonlimit"
)

const (
	// MaxBundleBytes is the longest SPIFFE bundle document that is read.
	MaxBundleBytes = 1 << 20
	// maxBundleKeys is the most keys a bundle may have.
	maxBundleKeys = 1000
	// maxRootBytes bounds the certificates of a bundle together, in DER: what crypto/x509 makes
	// of a certificate takes up to eighty times its bytes. It is some sixty to a hundred roots.
	maxRootBytes = 96 << 10
	// minRSA is the shortest RSA modulus that crypto/rsa verifies with, in bits.
	minRSA = 1024
	// maxBundleDepth is deeper than any document: of an object's array of keys an array of
	// certificates, and what we do not know.
	maxBundleDepth = 16
	// maxKeyMembers is how many values a key has on average, certificates with them.
	maxKeyMembers = 32

	useX509 = "x509-svid"
	useJWT  = "jwt-svid"
)

// document is a SPIFFE bundle (SPIFFE Trust Domain and Bundle, section 4).
type document struct {
	Keys        []json.RawMessage `json:"keys"`
	Sequence    *uint64           `json:"spiffe_sequence,omitempty"`
	RefreshHint *int64            `json:"spiffe_refresh_hint,omitempty"`
}

// ParseBundle reads a SPIFFE bundle document, of which the trust domain is not part.
// Keys of an unknown use or type are passed over, as the standard says, and so are
// X.509 keys without a certificate. A bundle without keys is valid: it revokes all that
// its trust domain ever signed. A root that names another trust domain is an error,
// since then the document is someone else's. The error wraps [ErrInvalid].
func ParseBundle(td spiffeid.TrustDomain, text []byte) (*spiffebundle.Bundle, error) {
	bundle, err := parseBundle(td, text)
	if err != nil {
		return nil, fmt.Errorf("bundle of %s: %w: %w", td, err, ErrInvalid)
	}
	return bundle, nil
}

func parseBundle(td spiffeid.TrustDomain, text []byte) (*spiffebundle.Bundle, error) {
	switch {
	case len(text) > MaxBundleBytes:
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", len(text), MaxBundleBytes)
	case bytes.HasPrefix(bytes.TrimSpace(text), []byte("-----BEGIN")):
		return nil,
			errors.New("it is PEM, and a SPIFFE bundle document is JSON: get one with \"spire-server bundle show -format spiffe\"")
	}
	if _, err := jsonlimit.Check(text, bundleLimits); err != nil {
		return nil, err
	}
	var doc document
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&doc); err != nil {
		return nil, fmt.Errorf("it is not a SPIFFE bundle document: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more follows after the document")
	}
	if doc.Keys == nil {
		return nil, errors.New("it has no member \"keys\", so it is not a SPIFFE bundle document")
	}
	bundle := spiffebundle.New(td)
	if doc.Sequence != nil {
		bundle.SetSequenceNumber(*doc.Sequence)
	}
	if doc.RefreshHint != nil {
		hint := *doc.RefreshHint
		if hint < 0 || hint > int64(MaxRefreshHint/time.Second) {
			return nil, fmt.Errorf("spiffe_refresh_hint %d is not a number of seconds up to %d", hint,
				int64(MaxRefreshHint/time.Second))
		}
		bundle.SetRefreshHint(time.Duration(hint) * time.Second)
	}
	room := maxRootBytes
	for i, raw := range doc.Keys {
		if err := addKey(bundle, raw, &room); err != nil {
			return nil, fmt.Errorf("key %d: %w", i, err)
		}
	}
	return bundle, nil
}

// bundleLimits are checked before anything is decoded.
var bundleLimits = jsonlimit.Limits{Depth: maxBundleDepth, Values: maxBundleKeys * maxKeyMembers,
	Elements: maxBundleKeys}

// MaxRefreshHint is more than anyone means.
const MaxRefreshHint = 10 * 365 * 24 * time.Hour

// addKey adds one key of a document, or passes over one that is not for us. Room is that
// for roots.
func addKey(bundle *spiffebundle.Bundle, raw json.RawMessage, room *int) error {
	var head struct {
		Use  string   `json:"use"`
		Type string   `json:"kty"`
		ID   string   `json:"kid"`
		X5C  []string `json:"x5c"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return err
	}
	switch {
	case head.Type != "RSA" && head.Type != "EC" && head.Type != "OKP":
		return nil
	case head.Use == useX509:
		if len(head.X5C) == 0 {
			return nil
		}
		return addRoot(bundle, head.X5C[0], room)
	case head.Use == useJWT:
		if head.ID == "" {
			return errors.New("a jwt-svid key needs a kid")
		}
		for _, encoded := range head.X5C { // which go-jose reads
			if err := countCertificate(room, encoded); err != nil {
				return err
			}
		}
		var key jose.JSONWebKey
		if err := json.Unmarshal(raw, &key); err != nil {
			return err
		}
		if !key.IsPublic() {
			return errors.New("it is not a public key: a bundle holds no secrets")
		}
		if k, ok := key.Key.(*rsa.PublicKey); ok && (k.N.BitLen() < minRSA || k.E < 2) {
			return fmt.Errorf("it is not an RSA key: %d bits and the exponent %d", k.N.BitLen(), k.E)
		}
		if !identity.IsUsableKey(key.Key) {
			return errTooLong
		}
		if _, taken := bundle.FindJWTAuthority(head.ID); taken {
			return fmt.Errorf("kid %q is there twice", head.ID)
		}
		return bundle.AddJWTAuthority(head.ID, key.Key)
	}
	return nil
}

var errTooLong = fmt.Errorf("its RSA key has more than %d bits", identity.MaxRSABits)

// countCertificate counts a certificate before it is read.
func countCertificate(room *int, encoded string) error {
	if *room -= base64.StdEncoding.DecodedLen(len(encoded)); *room < 0 {
		return fmt.Errorf("the certificates have more than %d KiB", maxRootBytes>>10)
	}
	return nil
}

func addRoot(bundle *spiffebundle.Bundle, encoded string, room *int) error {
	if err := countCertificate(room, encoded); err != nil {
		return err
	}
	der, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return fmt.Errorf("x5c: %w", err)
	}
	return addRootDER(bundle, der)
}

// addRootDER adds a root, unless it is of another trust domain.
func addRootDER(bundle *spiffebundle.Bundle, der []byte) error {
	root, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	for _, uri := range root.URIs {
		if id, err := spiffeid.FromURI(uri); err == nil && id.TrustDomain() != bundle.TrustDomain() {
			return fmt.Errorf("the root is that of %s: take the bundle of %s", id.TrustDomain(), bundle.TrustDomain())
		}
	}
	if !identity.IsUsableKey(root.PublicKey) {
		return errTooLong
	}
	// A certificate with a key of an unknown kind can be read, and what it is for cannot.
	if _, err := rootKey(root).MarshalJSON(); err != nil {
		return fmt.Errorf("the root's key is not of a kind that is known: %w", err)
	}
	bundle.AddX509Authority(root)
	return nil
}

// rootKey is a root as it stands in a document.
func rootKey(root *x509.Certificate) jose.JSONWebKey {
	return jose.JSONWebKey{Key: root.PublicKey, Certificates: []*x509.Certificate{root}, Use: useX509}
}

// MarshalBundle returns the SPIFFE bundle document of b; the same bundle gives the
// same bytes. WIT keys are left out.
func MarshalBundle(b *spiffebundle.Bundle) ([]byte, error) {
	doc := document{Keys: []json.RawMessage{}}
	if n, ok := b.SequenceNumber(); ok {
		doc.Sequence = &n
	}
	if d, ok := b.RefreshHint(); ok {
		hint := int64(d / time.Second)
		doc.RefreshHint = &hint
	}
	add := func(key jose.JSONWebKey) error {
		raw, err := key.MarshalJSON()
		if err != nil {
			return fmt.Errorf("bundle of %s: %w", b.TrustDomain(), err)
		}
		doc.Keys = append(doc.Keys, raw)
		return nil
	}
	for _, root := range b.X509Authorities() {
		if err := add(rootKey(root)); err != nil {
			return nil, err
		}
	}
	jwt := b.JWTAuthorities()
	for _, id := range slices.Sorted(maps.Keys(jwt)) {
		if err := add(jose.JSONWebKey{Key: jwt[id], KeyID: id, Use: useJWT}); err != nil {
			return nil, err
		}
	}
	return json.Marshal(doc)
}

// SameKeys reports whether a and b trust the same keys, whatever their numbers. Nil
// is as a bundle without keys.
func SameKeys(a, b *spiffebundle.Bundle) bool {
	if a == nil || b == nil {
		return keyless(a) && keyless(b)
	}
	return a.X509Bundle().Equal(b.X509Bundle()) &&
		maps.EqualFunc(a.JWTAuthorities(), b.JWTAuthorities(), func(x, y crypto.PublicKey) bool {
			key, ok := x.(interface{ Equal(crypto.PublicKey) bool })
			return ok && key.Equal(y)
		})
}

func keyless(b *spiffebundle.Bundle) bool {
	return b == nil || len(b.X509Authorities()) == 0 && len(b.JWTAuthorities()) == 0
}

// DescribeKeys says what b trusts, for a person.
func DescribeKeys(b *spiffebundle.Bundle) string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf("%d X.509 and %d JWT keys", len(b.X509Authorities()), len(b.JWTAuthorities()))
}

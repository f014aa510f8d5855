package devworkload

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

const (
	// rootLifetime is how long a root certificate is valid. Roots go by
	// rotation, so it is long enough never to matter.
	rootLifetime = 10 * 365 * 24 * time.Hour
	// backdate is how far in the past certificates begin, for peers whose
	// clock is a little behind.
	backdate = 10 * time.Second
)

// authority is one generation of keys of a trust domain: a self-signed root that
// signs X.509-SVIDs, and a key that signs JWT-SVIDs.
type authority struct {
	root     *x509.Certificate
	key      *ecdsa.PrivateKey
	jwtKey   *ecdsa.PrivateKey
	jwtKeyID string
	// activeAt is when it begins to sign. Until then it is only trusted.
	activeAt time.Time
}

// newAuthority makes fresh keys for td.
func newAuthority(td spiffeid.TrustDomain, now, activeAt time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate root key: %w", err)
	}
	jwtKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate jwt key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"argomesh devworkload"}, SerialNumber: serial.Text(16)},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(rootLifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		URIs:                  []*url.URL{td.ID().URL()},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign root certificate: %w", err)
	}
	return parseAuthority(der, key, jwtKey, activeAt)
}

func parseAuthority(rootDER []byte, key, jwtKey *ecdsa.PrivateKey, activeAt time.Time) (*authority, error) {
	root, err := x509.ParseCertificate(rootDER)
	if err != nil {
		return nil, fmt.Errorf("parse root certificate: %w", err)
	}
	if !key.PublicKey.Equal(root.PublicKey) {
		return nil, errors.New("root certificate and key do not belong together")
	}
	jwtPublic, err := x509.MarshalPKIXPublicKey(jwtKey.Public())
	if err != nil {
		return nil, fmt.Errorf("encode jwt key: %w", err)
	}
	sum := sha256.Sum256(jwtPublic)
	return &authority{root: root, key: key, jwtKey: jwtKey, jwtKeyID: hex.EncodeToString(sum[:16]),
		activeAt: activeAt}, nil
}

// newSerial returns a random certificate serial number (RFC 5280, section
// 4.1.2.2: positive, at most 20 bytes).
func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("generate serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}

// generations are the authorities of one trust domain through time. It is a
// value: its methods return what holds at a given time and change nothing, so
// every process that shares it reaches the same answer without being told.
type generations struct {
	trustDomain spiffeid.TrustDomain
	// authorities is in order of activeAt and never empty; the first signs
	// from its beginning on.
	authorities []*authority
	// longestTTL is the longest life of an SVID signed by any process that
	// shares these authorities: how long a root stays trusted after the next
	// one took over.
	longestTTL time.Duration
}

func newGenerations(td spiffeid.TrustDomain, now time.Time) (generations, error) {
	first, err := newAuthority(td, now, now)
	if err != nil {
		return generations{}, err
	}
	return generations{trustDomain: td, authorities: []*authority{first}}, nil
}

// signer returns the authority that signs at now: the newest that is active.
func (g generations) signer(now time.Time) *authority {
	signer := g.authorities[0]
	for _, a := range g.authorities[1:] {
		if !a.activeAt.After(now) {
			signer = a
		}
	}
	return signer
}

// trusted returns the authorities in the bundle at now: the signer, those
// prepared to follow it, and those before it whose last SVID may still live.
func (g generations) trusted(now time.Time) []*authority {
	var trusted []*authority
	for i, a := range g.authorities {
		if i == len(g.authorities)-1 || now.Before(g.droppedAt(i)) {
			trusted = append(trusted, a)
		}
	}
	return trusted
}

// droppedAt returns when authority i, which is not the last, leaves the bundle.
// Two seconds more than the longest life cover the rounding of NotAfter.
func (g generations) droppedAt(i int) time.Time {
	return g.authorities[i+1].activeAt.Add(g.longestTTL + 2*time.Second)
}

// nextChange returns the first time after now at which signer or trusted give
// another answer, and the zero time when they never will.
func (g generations) nextChange(now time.Time) time.Time {
	var next time.Time
	consider := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for i, a := range g.authorities {
		consider(a.activeAt)
		if i < len(g.authorities)-1 {
			consider(g.droppedAt(i))
		}
	}
	return next
}

// rotated returns g with a new authority that is trusted from now on and signs
// when prepare has passed (and after any other still in preparation), and
// without those that no one needs any more.
func (g generations) rotated(now time.Time, prepare time.Duration) (generations, error) {
	activeAt := now.Add(prepare)
	if last := g.authorities[len(g.authorities)-1]; last.activeAt.After(now) {
		activeAt = last.activeAt.Add(prepare)
	}
	next, err := newAuthority(g.trustDomain, now, activeAt)
	if err != nil {
		return generations{}, err
	}
	g.authorities = append(slices.Clone(g.trusted(now)), next)
	return g, nil
}

// withLongestTTL returns g, and whether it had to be changed so that its roots
// outlive SVIDs of the given life. It keeps whole seconds, rounded up.
func (g generations) withLongestTTL(ttl time.Duration) (generations, bool) {
	ttl = (ttl + time.Second - 1).Truncate(time.Second)
	if ttl <= g.longestTTL {
		return g, false
	}
	g.longestTTL = ttl
	return g, true
}

// bundle returns the public part of g at now.
func (g generations) bundle(now time.Time) (*spiffebundle.Bundle, error) {
	b := spiffebundle.New(g.trustDomain)
	for _, a := range g.trusted(now) {
		b.AddX509Authority(a.root)
		if err := b.AddJWTAuthority(a.jwtKeyID, a.jwtKey.Public()); err != nil {
			return nil, fmt.Errorf("add jwt key to bundle: %w", err)
		}
	}
	return b, nil
}

// storedGenerations is how generations look in a file.
type storedGenerations struct {
	TrustDomain       spiffeid.TrustDomain `json:"trust_domain"`
	LongestTTLSeconds int64                `json:"longest_ttl_seconds"`
	Authorities       []storedAuthority    `json:"authorities"`
}

type storedAuthority struct {
	ActiveAt time.Time `json:"active_at"`
	// Root, Key and JWTKey are PEM: a certificate and two PKCS #8 keys.
	Root   string `json:"root"`
	Key    string `json:"key"`
	JWTKey string `json:"jwt_key"`
}

const (
	pemCertificate = "CERTIFICATE"
	pemPrivateKey  = "PRIVATE KEY"
)

func (g generations) marshal() ([]byte, error) {
	stored := storedGenerations{TrustDomain: g.trustDomain, LongestTTLSeconds: int64(g.longestTTL / time.Second)}
	for _, a := range g.authorities {
		key, err := marshalKey(a.key)
		if err != nil {
			return nil, err
		}
		jwtKey, err := marshalKey(a.jwtKey)
		if err != nil {
			return nil, err
		}
		stored.Authorities = append(stored.Authorities, storedAuthority{
			ActiveAt: a.activeAt.UTC(),
			Root:     string(pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: a.root.Raw})),
			Key:      key,
			JWTKey:   jwtKey,
		})
	}
	data, err := json.MarshalIndent(stored, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode authorities: %w", err)
	}
	return append(data, '\n'), nil
}

func parseGenerations(data []byte) (generations, error) {
	var stored storedGenerations
	if err := json.Unmarshal(data, &stored); err != nil {
		return generations{}, fmt.Errorf("decode authorities: %w", err)
	}
	g := generations{
		trustDomain: stored.TrustDomain,
		longestTTL:  time.Duration(stored.LongestTTLSeconds) * time.Second,
	}
	if g.trustDomain.IsZero() || len(stored.Authorities) == 0 || g.longestTTL < 0 {
		return generations{}, errors.New("decode authorities: trust domain or authorities missing")
	}
	for _, s := range stored.Authorities {
		rootDER, err := parsePEM(s.Root, pemCertificate)
		if err != nil {
			return generations{}, err
		}
		key, err := parseKey(s.Key)
		if err != nil {
			return generations{}, err
		}
		jwtKey, err := parseKey(s.JWTKey)
		if err != nil {
			return generations{}, err
		}
		a, err := parseAuthority(rootDER, key, jwtKey, s.ActiveAt)
		if err != nil {
			return generations{}, err
		}
		g.authorities = append(g.authorities, a)
	}
	if !slices.IsSortedFunc(g.authorities, func(a, b *authority) int { return a.activeAt.Compare(b.activeAt) }) {
		return generations{}, errors.New("decode authorities: not in order of time")
	}
	return g, nil
}

func marshalKey(key *ecdsa.PrivateKey) (string, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", fmt.Errorf("encode key: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: pemPrivateKey, Bytes: der})), nil
}

func parseKey(text string) (*ecdsa.PrivateKey, error) {
	der, err := parsePEM(text, pemPrivateKey)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("parse key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("parse key: want an ecdsa key, have %T", parsed)
	}
	return key, nil
}

func parsePEM(text, blockType string) ([]byte, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil || block.Type != blockType {
		return nil, fmt.Errorf("decode authorities: no pem block %q", blockType)
	}
	return block.Bytes, nil
}

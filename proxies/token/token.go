package token

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/argomesh/argomesh/identity"
)

// Audience is the only audience of a token.
const Audience = "argomesh-resource-proxy"

// Issuer returns the issuer of the tokens of a hub.
func Issuer(hubUID string) string { return "urn:argomesh:hub:" + hubUID }

const (
	// Leeway is how far the clocks of those who sign and check may be apart, in whole
	// seconds. Envoy is told the same.
	Leeway = time.Minute
	// maxToken is the longest token that is checked, in bytes. Ours have about 500.
	maxToken = 4 << 10
)

var (
	// ErrNoKey is wrapped when no key signs yet, or the keys cannot be read.
	ErrNoKey = errors.New("no signing key")
	// ErrInvalid is wrapped by every error of Verify about a token; it is an
	// identity.ErrUnauthenticated. Why is for our log, not for the
	// caller.
	ErrInvalid = fmt.Errorf("invalid token: %w", identity.ErrUnauthenticated)
)

// Signed is a token.
type Signed struct {
	// Text is the token, in compact form. It is a secret.
	Text string
	// KeyID names the key that signed it.
	KeyID string
	// IssuedAt, Expiry and Renew are when it was signed, when it ends, and when it is
	// to be replaced: at 45 to 55 % of its life, the same time whenever it is asked, so
	// that those of many agents are spread.
	IssuedAt, Expiry, Renew time.Time
}

// MaxPerson is the longest name of a person that a token has, in bytes.
const MaxPerson = 512

// sign makes a token of agent that lives as long as life, in whole seconds. person is empty for
// one that is the hub's Argo CD's.
func sign(key *Key, issuer string, agent identity.AgentName, holder Holder, person, id string, now time.Time,
	life time.Duration) (Signed, error) {
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key.private, KeyID: key.ID},
	}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return Signed{}, fmt.Errorf("sign token of agent %s: %w", agent, err)
	}
	now = now.Truncate(time.Second)
	claims := jwt.Claims{
		Issuer: issuer, Subject: agent.String(), Audience: jwt.Audience{Audience}, ID: id,
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(life)),
	}
	text, err := jwt.Signed(signer).Claims(claims).
		Claims(binding{UID: holder.UID, Generation: holder.Generation, Person: person}).
		Serialize()
	if err != nil {
		return Signed{}, fmt.Errorf("sign token of agent %s: %w", agent, err)
	}
	return describe(text, key.ID, claims), nil
}

// verified is what does not change of a token that a key has signed. It does not have
// the token's text, which is a secret.
type verified struct {
	signed Signed
	agent  identity.AgentName
	claims jwt.Claims
	bound  binding
}

// validAt returns nil when the token is valid at that time.
func (v *verified) validAt(now time.Time) error {
	if err := v.claims.ValidateWithLeeway(jwt.Expected{Time: now}, Leeway); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// verify reads a token, whatever the time is. It must be signed by one of the keys,
// with ES256, for this issuer and our audience alone.
func verify(keys State, issuer, text string) (*verified, error) {
	refuse := func(format string, args ...any) (*verified, error) {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
	}
	parsed, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return refuse("%w", err)
	}
	if len(parsed.Headers) != 1 {
		return refuse("it has %d signatures", len(parsed.Headers))
	}
	key := keys.find(parsed.Headers[0].KeyID)
	if key == nil {
		return refuse("it is signed with a key that is not ours, or no longer")
	}
	var claims jwt.Claims
	var bound binding
	if err := parsed.Claims(&key.private.PublicKey, &claims, &bound); err != nil {
		return refuse("%w", err)
	}
	if claims.Issuer != issuer {
		return refuse("it is of another issuer")
	}
	if len(claims.Audience) != 1 || claims.Audience[0] != Audience {
		return refuse("it is for another audience")
	}
	if claims.Expiry == nil || claims.NotBefore == nil || claims.IssuedAt == nil || claims.ID == "" {
		return refuse("it lacks one of exp, nbf, iat and jti")
	}
	agent, err := identity.ParseAgentName(claims.Subject)
	if err != nil {
		return refuse("its subject is not an agent: %w", err)
	}
	return &verified{signed: describe("", key.ID, claims), agent: agent, claims: claims, bound: bound}, nil
}

// orphan reports whether a token that was verified once has lost its key before its end.
func orphan(keys State, text string, now time.Time) bool {
	parsed, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil || len(parsed.Headers) != 1 || keys.find(parsed.Headers[0].KeyID) != nil {
		return false
	}
	var claims jwt.Claims
	return parsed.UnsafeClaimsWithoutVerification(&claims) == nil && claims.Expiry != nil &&
		now.Before(claims.Expiry.Time().Add(Leeway))
}

func describe(text, keyID string, claims jwt.Claims) Signed {
	issued, expiry := claims.IssuedAt.Time(), claims.Expiry.Time()
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(claims.ID)) // never fails
	// 0 to 1, by the token's own ID.
	part := float64(binary.BigEndian.Uint32(hash.Sum(nil)[4:])) / (1 << 32)
	life := expiry.Sub(issued)
	return Signed{
		Text: text, KeyID: keyID, IssuedAt: issued, Expiry: expiry,
		Renew: issued.Add(time.Duration(float64(life) * (0.45 + 0.1*part))),
	}
}

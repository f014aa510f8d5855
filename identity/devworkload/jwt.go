package devworkload

import (
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// signJWT returns a JWT-SVID of id for audience, which is not empty.
func (s *Server) signJWT(id spiffeid.ID, audience []string) (string, error) {
	now := time.Now()
	s.mu.Lock()
	signer := s.store.current.signer(now)
	s.mu.Unlock()
	jws, err := jose.NewSigner(jose.SigningKey{
		Algorithm: jose.ES256,
		Key:       jose.JSONWebKey{Key: signer.jwtKey, KeyID: signer.jwtKeyID},
	}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", fmt.Errorf("sign jwt-svid of %s: %w", id, err)
	}
	token, err := jwt.Signed(jws).Claims(jwt.Claims{
		Subject:  id.String(),
		Audience: audience,
		IssuedAt: jwt.NewNumericDate(now),
		Expiry:   jwt.NewNumericDate(now.Add(s.jwtTTL)),
	}).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign jwt-svid of %s: %w", id, err)
	}
	return token, nil
}

package token

import (
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Holder is the Agent object that a token is for. An Agent that is deleted and made again is
// another one, of whatever name.
type Holder struct {
	// UID is that of the object.
	UID string
	// Generation is spec.tokenGeneration: raising it ends the tokens that there are.
	Generation int64
	// Created is when the object was.
	Created time.Time
}

// binding is the part of a token that names its holder, and the person it was made out to:
// none where that is the hub's Argo CD.
type binding struct {
	UID        string `json:"agent_uid,omitempty"`
	Generation int64  `json:"agent_gen,omitempty"`
	Person     string `json:"username,omitempty"`
}

// is reports whether a token with that binding is one of the holder. Releases before this
// one signed tokens without: such a one counts if the Agent was there already, and its
// tokens were never ended. None outlives [MaxLife].
func (h Holder) is(b binding, issued time.Time) bool {
	if b.UID == "" {
		return h.Generation == 0 && !issued.Before(h.Created.Add(-Leeway))
	}
	// A higher one is news that we do not have yet: someone raised it, and the token was
	// signed then.
	return b.UID == h.UID && b.Generation >= h.Generation
}

// Bound reports whether a token that Verify found good is one of the holder. It does not
// block.
func (k *Keys) Bound(text string, holder Holder) bool {
	parsed, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return false
	}
	var claims jwt.Claims
	var bound binding
	return parsed.UnsafeClaimsWithoutVerification(&claims, &bound) == nil && claims.IssuedAt != nil &&
		holder.is(bound, claims.IssuedAt.Time())
}

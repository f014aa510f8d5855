package stream

import (
	"encoding/base64"
	"fmt"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream/streampb"
)

const (
	// NonceBytes is how long the nonces are that we make, in bytes.
	NonceBytes = 32
	// minNonceBytes and maxNonceBytes bound the nonce of a peer.
	minNonceBytes, maxNonceBytes = 16, 64
)

// Nonce is what an agent makes up for one connection, so that the principal's proof
// is for that connection alone: random bytes. The zero value is none.
type Nonce string

// Audience is the audience that binds a JWT-SVID to the nonce. A JWT-SVID has no
// place for a nonce; but it names the audiences that its owner asked for, its
// issuer signs them, and no one is called like this.
func (n Nonce) Audience() string {
	return "argomesh-nonce:" + base64.RawURLEncoding.EncodeToString([]byte(n))
}

// Credential is a new proof of an agent whose connection is authenticated by
// JWT-SVID: a token of the same SPIFFE ID. It is the business of the two ends of the
// connection, and nothing that a link gets.
type Credential struct{ Token string }

func (Credential) message() {}

// String hides the token, which opens connections until it expires.
func (Credential) String() string { return "Credential{…}" }

// GoString is String.
func (c Credential) GoString() string { return c.String() }

func parseCredential(pb *streampb.Credential) (Message, error) {
	switch n := len(pb.GetToken()); {
	case n == 0:
		return nil, fmt.Errorf("credential without a token: %w", ViolationMalformed.Err())
	case n > identity.MaxTokenBytes:
		return nil, fmt.Errorf("credential of %d bytes: %w", n, ViolationLimit.Err())
	}
	return Credential{Token: pb.GetToken()}, nil
}

// ParseNonce reads the nonce of a peer, which may have none. Errors wrap ErrProtocol.
func ParseNonce(nonce []byte) (Nonce, error) {
	if n := len(nonce); n != 0 && (n < minNonceBytes || n > maxNonceBytes) {
		return "", fmt.Errorf("nonce of %d bytes: %w", n, ViolationMalformed.Err())
	}
	return Nonce(nonce), nil
}

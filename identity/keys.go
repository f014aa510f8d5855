package identity

import (
	"crypto"
	"crypto/rsa"
)

// MaxRSABits bounds the RSA keys of authorities that signatures are checked with, as crypto/tls does
// it for those that a peer shows: how long a check takes grows with the square of the length, and
// anyone who shows a certificate, or a token, can have it made before it is known who that is.
const MaxRSABits = 8192

// IsUsableKey reports whether signatures may be checked with the key of an authority.
func IsUsableKey(key crypto.PublicKey) bool {
	k, is := key.(*rsa.PublicKey)
	return !is || k.N.BitLen() <= MaxRSABits
}

// Package sealed passes a secret to one reader through an object that others may read: HPKE (RFC
// 9180) with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and ChaCha20Poly1305. It says nothing of who
// has sealed it: that the object tells by who may write it.
//
//	key, err := sealed.NewKey()                          // of the reader
//	box, err := sealed.Seal(key.Public(), "for what", secret)
//	secret, err := key.Open("for what", box)
package sealed

import (
	"crypto/ecdh"
	"crypto/hpke"
	"fmt"
)

// Overhead is how many bytes longer a sealed secret is.
const Overhead = 32 + 16

// Key is that of one reader. It is used once, and kept in memory.
type Key struct{ private hpke.PrivateKey }

// kem is the way in which both sides come to a common key.
func kem() hpke.KEM { return hpke.DHKEM(ecdh.X25519()) }

// NewKey makes a Key.
func NewKey() (Key, error) {
	private, err := kem().GenerateKey()
	if err != nil {
		return Key{}, fmt.Errorf("make a key: %w", err)
	}
	return Key{private: private}, nil
}

// Public returns the part that is told: 32 bytes, as RFC 7748 has them.
func (k Key) Public() []byte { return k.private.PublicKey().Bytes() }

// Open returns the secret of a box that was sealed to this Key, for the same purpose.
func (k Key) Open(purpose string, box []byte) ([]byte, error) {
	secret, err := hpke.Open(k.private, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), []byte(purpose), box)
	if err != nil {
		return nil, fmt.Errorf("open what was sealed: %w", err)
	}
	return secret, nil
}

// Seal returns secret, for the one who has the Key of that public part alone, and for one purpose:
// for another it does not open. The public part may be anyone's word: one that is no key is an error.
func Seal(public []byte, purpose string, secret []byte) ([]byte, error) {
	to, err := kem().NewPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("the public key: %w", err)
	}
	box, err := hpke.Seal(to, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), []byte(purpose), secret)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return box, nil
}

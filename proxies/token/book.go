package token

import (
	"crypto/sha256"
	"fmt"
	"time"

	"k8s.io/utils/lru"
)

// maxRemembered bounds the good tokens of a book, some 500 bytes each.
const maxRemembered = 8192

// book is the keys of one moment, and the good tokens that were seen under them: a
// signature of a token that comes with each call is verified once. Other keys are
// another book, so that nothing outlives the key that signed it. Its methods may be
// called concurrently.
type book struct {
	keys   State
	issuer string
	seen   *lru.Cache // of *verified, by the SHA-256 of their text; the token itself is a secret
}

// newBook returns one that remembers up to limit tokens, those that were used last.
func newBook(keys State, issuer string, limit int) *book {
	return &book{keys: keys, issuer: issuer, seen: lru.New(limit)}
}

// check returns what is known of a token that is valid now. The error wraps
// ErrInvalid.
func (b *book) check(text string, now time.Time) (*verified, error) {
	if len(text) > maxToken { // not even hashed
		return nil, fmt.Errorf("%w: it has %d bytes, more than %d", ErrInvalid, len(text), maxToken)
	}
	sum := sha256.Sum256([]byte(text))
	var v *verified
	known, seen := b.seen.Get(sum)
	if seen {
		v = known.(*verified)
	} else {
		var err error
		if v, err = verify(b.keys, b.issuer, text); err != nil {
			return nil, err
		}
	}
	if err := v.validAt(now); err != nil {
		return nil, err
	}
	if !seen { // only what was good: who has no such token takes no room
		b.seen.Add(sum, v)
	}
	return v, nil
}

package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Key is one signing key. It is not changed once it is part of a State.
type Key struct {
	// ID is the JWK thumbprint (RFC 7638) of the public half, in base64url.
	ID string
	// Created is when it was made.
	Created time.Time
	// SignsSince is when it became the current key, SignedUntil when another did. They
	// are zero before.
	SignsSince, SignedUntil time.Time
	// Longest is the longest life that a token signed with it may have. It is raised
	// before a longer one is signed, never lowered.
	Longest time.Duration

	private *ecdsa.PrivateKey
}

// NewKey makes a key.
func NewKey(now time.Time) (*Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	id, err := thumbprint(private)
	if err != nil {
		return nil, err
	}
	return &Key{ID: id, Created: now.UTC().Truncate(time.Second), private: private}, nil
}

func thumbprint(private *ecdsa.PrivateKey) (string, error) {
	jwk := jose.JSONWebKey{Key: &private.PublicKey}
	sum, err := jwk.Thumbprint(crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("thumbprint of a key: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(sum), nil
}

// public is the key as those who check tokens have it.
func (k *Key) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: &k.private.PublicKey, KeyID: k.ID, Algorithm: string(jose.ES256), Use: "sig"}
}

// State are the keys of a hub. A key that is not there is nil. The zero value is
// that of a hub that has none yet.
type State struct {
	// Next is published and does not sign yet.
	Next *Key
	// Current signs.
	Current *Key
	// Previous signs no more; what it signed is still valid.
	Previous *Key
}

// find returns the key of that ID, nil when there is none.
func (s State) find(id string) *Key {
	for _, key := range []*Key{s.Current, s.Previous, s.Next} {
		if key != nil && key.ID == id {
			return key
		}
	}
	return nil
}

// Change is one thing that Next did, for the log.
type Change struct {
	// Kind is one of the constants below.
	Kind string
	// KeyID names the key.
	KeyID string
}

// Kinds of changes.
const (
	// Created: a key is published and waits to be acknowledged.
	Created = "created"
	// Promoted: a key signs from now on.
	Promoted = "promoted"
	// Retired: a key is no longer published; whatever it signed has expired.
	Retired = "retired"
	// Extended: a key may sign longer tokens.
	Extended = "extended"
	// Adjusted: a time that lay in the future, by a clock that was wrong, is now.
	Adjusted = "adjusted"
)

// Rotation says how keys follow one another.
type Rotation struct {
	// Life is that of a token. Required.
	Life time.Duration
	// KeyLife is how long a key signs before the next one does. Required, no shorter
	// than Life.
	KeyLife time.Duration
}

// Next returns what the keys should be, by the time of the one who keeps them, and
// what that changes. A key signs only once everyone who checks tokens has
// acknowledged it, and is published until the last token it signed has expired,
// Leeway included. Next is level-based: it may be called at any time, by another
// process than the last one, and with the same input changes nothing more. Where it
// needs a key it takes fresh, so that is another one each time; it is not used
// otherwise. A clock that jumps ahead rotates early, which ends no token that the same
// clock takes for valid; after it came back nothing waits longer than usual.
func (r Rotation) Next(have State, now time.Time, acknowledged func(keyID string) bool, fresh *Key) (State, []Change) {
	now = now.UTC().Truncate(time.Second)
	s := have
	var changes []Change
	note := func(kind string, key *Key) { changes = append(changes, Change{kind, key.ID}) }

	for _, key := range []**Key{&s.Next, &s.Current, &s.Previous} {
		if *key == nil || !(*key).inFuture(now) {
			continue
		}
		adjusted := **key
		adjusted.Created = earlier(adjusted.Created, now)
		adjusted.SignsSince, adjusted.SignedUntil = earlier(adjusted.SignsSince, now), earlier(adjusted.SignedUntil, now)
		*key = &adjusted
		note(Adjusted, &adjusted)
	}
	if p := s.Previous; p != nil && !now.Before(p.SignedUntil.Add(p.Longest+Leeway)) {
		note(Retired, p)
		s.Previous = nil
	}
	if r.promotes(s, now) && acknowledged(s.Next.ID) {
		if s.Current != nil {
			old := *s.Current
			old.SignedUntil = now
			s.Previous = &old
		}
		promoted := *s.Next
		promoted.SignsSince, promoted.Longest = now, r.Life
		s.Current, s.Next = &promoted, nil
		note(Promoted, &promoted)
	}
	if s.Next == nil {
		s.Next = fresh
		note(Created, fresh)
	}
	if c := s.Current; c != nil && c.Longest < r.Life {
		longer := *c
		longer.Longest = r.Life
		s.Current = &longer
		note(Extended, &longer)
	}
	return s, changes
}

// promotes reports whether it is time for the next key.
func (r Rotation) promotes(s State, now time.Time) bool {
	switch {
	case s.Next == nil:
		return false
	case s.Current == nil:
		return true
	}
	return s.Previous == nil && !now.Before(s.Current.SignsSince.Add(r.KeyLife))
}

// RequeueAfter returns how soon Next may have something to do although nothing else
// changed; never less than a second.
func (r Rotation) RequeueAfter(s State, now time.Time) time.Duration {
	at := now.Add(r.KeyLife)
	if s.Current != nil {
		at = s.Current.SignsSince.Add(r.KeyLife)
	}
	if p := s.Previous; p != nil {
		at = p.SignedUntil.Add(p.Longest + Leeway)
	}
	return max(at.Sub(now), time.Second)
}

// inFuture reports whether a time of the key has yet to come.
func (k *Key) inFuture(now time.Time) bool {
	return k.Created.After(now) || k.SignsSince.After(now) || k.SignedUntil.After(now)
}

func earlier(t, now time.Time) time.Time {
	if t.After(now) {
		return now
	}
	return t
}

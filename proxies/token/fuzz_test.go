package token

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/argomesh/argomesh/identity"
)

// fuzzState has a key in each place.
func fuzzState(t testing.TB, now time.Time) State {
	t.Helper()
	var keys [3]*Key
	for i := range keys {
		key, err := NewKey(now)
		if err != nil {
			t.Fatal(err)
		}
		key.SignsSince, key.SignedUntil, key.Longest = now, now, DefaultLife
		keys[i] = key
	}
	return State{Next: keys[0], Current: keys[1], Previous: keys[2]}
}

// FuzzVerify changes tokens of one agent: whatever is accepted is of that agent, and
// says what it said.
func FuzzVerify(f *testing.F) {
	now := time.Now()
	state, other := fuzzState(f, now), fuzzState(f, now)
	agent, err := identity.ParseAgentName("edge-1")
	if err != nil {
		f.Fatal(err)
	}
	issuer := Issuer("hub")
	for _, key := range []*Key{state.Current, state.Previous, other.Current} {
		signed, err := sign(key, issuer, agent, "id", now, DefaultLife)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(signed.Text)
		f.Add(strings.ToUpper(signed.Text))
		f.Add(signed.Text + "=")
		f.Add(signed.Text[:strings.LastIndex(signed.Text, ".")+1])
	}
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add(`{"payload":"e30","signatures":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		signed, of, err := verify(state, issuer, text, now)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || !of.IsZero() {
				t.Errorf("it is refused with %v, of agent %v", err, of)
			}
			return
		}
		if of != agent || signed.KeyID == other.Current.ID || !signed.Expiry.After(signed.Renew) || !signed.Renew.After(signed.IssuedAt) {
			t.Errorf("%q is of %v: key %s, %v to %v", text, of, signed.KeyID, signed.IssuedAt, signed.Expiry)
		}
	})
}

// FuzzSecret changes the content of the Secret: what is accepted is the same when it
// is written and read again, and an error has nothing of a key.
func FuzzSecret(f *testing.F) {
	state := fuzzState(f, time.Now())
	secret, err := toSecret("argocd", "hub", state)
	if err != nil {
		f.Fatal(err)
	}
	content := secret.Data[secretData]
	f.Add(content)
	f.Add(content[:len(content)/2])
	f.Add([]byte(`{"hub":"hub"}`))
	f.Add([]byte(`{"hub":"hub","current":{"jwk":{"kty":"oct","k":"AA"},"signsSince":"2026-01-01T00:00:00Z"}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := decode(content, "hub")
		if err != nil {
			if i := bytes.Index(content, []byte(`"d":"`)); i >= 0 && len(content) > i+25 && strings.Contains(err.Error(), string(content[i+5:i+25])) {
				t.Errorf("the error has a key: %v", err)
			}
			return
		}
		again, err := toSecret("argocd", "hub", got)
		if err != nil {
			t.Fatal(err)
		}
		same, err := fromSecret(again, "hub")
		if err != nil {
			t.Fatalf("what was accepted is not when it is written again: %v", err)
		}
		for _, pair := range [][2]*Key{{got.Next, same.Next}, {got.Current, same.Current}, {got.Previous, same.Previous}} {
			if (pair[0] == nil) != (pair[1] == nil) || (pair[0] != nil && (pair[0].ID != pair[1].ID || pair[0].Longest != pair[1].Longest)) {
				t.Errorf("%+v is %+v when it is read again", pair[0], pair[1])
			}
		}
	})
}

package token

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/test/heap"
)

// fuzzNow is when fuzzing takes place. It and the keys are the same in every process,
// since the fuzzer runs inputs of one in another.
var fuzzNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// fuzzKey makes a key out of a number.
func fuzzKey(t testing.TB, number byte) *Key {
	t.Helper()
	private, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte{number}, 32))
	if err != nil {
		t.Fatal(err)
	}
	id, err := thumbprint(private)
	if err != nil {
		t.Fatal(err)
	}
	return &Key{ID: id, Created: fuzzNow, SignsSince: fuzzNow, SignedUntil: fuzzNow, Longest: DefaultLife, private: private}
}

// FuzzVerify changes tokens of one agent: whatever is accepted is of that agent, and
// says what it said.
func FuzzVerify(f *testing.F) {
	state, other := State{Next: fuzzKey(f, 1), Current: fuzzKey(f, 2), Previous: fuzzKey(f, 3)}, fuzzKey(f, 4)
	agent, err := identity.ParseAgentName("edge-1")
	if err != nil {
		f.Fatal(err)
	}
	issuer := Issuer("hub")
	for _, key := range []*Key{state.Current, state.Previous, other} {
		signed, err := sign(key, issuer, agent, Holder{}, "", "id", fuzzNow, DefaultLife)
		if err != nil {
			f.Fatal(err)
		}
		if _, err := newBook(state, issuer, 1).check(signed.Text, fuzzNow); (err == nil) != (key != other) {
			f.Fatalf("a token of key %s: %v", key.ID, err)
		}
		f.Add(signed.Text)
		f.Add(strings.ToUpper(signed.Text))
		f.Add(signed.Text + "=")
		f.Add(signed.Text[:strings.LastIndex(signed.Text, ".")+1])
	}
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add(`{"payload":"e30","signatures":[]}`)
	all := newBook(state, issuer, 16)
	f.Fuzz(func(t *testing.T, text string) {
		// What other tokens have left behind changes nothing.
		var v *verified
		var err error
		if took := heap.Of(func() { v, err = all.check(text, fuzzNow) }); took > mostHeap {
			t.Errorf("%d bytes of heap for %d", took, len(text))
		}
		if _, alone := newBook(state, issuer, 1).check(text, fuzzNow); (err == nil) != (alone == nil) {
			t.Errorf("%q: %v, alone %v", text, err, alone)
		}
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("it is refused with %v", err)
			}
			return
		}
		signed := v.signed
		if v.agent != agent || signed.KeyID == other.ID || !signed.Expiry.After(signed.Renew) || !signed.Renew.After(signed.IssuedAt) {
			t.Errorf("%q is of %v: key %s, %v to %v", text, v.agent, signed.KeyID, signed.IssuedAt, signed.Expiry)
		}
	})
}

// FuzzSecret changes the content of the Secret: what is accepted is the same when it
// is written and read again, and an error has nothing of a key.
func FuzzSecret(f *testing.F) {
	for _, state := range []State{{Next: fuzzKey(f, 1)}, {Current: fuzzKey(f, 2)}, {Previous: fuzzKey(f, 3)}} {
		secret, err := toSecret("argocd", "hub", state)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(secret.Data[secretData])
	}
	f.Add([]byte(`{"hub":"hub"}`))
	f.Add([]byte(`{"hub":"hub","current":{"jwk":{"kty":"oct","k":"AA"},"signsSince":"2026-01-01T00:00:00Z"}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		var got State
		var err error
		heap.Bound(t, len(content), func() { got, err = decode(content, "hub") })
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

package sealed_test

import (
	"bytes"
	"testing"

	"github.com/argomesh/argomesh/internal/sealed"
)

func newKey(t testing.TB) sealed.Key {
	t.Helper()
	key, err := sealed.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestSealed(t *testing.T) {
	key, other := newKey(t), newKey(t)
	secret := []byte("a token")
	box, err := sealed.Seal(key.Public(), "purpose", secret)
	if err != nil || bytes.Contains(box, secret) || len(box) != len(secret)+sealed.Overhead || len(key.Public()) != 32 {
		t.Fatalf("Seal() = %d bytes, %v; the key has %d", len(box), err, len(key.Public()))
	}
	if got, err := key.Open("purpose", box); err != nil || !bytes.Equal(got, secret) {
		t.Errorf("Open() = %q, %v", got, err)
	}
	again, err := sealed.Seal(key.Public(), "purpose", secret)
	if err != nil || bytes.Equal(again, box) {
		t.Errorf("the same secret is sealed the same twice, %v", err)
	}
	changed := bytes.Clone(box)
	changed[len(changed)-1] ^= 1
	for name, open := range map[string]func() ([]byte, error){
		"by another key":      func() ([]byte, error) { return other.Open("purpose", box) },
		"for another purpose": func() ([]byte, error) { return key.Open("other", box) },
		"changed":             func() ([]byte, error) { return key.Open("purpose", changed) },
		"cut":                 func() ([]byte, error) { return key.Open("purpose", box[:20]) },
		"nothing":             func() ([]byte, error) { return key.Open("purpose", nil) },
	} {
		if got, err := open(); err == nil {
			t.Errorf("%s: it opens to %q", name, got)
		}
	}
}

// FuzzSeal seals to what anyone says is a key.
func FuzzSeal(f *testing.F) {
	f.Add(newKey(f).Public())
	f.Add(make([]byte, 32)) // a point of low order
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 33))
	f.Fuzz(func(t *testing.T, public []byte) {
		secret := []byte("a token that is long enough to be seen")
		box, err := sealed.Seal(public, "purpose", secret)
		if err != nil {
			return
		}
		if len(public) != 32 || len(box) != len(secret)+sealed.Overhead || bytes.Contains(box, secret) {
			t.Errorf("a key of %d bytes gives %x", len(public), box)
		}
	})
}

package token

import (
	"errors"
	"testing"

	"github.com/argomesh/argomesh/identity"
)

// A book remembers as many good tokens as it may and no bad one, and what it has
// forgotten is as good as before.
func TestBookRemembers(t *testing.T) {
	const limit = 2
	key, issuer := fuzzKey(t, 1), Issuer("hub")
	b := newBook(State{Current: key}, issuer, limit)
	tokens := map[identity.AgentName]string{}
	for _, name := range []string{"edge-1", "edge-2", "edge-3"} {
		agent, err := identity.ParseAgentName(name)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := sign(key, issuer, agent, Holder{}, "", "id-of-"+name, fuzzNow, DefaultLife)
		if err != nil {
			t.Fatal(err)
		}
		tokens[agent] = signed.Text
	}
	for range 3 {
		for agent, text := range tokens {
			if v, err := b.check(text, fuzzNow); err != nil || v.agent != agent {
				t.Errorf("the token of %s: %+v, %v", agent, v, err)
			}
			if _, err := b.check(text[:len(text)-10], fuzzNow); !errors.Is(err, ErrInvalid) {
				t.Errorf("a token of %s that is cut off: %v", agent, err)
			}
		}
		if n := b.seen.Len(); n != limit {
			t.Errorf("%d of 3 tokens are remembered, with a limit of %d", n, limit)
		}
	}
	if _, err := b.check(tokens[identity.AgentName{}], fuzzNow); !errors.Is(err, ErrInvalid) {
		t.Errorf("no token: %v", err)
	}
}

package stream_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/stream"
)

// Two nonces never share an audience, whatever bytes they are made of.
func TestNonceAudience(t *testing.T) {
	seen := map[string]stream.Nonce{}
	for _, n := range []stream.Nonce{"", "\x00", "\x00\x00", "a", "aa", "\xff\xfe", "\xff", "argomesh-nonce:", stream.Nonce(strings.Repeat("n", 64))} {
		audience := n.Audience()
		if other, taken := seen[audience]; taken {
			t.Errorf("Audience() of %q and %q is %s", n, other, audience)
		}
		seen[audience] = n
	}
}

func TestCredentialIsNotPrinted(t *testing.T) {
	c := stream.Credential{Token: "secret"}
	for _, form := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(form, c); strings.Contains(text, "secret") {
			t.Errorf("%s prints %s", form, text)
		}
	}
}

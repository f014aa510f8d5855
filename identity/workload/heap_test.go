package workload_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/test/heap"
)

// mostTokenHeap is what a JWT-SVID may take, of whatever length.
const mostTokenHeap = 1 << 20

// Whatever a caller gives as its token, to read it takes little.
func TestHeapOfTokens(t *testing.T) {
	p := newTokenPair(t, 0)
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	n := identity.MaxTokenBytes * 3 / 4
	full := func(begin, element, end string) string {
		return part(begin + strings.TrimSuffix(strings.Repeat(element+",", (n-100)/(len(element)+1)), ",") + end)
	}
	for name, token := range map[string]string{
		"members of a header": full(`{"alg":"ES256",`, `"":0`, `}`) + ".e30.e30",
		"a header of objects": full(`{"alg":"ES256","x":[`, `{}`, `]}`) + ".e30.e30",
		"certificates":        full(`{"alg":"ES256","x5c":[`, `""`, `]}`) + ".e30.e30",
		"an audience":         part(`{"alg":"ES256","kid":"a"}`) + "." + full(`{"sub":"spiffe://edge.test/a","aud":[`, `""`, `]}`) + ".e30",
		"claims of objects":   part(`{"alg":"ES256","kid":"a"}`) + "." + full(`{"sub":"spiffe://edge.test/a","x":[`, `{}`, `]}`) + ".e30",
		"depth":               part(strings.Repeat("[", n)) + ".e30.e30",
		"longer than any":     strings.Repeat("e", 64<<20),
	} {
		var err error
		if took := heap.Of(func() { _, err = p.principal.PeerOfToken(token) }); took > mostTokenHeap || err == nil {
			t.Errorf("%s: %d bytes of heap for %d, %v", name, took, len(token), err)
		}
	}
}

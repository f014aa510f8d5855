package token

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/heap"
)

// mostHeap is what a token may take, of whatever length and however often it is read.
const mostHeap = 512 << 10

// Whatever a caller gives as its token, to read it takes little.
func TestHeapOfTokens(t *testing.T) {
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	book := newBook(State{Current: fuzzKey(t, 2)}, Issuer("hub"), 1)
	n := maxToken * 3 / 4
	full := func(begin, element, end string) string {
		return part(begin + strings.TrimSuffix(strings.Repeat(element+",", (n-100)/(len(element)+1)), ",") + end)
	}
	for name, text := range map[string]string{
		"members of a header": full(`{"alg":"ES256",`, `"":0`, `}`) + ".e30.e30",
		"a header of objects": full(`{"alg":"ES256","x":[`, `{}`, `]}`) + ".e30.e30",
		"certificates":        full(`{"alg":"ES256","x5c":[`, `""`, `]}`) + ".e30.e30",
		"an audience":         part(`{"alg":"ES256"}`) + "." + full(`{"aud":[`, `""`, `]}`) + ".e30",
		"signatures":          `{"payload":"e30","signatures":[` + strings.Repeat(`{},`, maxToken/3-100) + `{}]}`,
		"recipients":          `{"payload":"e30","signatures":[` + strings.Repeat(`{"protected":"e30"},`, maxToken/20-10) + `{}]}`,
		"depth":               part(strings.Repeat("[", n)) + ".e30.e30",
		"longer than any":     strings.Repeat("e", 1<<20),
	} {
		if took := heap.Of(func() { _, _ = book.check(text, fuzzNow) }); took > mostHeap {
			t.Errorf("%s: %d bytes of heap for %d", name, took, len(text))
		}
	}
}

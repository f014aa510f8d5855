package exchange

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/heap"
)

// A message that passes asks for no more than it says.
func FuzzCheckMessage(f *testing.F) {
	f.Add("GET /agents/a/version HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	f.Add("POST /agents/a/x HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	f.Add("GET http://h/agents/a/x HTTP/1.1\r\nHost: h\r\nConnection: Authorization\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return
		}
		var upgrade string
		heap.Bound(t, len(text), func() { upgrade, err = CheckMessage(r) })
		if err != nil {
			return
		}
		if upgrade != "" && (len(r.Header["Upgrade"]) != 1 || !strings.EqualFold(r.Header.Get("Upgrade"), upgrade) || r.ContentLength != 0) {
			t.Fatalf("%q upgrades to %q", text, upgrade)
		}
		if upgrade == "" && r.Header.Get("Upgrade") != "" {
			t.Fatalf("%q has an upgrade that nobody saw", text)
		}
		stripRequest(r.Header)
		for name := range r.Header {
			if isStripped(name) || strings.Contains(strings.ToLower(strings.Join(r.Header[webSocketProtocols], ",")), webSocketToken) {
				t.Fatalf("%q keeps %s: %q", text, name, r.Header[name])
			}
		}
	})
}

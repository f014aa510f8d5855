package resource_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/proxies/resource"
)

// saying has the agent's end of each call answer with text as it is; lines end with \n.
func saying(t *testing.T, text string) settings {
	t.Helper()
	return settings{hub: func(c *resource.HubConfig) {
		c.Dial = func(context.Context, identity.AgentName) (net.Conn, error) {
			here, there := pair(t)
			t.Cleanup(func() { _ = there.Close() })
			go func() {
				if _, err := http.ReadRequest(bufio.NewReader(there)); err == nil {
					_, _ = io.WriteString(there, strings.ReplaceAll(text, "\n", "\r\n"))
				}
			}()
			return here, nil
		}
	}}
}

func never(t *testing.T) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { t.Error("it reached the API server") }
}

// What the audit says of a call that the hub let through is the hub's: an agent cannot
// have it look refused while its caller gets data.
func TestTheSpokesWordIsApart(t *testing.T) {
	for name, c := range map[string]struct {
		head     string
		decision audit.Decision
		by       audit.Answerer
		rule     string
	}{
		"data that is called a refusal":     {"200 OK\nArgomesh-Refused-By: secrets", audit.Allow, audit.ByAPIServer, "everything"},
		"data that is called a failure":     {"200 OK\nArgomesh-Failed: true", audit.Allow, audit.ByAPIServer, "everything"},
		"a failure that is called refusal":  {"502 Bad Gateway\nArgomesh-Refused-By: secrets", audit.Allow, audit.ByAPIServer, "everything"},
		"a refusal by what is no rule":      {"403 Forbidden\nArgomesh-Refused-By: it's \"fine\"", audit.Allow, audit.ByAPIServer, "everything"},
		"a refusal by two rules":            {"403 Forbidden\nArgomesh-Refused-By: secrets\nArgomesh-Refused-By: exec", audit.Allow, audit.ByAPIServer, "everything"},
		"a refusal, which is the spoke's":   {"403 Forbidden\nArgomesh-Refused-By: secrets", audit.Deny, audit.ByAgent, "secrets"},
		"a failure, which is its agent's":   {"502 Bad Gateway\nArgomesh-Failed: true", audit.Allow, audit.ByAgent, "everything"},
		"an answer that says nothing of it": {"200 OK", audit.Allow, audit.ByAPIServer, "everything"},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, never(t), saying(t, "HTTP/1.1 "+c.head+"\nContent-Length: 8\n\nthe data"))
			res, body := w.get("/api/v1/namespaces/web/secrets/s")
			if want := strings.Fields(c.head)[0]; fmt.Sprint(res.Code) != want || body != "the data" {
				t.Errorf("answer %d %q", res.Code, body)
			}
			r := w.records.wait(t, audit.End, 1)[0]
			if r.Decision != c.decision || r.AnsweredBy != c.by || r.Rule != c.rule || r.HubDecision != audit.Allow || r.HubRule != "everything" {
				t.Errorf("record = %+v", r)
			}
		})
	}
}

// Of what comes before the final answer nothing is passed on, and only a few are read.
func TestEarlyAnswers(t *testing.T) {
	const early = "HTTP/1.1 103 Early Hints\nSet-Cookie: a=b\nLocation: https://elsewhere.test/\nArgomesh-Refused-By: secrets\nLink: </x>; rel=preload\n\n"
	const final = "HTTP/1.1 200 OK\nContent-Length: 2\n\n{}"
	t.Run("are dropped", func(t *testing.T) {
		w := start(t, never(t), saying(t, early+"HTTP/1.1 102 Processing\n\n"+final))
		res, _, _ := w.send("GET /agents/edge-1/api/v1/pods HTTP/1.1\nHost: h\nAuthorization: Bearer " + token("edge-1") + "\n\n")
		if res.Code != http.StatusOK || len(res.Header["Link"])+len(res.Header["Set-Cookie"])+len(res.Header["Location"]) > 0 {
			t.Errorf("first answer %d %v, want the final one and nothing of the earlier ones", res.Code, res.Header)
		}
	})
	t.Run("are few", func(t *testing.T) {
		w := start(t, never(t), saying(t, strings.Repeat(early, 100)+final))
		if res, _ := w.get("/api/v1/pods"); res.Code != http.StatusBadGateway {
			t.Errorf("answer %d, want that the agent was lost", res.Code)
		}
	})
}

package resource_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/argomesh/argomesh/proxies/resource/replies"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/proxies/resource"
	"github.com/argomesh/argomesh/stream"
)

// dials notes whom a Hub wants to reach, and reaches no one.
type dials struct {
	mu sync.Mutex // guards to
	to []identity.AgentName
}

func (d *dials) dial(_ context.Context, to identity.AgentName) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = append(d.to, to)
	return nil, fmt.Errorf("dial %s: %w", to, stream.ErrNotConnected)
}

func (d *dials) take() []identity.AgentName {
	d.mu.Lock()
	defer d.mu.Unlock()
	to := d.to
	d.to = nil
	return to
}

// Whatever a call's target is, no other agent is asked than the one whose token it has
// and whose path it is.
func FuzzCallsReachOneAgent(f *testing.F) {
	names := []string{"edge-1", "edge-11"}
	for _, target := range []string{
		"/agents/edge-1/version", "/agents/edge-11/version", "/agents/edge-1", "/agents/edge-11?x=y", "/agents/edge-1/api/v1/pods?watch=1",
		"/agents/edge-1/../edge-11/version", "/agents/edge-1/%2e%2e/edge-11/version", "/agents/edge-1%2f..%2fedge-11/version",
		"//agents/edge-11/version", "/agents//edge-1/version", "/agents/edge-1/agents/edge-11/version", "/agents/edge%2D1/version",
		"/Agents/Edge-1/version", "http://edge-11/agents/edge-1/version", "/agents/edge-1:80/version", "/agents/edge-1@edge-11/version",
		"/agents/edge-1#/../edge-11", "/agents/edge-1\\..\\edge-11/version", "*",
	} {
		for of := range names {
			f.Add(of == 1, "GET", target)
		}
	}
	f.Add(false, "POST", "/agents/edge-1/api/v1/namespaces/web/pods/p/exec?command=sh")
	f.Add(true, "CONNECT", "edge-11:443")
	dials := &dials{}
	hub := fuzzedHub(f, names, dials)
	f.Fuzz(func(t *testing.T, second bool, method, target string) {
		own := names[0]
		if second {
			own = names[1]
		}
		// As net/http reads it off a connection.
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(
			method + " " + target + " HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer " + token(own) + "\r\n\r\n")))
		if err != nil || r.Method != method || r.RequestURI != target {
			return // it is no call, or one with another token in it
		}
		answer := httptest.NewRecorder()
		hub.ServeHTTP(answer, r)
		asked := dials.take()
		if len(asked) == 0 {
			if answer.Code < 400 || target == "/agents/"+own+"/version" && method == http.MethodGet {
				t.Errorf("%s %q of %s: nobody was asked, and the answer is %d", method, target, own, answer.Code)
			}
			return
		}
		if len(asked) > 1 || asked[0].String() != own {
			t.Errorf("%s %q of %s is for %s", method, target, own, asked)
		}
		rest, found := strings.CutPrefix(r.RequestURI, "/agents/"+own)
		if !found || (rest != "" && rest[0] != '/' && rest[0] != '?') {
			t.Errorf("%s %q of %s is none of its paths", method, r.RequestURI, own)
		}
		// As one reads it that decodes and cleans first.
		u, err := url.ParseRequestURI(r.RequestURI)
		if err != nil {
			t.Fatalf("%s %q of %s cannot be read: %v", method, r.RequestURI, own, err)
		}
		if cleaned := u.JoinPath().Path; cleaned != "/agents/"+own && !strings.HasPrefix(cleaned, "/agents/"+own+"/") {
			t.Errorf("%s %q of %s is %q to others", method, r.RequestURI, own, cleaned)
		}
	})
}

// fuzzedHub is a hub with agents that allow everything.
func fuzzedHub(f *testing.F, names []string, dials *dials) *resource.Hub {
	f.Helper()
	metrics := prometheus.NewRegistry()
	log, err := audit.New(audit.Config{Process: "fuzz", Metrics: metrics, Log: zerolog.Nop()})
	if err != nil {
		f.Fatal(err)
	}
	replies, err := replies.New(replies.Config{Metrics: metrics, Log: zerolog.Nop()})
	if err != nil {
		f.Fatal(err)
	}
	all, err := access.New(access.Hub, everything())
	if err != nil {
		f.Fatal(err)
	}
	agents := registry{}
	for _, name := range names {
		agents[name] = resource.Target{UID: "uid-of-" + name, Policy: all}
	}
	hub, err := resource.NewHub(resource.HubConfig{
		Dial: dials.dial, Tokens: verifier{}, Agents: agents, Audit: log, Replies: replies,
		Tracer: noop.NewTracerProvider().Tracer(""), Metrics: metrics, Log: zerolog.Nop(),
	})
	if err != nil {
		f.Fatal(err)
	}
	return hub
}

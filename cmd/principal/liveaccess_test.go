package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace/noop"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/cmd/internal/start"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/proxies/resource"
	"github.com/argomesh/argomesh/proxies/resource/spoke"
	"github.com/argomesh/argomesh/test/kit"
)

// onlyAgent takes "token" for a token of edge-1.
type onlyAgent struct{}

// Revoked implements resource.Verifier: it never is.
func (onlyAgent) Revoked(string) bool                { return false }
func (onlyAgent) Bound(string, resource.Target) bool { return true }

// Changed implements resource.Verifier: it never does.
func (onlyAgent) Changed() <-chan struct{} { return nil }

func (onlyAgent) Verify(token string) (identity.AgentName, error) {
	if token != "token" {
		return identity.AgentName{}, errors.New("no token")
	}
	return identity.ParseAgentName("edge-1")
}

// The registry decides about each call: what an Agent allows, whether it is there.
func TestLiveAccess(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) }))
	defer api.Close()
	policy, err := access.New(access.Spoke, access.Config{Enabled: true, Writes: true})
	if err != nil {
		t.Fatal(err)
	}
	spoke, err := spoke.New(spoke.Config{
		REST: &rest.Config{Host: api.URL}, Policy: policy, Tracer: noop.NewTracerProvider().Tracer(""), Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cfg := principalconfig.DefaultResourceProxy()
	cfg.Listen = "unix://" + filepath.Join(dir, "proxy.sock")
	cfg.Audit.File = filepath.Join(dir, "audit.jsonl")
	var agents fleet.Registry
	live, err := newLiveAccess(t.Context(), liveConfig{
		cfg: cfg, name: "principal-0", agents: &agents, tokens: onlyAgent{},
		base: &start.Base{Log: zerolog.Nop(), Metrics: prometheus.NewRegistry(), Tracer: noop.NewTracerProvider().Tracer("")},
		dial: func(context.Context, identity.AgentName) (net.Conn, error) {
			here, there := net.Pipe()
			go func() { _ = spoke.Serve(context.Background(), there) }()
			return here, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := kit.Background(t, live.Run)

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", strings.TrimPrefix(cfg.Listen, "unix://"))
	}}}
	call := func(method, path string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://hub"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer token")
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	agent := v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "edge-1", UID: "1", Generation: 1}, Spec: v1alpha1.AgentSpec{Mode: v1alpha1.ModeManaged}}
	set := func(change func(*v1alpha1.Agent)) {
		agent.Generation++
		change(&agent)
		agents.Set([]v1alpha1.Agent{agent})
	}
	const pods = "/agents/edge-1/api/v1/namespaces/web/pods"
	for _, step := range []struct {
		what   string
		change func(*v1alpha1.Agent)
		method string
		want   int
		text   string
	}{
		{"before the registry is known", nil, http.MethodGet, 503, "not known yet"},
		{"without spec.access", func(*v1alpha1.Agent) {}, http.MethodGet, 403, "live access is disabled"},
		{"switched on", func(a *v1alpha1.Agent) { a.Spec.Access = &v1alpha1.AgentAccess{Enabled: true} }, http.MethodGet, 200, "/api/v1/namespaces/web/pods"},
		{"a write that is off", nil, http.MethodPost, 403, "writes"},
		{"a write that is on", func(a *v1alpha1.Agent) { a.Spec.Access = &v1alpha1.AgentAccess{Enabled: true, Writes: true} }, http.MethodPost, 200, "/api/v1/namespaces/web/pods"},
		{"suspended", func(a *v1alpha1.Agent) { a.Spec.Suspended = true }, http.MethodGet, 403, "suspended"},
		{"gone", func(a *v1alpha1.Agent) { a.Name = "edge-2" }, http.MethodGet, 403, "not registered"},
	} {
		if step.change != nil {
			set(step.change)
		}
		if code, body := call(step.method, pods); code != step.want || !strings.Contains(body, step.text) {
			t.Errorf("%s: %d %s, want %d with %q", step.what, code, body, step.want, step.text)
		}
	}
	stop()
	text, err := os.ReadFile(cfg.Audit.File)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i, line := range lines {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Seq != uint64(i)+1 || !strings.HasPrefix(r.Process, "principal-0/") {
			t.Errorf("line %d: %s, %v", i, line, err)
		}
	}
	if len(lines) != 7 {
		t.Errorf("%d records, want 7", len(lines))
	}
}

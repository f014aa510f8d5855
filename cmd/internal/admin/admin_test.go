package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/cmd/internal/admin"
	"github.com/argomesh/argomesh/test/kit"
)

func TestReadiness(t *testing.T) {
	var identity, stream atomic.Pointer[error]
	state := func(p *atomic.Pointer[error]) func() error {
		return func() error {
			if err := p.Load(); err != nil {
				return *err
			}
			return nil
		}
	}
	url := serve(t, admin.Config{
		Checks:  []admin.Check{{Name: "identity", Ready: state(&identity)}, {Name: "stream", Ready: state(&stream)}},
		Metrics: prometheus.NewRegistry(),
	})

	want(t, url+"/readyz", http.StatusOK, "[+] identity: ok\n[+] stream: ok\nready\n")
	missing := errors.New("no SVID yet")
	identity.Store(&missing)
	want(t, url+"/readyz", http.StatusServiceUnavailable, "[-] identity: no SVID yet\n[+] stream: ok\nnot ready\n")
	want(t, url+"/livez", http.StatusOK, "ok\n")

	status, body := get(t, url+"/readyz?format=json")
	var got any
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	expected := map[string]any{"ready": false, "checks": []any{
		map[string]any{"name": "identity", "ready": false, "reason": "no SVID yet"},
		map[string]any{"name": "stream", "ready": true},
	}}
	if diff := cmp.Diff(expected, got); diff != "" || status != http.StatusServiceUnavailable {
		t.Errorf("GET /readyz?format=json: status %d (-want +got)\n%s", status, diff)
	}

	identity.Store(nil)
	want(t, url+"/readyz", http.StatusOK, "[+] identity: ok\n[+] stream: ok\nready\n")
}

func TestReadyButDegraded(t *testing.T) {
	var problem atomic.Pointer[error]
	url := serve(t, admin.Config{Metrics: prometheus.NewRegistry(), Checks: []admin.Check{{
		Name: "identity", Ready: func() error { return nil },
		Degraded: func() error {
			if p := problem.Load(); p != nil {
				return *p
			}
			return nil
		},
	}}})
	want(t, url+"/readyz", http.StatusOK, "[+] identity: ok\nready\n")
	away := errors.New("the Workload API is away")
	problem.Store(&away)
	want(t, url+"/readyz", http.StatusOK, "[+] identity: ok, but the Workload API is away\nready\n")
	want(t, url+"/readyz?format=json", http.StatusOK, `{
  "ready": true,
  "checks": [
    {
      "name": "identity",
      "ready": true,
      "reason": "the Workload API is away"
    }
  ]
}
`)
}

func nothing() any { return map[string]string{} }

func TestIdentity(t *testing.T) {
	url := serve(t, admin.Config{Metrics: prometheus.NewRegistry(), Identity: func() any { return map[string]string{"is": "<well>"} }})
	want(t, url+"/identity", http.StatusOK, "{\n  \"is\": \"\\u003cwell\\u003e\"\n}\n")
}

func TestReadyWithoutChecks(t *testing.T) {
	url := serve(t, admin.Config{Metrics: prometheus.NewRegistry()})
	want(t, url+"/readyz", http.StatusOK, "ready\n")
	want(t, url+"/readyz?format=json", http.StatusOK, "{\n  \"ready\": true,\n  \"checks\": []\n}\n")
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "argomesh_test_calls_total", Help: "Calls."})
	registry.MustRegister(counter, broken{})
	counter.Add(3)
	url := serve(t, admin.Config{Metrics: registry})
	status, body := get(t, url+"/metrics")
	if status != http.StatusOK || !strings.Contains(body, "argomesh_test_calls_total 3\n") {
		t.Errorf("GET /metrics = %d, %s, want the counter in spite of a broken collector", status, body)
	}
}

// broken is a collector that fails.
type broken struct{}

func (broken) Describe(chan<- *prometheus.Desc) {}
func (broken) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(prometheus.NewDesc("argomesh_test_broken", "Broken.", nil, nil), errors.New("broken"))
}

func TestOtherRequests(t *testing.T) {
	url := serve(t, admin.Config{Metrics: prometheus.NewRegistry()})
	if status, _ := get(t, url+"/"); status != http.StatusNotFound {
		t.Errorf("GET / = %d, want 404", status)
	}
	response, err := http.Post(url+"/livez", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /livez = %d, want 405", response.StatusCode)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/livez", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Long", strings.Repeat("x", 32<<10))
	response, err = http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 32 KiB = %d, want 431", response.StatusCode)
	}
}

func TestRunReturnsTheFailure(t *testing.T) {
	server, err := admin.New(admin.Config{Identity: nothing, Metrics: prometheus.NewRegistry(), Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	l := listenLoopback(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := server.Run(t.Context(), l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run() on a closed listener = %v, want net.ErrClosed", err)
	}
}

func TestRunAfterTheEnd(t *testing.T) {
	server, err := admin.New(admin.Config{Identity: nothing, Metrics: prometheus.NewRegistry(), Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := listenLoopback(t)
	if err := server.Run(ctx, l); err != nil {
		t.Errorf("Run() with an ended context = %v, want nil", err)
	}
	if conn, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Errorf("the listener still accepts: %v", conn.Close())
	}
}

func TestNewRefuses(t *testing.T) {
	ready := func() error { return nil }
	for name, cfg := range map[string]admin.Config{
		"no metrics":       {Identity: nothing},
		"no identity":      {Metrics: prometheus.NewRegistry()},
		"a nameless check": {Identity: nothing, Metrics: prometheus.NewRegistry(), Checks: []admin.Check{{Ready: ready}}},
		"an empty check":   {Identity: nothing, Metrics: prometheus.NewRegistry(), Checks: []admin.Check{{Name: "a"}}},
		"a name twice":     {Identity: nothing, Metrics: prometheus.NewRegistry(), Checks: []admin.Check{{Name: "a", Ready: ready}, {Name: "a", Ready: ready}}},
	} {
		if _, err := admin.New(cfg); err == nil {
			t.Errorf("New() with %s succeeded", name)
		}
	}
}

// serve runs a server until the test ends and returns its URL.
func serve(t *testing.T, cfg admin.Config) string {
	t.Helper()
	cfg.Log = zerolog.Nop()
	if cfg.Identity == nil {
		cfg.Identity = nothing
	}
	server, err := admin.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := listenLoopback(t)
	kit.Background(t, func(ctx context.Context) error { return server.Run(ctx, l) })
	return "http://" + l.Addr().String()
}

func listenLoopback(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func want(t *testing.T, url string, status int, body string) {
	t.Helper()
	if gotStatus, gotBody := get(t, url); gotStatus != status || gotBody != body {
		t.Errorf("GET %s = %d, %q, want %d, %q", url, gotStatus, gotBody, status, body)
	}
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	return response.StatusCode, string(b)
}

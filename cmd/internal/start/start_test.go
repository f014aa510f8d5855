package start_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/start"
)

func settings(t *testing.T, output *bytes.Buffer, server string) start.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig := `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "` + server + `"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	k := config.DefaultKubernetes()
	k.Kubeconfig = path
	return start.Config{
		Program: "agent", Build: buildinfo.Info{Version: "v1.2.3"}, Output: output,
		Fields: func(c zerolog.Context) zerolog.Context { return c.Str("agent", "edge-1") },
		Log:    config.DefaultLog(), Tracing: config.DefaultTracing(), Kubernetes: k,
	}
}

func TestNew(t *testing.T) {
	asked := make(chan *http.Request, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		http.NotFound(w, r)
	}))
	defer server.Close()
	var output bytes.Buffer
	b, err := start.New(t.Context(), settings(t, &output, server.URL))
	if err != nil {
		t.Fatal(err)
	}
	b.Log.Info().Msg("agent starts")
	if line := output.String(); !strings.Contains(line, `"agent":"edge-1"`) || !strings.Contains(line, `"message":"agent starts"`) {
		t.Errorf("log line %s", line)
	}
	// A call with and one without a trace; neither is answered with an object.
	traced := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}))
	for call, f := range map[string]func() error{
		"/api/v1/namespaces/argocd": func() error {
			_, err := b.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(traced, "argocd", metav1.GetOptions{})
			return err
		},
		"/apis/coordination.k8s.io/v1/namespaces/argocd/leases/l": func() error {
			_, err := b.Leases.Leases("argocd").Get(t.Context(), "l", metav1.GetOptions{})
			return err
		},
	} {
		if err := f(); err == nil {
			t.Errorf("%s: no error of a server that has nothing", call)
		}
		r := <-asked
		if r.URL.Path != call || r.Header.Get("User-Agent") != "argomesh-agent/v1.2.3" {
			t.Errorf("%s: the server was asked for %s by %v", call, r.URL, r.Header)
		}
	}
	families, err := b.Metrics.Gather()
	if err != nil || len(families) == 0 {
		t.Errorf("Metrics.Gather() = %d families, %v", len(families), err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	b.Close(done)
}

func TestNewNamesTheKeyThatIsWrong(t *testing.T) {
	cfg := settings(t, &bytes.Buffer{}, "https://127.0.0.1:1")
	cfg.Kubernetes.Kubeconfig += ".missing"
	if _, err := start.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "kubernetes.kubeconfig") {
		t.Errorf("New() = %v", err)
	}
	cfg = settings(t, &bytes.Buffer{}, "https://127.0.0.1:1/\x7f")
	if _, err := start.New(t.Context(), cfg); err == nil {
		t.Error("New() takes a server that is none")
	}
}

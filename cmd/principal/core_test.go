package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/cmd/internal/start"
	"github.com/argomesh/argomesh/stream"
)

// TestMirrorsHoldUpNothingElse: what agents have the principal write uses up no limit that
// reading an Agent, or writing its status, would wait for.
func TestMirrorsHoldUpNothingElse(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":"edge-1"}}`)
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig := `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "` + server.URL + `"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := principalconfig.Default()
	cfg.Identity.Socket = "unix:///nowhere"
	cfg.Kubernetes.Kubeconfig, cfg.Kubernetes.QPS, cfg.Kubernetes.Burst = path, 1e-6, 1 // one request, and no more
	base, err := start.New(t.Context(), start.Config{
		Program: "principal", Build: buildinfo.Info{}, Output: io.Discard, Log: cfg.Log, Tracing: cfg.Tracing, Kubernetes: cfg.Kubernetes,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close(t.Context())
	c, err := newHubCore(cfg, buildinfo.Info{}, base)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	key := stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: "shop"}
	if err := c.store.Delete(ctx, key, backends.Preconditions{}); !errors.Is(err, stream.ErrNotFound) {
		t.Fatalf("the first write fails with %v", err)
	}
	if err := c.store.Delete(ctx, key, backends.Preconditions{}); errors.Is(err, stream.ErrNotFound) || ctx.Err() != nil {
		t.Fatalf("the second write is not held back: %v", err)
	}
	if _, err := base.Dynamic.Resource(v1alpha1.AgentResource).Namespace("argocd").Get(ctx, "edge-1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an Agent is not read: %v", err)
	}
}

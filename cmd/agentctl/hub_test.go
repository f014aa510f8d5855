package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// fakeHub is a hub's API with one Agent, edge-1, and lists of other objects by their path. It
// notes what is written to the Agent.
type fakeHub struct {
	t     *testing.T
	lists map[string][]map[string]any // by the end of the path
	// denied are ends of paths that are forbidden.
	denied []string
	// table says that the Agent is served as a table, to who asks for one.
	table bool

	mu     sync.Mutex // guards what follows
	agent  map[string]any
	writes []string // method and body
}

func newFakeHub(t *testing.T, spec, meta, status map[string]any) (*fakeHub, string) {
	t.Helper()
	m := map[string]any{"name": "edge-1", "namespace": "argocd", "uid": "u", "resourceVersion": "7"}
	for k, v := range meta {
		m[k] = v
	}
	s := map[string]any{"mode": "managed", "identity": map[string]any{"spiffeIDs": []any{"spiffe://a/b"}}}
	for k, v := range spec {
		s[k] = v
	}
	h := &fakeHub{t: t, lists: map[string][]map[string]any{}, agent: map[string]any{
		"apiVersion": "argomesh.io/v1alpha1", "kind": "Agent", "metadata": m, "spec": s, "status": status,
	}}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return h, server.URL
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	reply := func(code int, v any) {
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(v); err != nil {
			h.t.Error(err)
		}
	}
	failure := func(code int, reason string) {
		reply(code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": reason, "details": map[string]any{"name": "x"}})
	}
	for _, end := range h.denied {
		if strings.HasSuffix(r.URL.Path, end) {
			failure(http.StatusForbidden, "Forbidden")
			return
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		h.t.Error(err)
	}
	if r.Method != http.MethodGet {
		h.writes = append(h.writes, r.Method+" "+string(body))
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/namespaces/argocd/agents/edge-1"):
		if h.agent == nil {
			failure(http.StatusNotFound, "NotFound")
			return
		}
		if r.Method == http.MethodPatch {
			h.patch(body)
		}
		if h.table && strings.Contains(r.Header.Get("Accept"), "as=Table") {
			reply(http.StatusOK, map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "Table", "columnDefinitions": []any{}, "rows": []any{}})
			return
		}
		reply(http.StatusOK, h.agent)
	case strings.HasSuffix(r.URL.Path, "/namespaces/argocd/agents") && r.Method == http.MethodPost:
		if h.agent != nil {
			failure(http.StatusConflict, "AlreadyExists")
			return
		}
		if err := json.Unmarshal(body, &h.agent); err != nil {
			h.t.Error(err)
		}
		reply(http.StatusCreated, h.agent)
	case r.Method == http.MethodGet:
		for end, items := range h.lists {
			if strings.HasSuffix(r.URL.Path, end) {
				reply(http.StatusOK, map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "List", "metadata": map[string]any{}, "items": items})
				return
			}
		}
		failure(http.StatusNotFound, "NotFound")
	default:
		h.t.Errorf("%s %s", r.Method, r.URL)
	}
}

// patch merges body into the Agent.
func (h *fakeHub) patch(body []byte) {
	old, err := json.Marshal(h.agent)
	if err != nil {
		h.t.Fatal(err)
	}
	merged, err := jsonpatch.MergePatch(old, body)
	if err != nil {
		h.t.Fatal(err)
	}
	h.agent = nil
	if err := json.Unmarshal(merged, &h.agent); err != nil {
		h.t.Fatal(err)
	}
}

// application is one whose destination is edge-1; with finalizers it is being deleted.
func application(name string, finalizers ...string) map[string]any {
	meta := map[string]any{"namespace": "edge-1", "name": name, "uid": "uid-" + name}
	if len(finalizers) > 0 {
		meta["deletionTimestamp"], meta["finalizers"] = "2026-11-23T06:00:00Z", finalizers
	}
	return map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": meta, "spec": map[string]any{"destination": map[string]any{"name": "edge-1"}}}
}

// applicationSet is one with a cluster generator of these matchLabels; nil for all clusters.
func applicationSet(name string, labels map[string]any, policy map[string]any) map[string]any {
	selector := map[string]any{}
	if labels != nil {
		selector["matchLabels"] = labels
	}
	return map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": map[string]any{"namespace": "argocd", "name": name},
		"spec": map[string]any{
			"generators": []any{map[string]any{"clusters": map[string]any{"selector": selector}}},
			"syncPolicy": policy, "template": map[string]any{"metadata": map[string]any{"name": "{{name}}-addons"}},
		},
	}
}

// talk runs a command line of a person at a terminal, who says what is said.
func talk(t *testing.T, said string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	var out, complaint strings.Builder
	err = run(t.Context(), args, cli.Streams{In: strings.NewReader(said), Out: &out, Err: &complaint, Interactive: true})
	return out.String(), complaint.String(), err
}

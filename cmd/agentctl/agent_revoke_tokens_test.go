package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The generation is raised by one on what was read, and again when someone was faster.
func TestRevokeTokens(t *testing.T) {
	agent := map[string]any{
		"apiVersion": "argomesh.io/v1alpha1", "kind": "Agent",
		"metadata": map[string]any{"name": "edge-1", "namespace": "argocd", "uid": "u", "resourceVersion": "7"},
		"spec":     map[string]any{"mode": "managed", "tokenGeneration": 3, "identity": map[string]any{"spiffeIDs": []any{"spiffe://a/b"}}},
	}
	var patches []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		reply := any(agent)
		if r.Method == http.MethodPatch {
			var patch json.RawMessage
			if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
				t.Error(err)
			}
			if patches = append(patches, string(patch)); len(patches) == 1 {
				w.WriteHeader(http.StatusConflict)
				reply = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409}
			}
		}
		if err := json.NewEncoder(w).Encode(reply); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(api.Close)
	out, _, err := agentctl(t, "agent", "revoke-tokens", "edge-1", "-n", "argocd", "--server", api.URL)
	if err != nil || !strings.Contains(out, "edge-1 tokens revoked") {
		t.Errorf("it prints %q, %v", out, err)
	}
	const want = `{"metadata":{"resourceVersion":"7","uid":"u"},"spec":{"tokenGeneration":4}}`
	if len(patches) != 2 || patches[0] != want || patches[1] != want {
		t.Errorf("patches are %q", patches)
	}
}

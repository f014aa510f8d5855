package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keepHub is a hub's API as far as letting go without workloads needs it: an Agent, and
// Applications of which it notes what is patched.
type keepHub struct {
	t    *testing.T
	mode string
	apps []map[string]any

	mu      sync.Mutex // guards patched
	patched []string   // namespace/name, uid and annotations
}

func (h *keepHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(v); err != nil {
			h.t.Error(err)
		}
	}
	switch parts := strings.Split(r.URL.Path, "/"); {
	case strings.HasSuffix(r.URL.Path, "/namespaces/argocd/agents/edge-1"):
		reply(http.StatusOK, map[string]any{
			"apiVersion": "argomesh.io/v1alpha1", "kind": "Agent", "metadata": map[string]any{"name": "edge-1", "namespace": "argocd"}, "spec": map[string]any{"mode": h.mode},
		})
	case r.Method == http.MethodGet && r.URL.Path == "/apis/argoproj.io/v1alpha1/applications":
		reply(http.StatusOK, map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationList", "metadata": map[string]any{}, "items": h.apps})
	case r.Method == http.MethodPatch && len(parts) == 8:
		var patch struct {
			Metadata struct {
				UID         string            `json:"uid"`
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			h.t.Error(err)
		}
		h.mu.Lock()
		h.patched = append(h.patched, parts[5]+"/"+parts[7]+" "+patch.Metadata.UID+" "+patch.Metadata.Annotations["argomesh.io/keep-workloads"])
		h.mu.Unlock()
		if parts[7] == "gone" {
			reply(http.StatusNotFound, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
			return
		}
		reply(http.StatusOK, h.apps[0])
	default:
		h.t.Errorf("%s %s", r.Method, r.URL)
	}
}

// add adds an Application; finalizers are empty for one that no one deletes.
func (h *keepHub) add(namespace, name string, destination map[string]any, finalizers ...string) {
	meta := map[string]any{"namespace": namespace, "name": name, "uid": "uid-" + name}
	if len(finalizers) > 0 {
		meta["deletionTimestamp"], meta["finalizers"] = "2026-11-23T06:00:00Z", finalizers
	}
	h.apps = append(h.apps, map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": meta, "spec": map[string]any{"destination": destination},
	})
}

func TestKeepWorkloads(t *testing.T) {
	const along = "resources-finalizer.argocd.argoproj.io"
	named, served := map[string]any{"name": "edge-1"}, map[string]any{"server": "https://proxy:9090/agents/edge-1/"}
	for name, test := range map[string]struct {
		mode  string
		args  []string
		want  []string // what is patched
		says  string
		fails bool
	}{
		"all":                               {args: []string{"--yes"}, says: "4 Applications let go", want: []string{"edge-1/gone uid-gone true", "edge-1/shop uid-shop true", "web/back uid-back true", "web/shop uid-shop true"}},
		"one":                               {args: []string{"web/shop", "--yes"}, says: "1 Application let go", want: []string{"web/shop uid-shop true"}},
		"one of a name that is there once":  {args: []string{"back", "--yes"}, says: "1 Application let go", want: []string{"web/back uid-back true"}},
		"one of a name that is there twice": {args: []string{"shop", "--yes"}, says: "say NAMESPACE/shop", fails: true},
		"one that nobody deletes":           {args: []string{"lives", "--yes"}, says: "No such Application"},
		"one that keeps them anyway":        {args: []string{"hook", "--yes"}, says: "No such Application"},
		"one of another agent":              {args: []string{"other", "--yes"}, says: "No such Application"},
		"nobody answers":                    {args: []string{"web/shop"}, says: "say --yes", fails: true},
		"two at once":                       {args: []string{"a", "b"}, says: "one Application at a time", fails: true},
		"of an autonomous agent":            {mode: "autonomous", args: []string{"--yes"}, says: "it is for mode managed", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := &keepHub{t: t, mode: test.mode}
			if h.mode == "" {
				h.mode = "managed"
			}
			h.add("edge-1", "shop", named, along)
			h.add("edge-1", "gone", named, along+"/background")
			h.add("edge-1", "lives", named)
			h.add("edge-1", "hook", named, "post-delete-finalizer.argocd.argoproj.io")
			h.add("web", "shop", served, along)
			h.add("web", "back", served, along, "example.com/other")
			h.add("web", "other", map[string]any{"name": "edge-2"}, along)
			server := httptest.NewServer(h)
			defer server.Close()
			out, note, err := agentctl(t, append([]string{"agent", "keep-workloads", "edge-1", "--wait=false", "--server", server.URL}, test.args...)...)
			out += note
			if (err != nil) != test.fails {
				t.Fatalf("it fails with %v\n%s", err, out)
			}
			if err != nil {
				out += err.Error()
			}
			if !strings.Contains(out, test.says) {
				t.Errorf("it says\n%s\nwant %q", out, test.says)
			}
			slices.Sort(h.patched)
			if diff := cmp.Diff(test.want, h.patched); diff != "" {
				t.Errorf("patched (-want +got):\n%s", diff)
			}
		})
	}
}

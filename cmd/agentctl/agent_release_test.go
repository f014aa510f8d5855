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
)

// releaseHub is a hub's API as far as a release needs it: Applications and AppProjects, of
// which it notes what is patched. There is no Agent.
type releaseHub struct {
	t       *testing.T
	objects map[string][]any // by the path of the list

	mu      sync.Mutex // guards patched
	patched []string   // path, uid and annotations
}

func (h *releaseHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/apis/argoproj.io/v1alpha1/")
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch items, is := h.objects[path]; {
	case r.Method == http.MethodGet && is:
		answer = map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "List", "metadata": map[string]any{}, "items": items}
	case r.Method == http.MethodPatch:
		var patch struct{ Metadata json.RawMessage }
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			h.t.Error(err)
		}
		h.mu.Lock()
		h.patched = append(h.patched, path+" "+string(patch.Metadata))
		h.mu.Unlock()
		answer = map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "x"}}
	default:
		h.t.Errorf("%s %s", r.Method, r.URL)
		return
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		h.t.Error(err)
	}
}

func TestReleaseMirrors(t *testing.T) {
	object := func(kind, namespace, name string, annotations map[string]any) any {
		return map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "metadata": map[string]any{
			"namespace": namespace, "name": name, "uid": "uid-" + name, "annotations": annotations,
		}}
	}
	of := func(agent string, more ...string) map[string]any {
		annotations := map[string]any{"argomesh.io/source": `{"agent":"` + agent + `"}`, "argocd.argoproj.io/source-uid": "u"}
		for _, key := range more {
			annotations[key] = "x"
		}
		return annotations
	}
	patched := func(path, uid string) string {
		return path + ` {"annotations":{"argomesh.io/released":"true"},"uid":"uid-` + uid + `"}`
	}
	shop, other := patched("namespaces/edge-2/applications/shop", "shop"), patched("namespaces/web/applications/shop", "shop")
	back, project := patched("namespaces/web/applications/back", "back"), patched("namespaces/argocd/appprojects/edge-2-default", "edge-2-default")
	for name, test := range map[string]struct {
		args  []string
		want  []string
		says  string
		fails bool
	}{
		"all":                               {args: []string{"edge-2", "--yes"}, says: "4 released", want: []string{project, shop, back, other}},
		"one":                               {args: []string{"edge-2", "web/shop", "--yes"}, says: "1 released", want: []string{other}},
		"one of a name that is there once":  {args: []string{"edge-2", "back", "--yes"}, says: "1 released", want: []string{back}},
		"one of a name that is there twice": {args: []string{"edge-2", "shop", "--yes"}, says: "say NAMESPACE/shop", fails: true},
		"one that was released":             {args: []string{"edge-2", "released", "--yes"}, says: "shows no such"},
		"a spoke's copy":                    {args: []string{"edge-2", "copy", "--yes"}, says: "shows no such"},
		"one of another agent":              {args: []string{"edge-2", "others", "--yes"}, says: "shows no such"},
		"nobody answers":                    {args: []string{"edge-2"}, says: "say --yes", fails: true},
		"of no agent":                       {args: []string{"edge-7", "--yes"}, says: "shows no such"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &releaseHub{t: t, objects: map[string][]any{
				"applications": {
					object("Application", "edge-2", "shop", of("edge-2")), object("Application", "web", "shop", of("edge-2")),
					object("Application", "web", "back", of("edge-2")), object("Application", "web", "others", of("edge-3")),
					object("Application", "web", "released", of("edge-2", "argomesh.io/released")),
					object("Application", "web", "copy", of("edge-2", "argocd.argoproj.io/principal-uid")),
					object("Application", "web", "own", nil),
				},
				"namespaces/argocd/appprojects": {object("AppProject", "argocd", "edge-2-default", of("edge-2")), object("AppProject", "argocd", "default", nil)},
			}}
			server := httptest.NewServer(h)
			defer server.Close()
			out, note, err := agentctl(t, append([]string{"agent", "release-mirrors", "--server", server.URL}, test.args...)...)
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

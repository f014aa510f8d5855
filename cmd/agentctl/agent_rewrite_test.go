package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rewriteHub is a hub's API as far as rewriting destinations needs it: one Agent, and
// Applications that are patched on their resourceVersion.
type rewriteHub struct {
	t    *testing.T
	mode string
	// meddle is called before a patch is looked at, as someone else who writes.
	meddle func(app map[string]any)

	mu   sync.Mutex // guards apps
	apps []map[string]any
}

// add adds an Application. told is what the principal told of it.
func (h *rewriteHub) add(namespace, name, told string, destination, meta map[string]any) {
	metadata := map[string]any{"namespace": namespace, "name": name, "uid": "uid-" + name, "resourceVersion": "1"}
	for key, value := range meta {
		metadata[key] = value
	}
	app := map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": metadata,
		"spec": map[string]any{"project": "default", "destination": destination},
	}
	if told != "" {
		app["status"] = map[string]any{"conditions": []any{map[string]any{"type": "ArgomeshError", "message": "not sent: (for all: " + told + " -n argocd)"}}}
	}
	h.apps = append(h.apps, app)
}

func (h *rewriteHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	reply := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(v); err != nil {
			h.t.Error(err)
		}
	}
	refuse := func(code int32, reason metav1.StatusReason) {
		reply(int(code), metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Code: code, Message: string(reason)})
	}
	const list = "/apis/argoproj.io/v1alpha1/applications"
	namespace, name := "", ""
	if parts := strings.Split(r.URL.Path, "/"); len(parts) == 8 {
		namespace, name = parts[5], parts[7]
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/namespaces/argocd/agents/edge-1"):
		reply(http.StatusOK, map[string]any{
			"apiVersion": "argomesh.io/v1alpha1", "kind": "Agent", "metadata": map[string]any{"name": "edge-1", "namespace": "argocd"}, "spec": map[string]any{"mode": h.mode},
		})
		return
	case r.URL.Path == list:
		reply(http.StatusOK, map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationList", "metadata": map[string]any{}, "items": h.apps})
		return
	}
	for _, app := range h.apps {
		meta := app["metadata"].(map[string]any)
		if meta["namespace"] != namespace || meta["name"] != name {
			continue
		}
		if r.Method == http.MethodPatch {
			if h.meddle != nil {
				h.meddle(app)
			}
			if meta["name"] == "" {
				break // it is gone
			}
			var patch map[string]any
			if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
				h.t.Error(err)
			}
			at := patch["metadata"].(map[string]any)
			if r.Header.Get("Content-Type") != "application/merge-patch+json" || at["resourceVersion"] != meta["resourceVersion"] || at["uid"] != meta["uid"] {
				refuse(http.StatusConflict, metav1.StatusReasonConflict)
				return
			}
			merge(app, patch)
			changed(app)
		}
		reply(http.StatusOK, app)
		return
	}
	refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
}

// merge applies a JSON merge patch (RFC 7396).
func merge(into, patch map[string]any) {
	for key, value := range patch {
		below, isMap := value.(map[string]any)
		have, there := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && there:
			merge(have, below)
		default:
			into[key] = value
		}
	}
}

// changed gives an Application its next resourceVersion.
func changed(app map[string]any) {
	meta := app["metadata"].(map[string]any)
	n, err := strconv.Atoi(fmt.Sprint(meta["resourceVersion"]))
	if err != nil {
		panic(err)
	}
	meta["resourceVersion"] = strconv.Itoa(n + 1)
}

type part = map[string]any

const toldOfEdge1 = "agentctl agent rewrite-destinations edge-1"

// newRewriteHub is a hub with one Application of each sort.
func newRewriteHub(t *testing.T) (hub *rewriteHub, server string) {
	t.Helper()
	h := &rewriteHub{t: t, mode: "managed"}
	query := func() part { return part{"server": "https://proxy:9090?agentName=edge-1", "namespace": "web"} }
	own := func() part { return part{"server": "https://kubernetes.default.svc", "namespace": "web"} }
	h.add("edge-1", "query", toldOfEdge1, query(), nil)
	h.add("edge-1", "own", toldOfEdge1, own(), nil)
	h.add("edge-1", "set", toldOfEdge1, query(), part{"ownerReferences": []any{part{"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": "sets", "uid": "u"}}})
	h.add("edge-1", "leaving", toldOfEdge1, query(), part{"deletionTimestamp": "2026-11-21T12:00:00Z"})
	h.add("edge-1", "good", "", part{"name": "edge-1"}, nil)
	h.add("elsewhere", "untold", "agentctl agent rewrite-destinations edge-10", query(), nil)
	h.add("elsewhere", "hubs", "", own(), nil) // what the hub deploys to itself
	h.add("edge-2", "other", "agentctl agent rewrite-destinations edge-2", part{"server": "https://proxy:9090?agentName=edge-2"}, nil)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return h, s.URL
}

func TestRewriteDestinations(t *testing.T) {
	rewritten := part{"name": "edge-1", "namespace": "web"}
	const header = "NAMESPACE   NAME      DESTINATION                           RESULT\n"
	rows := func(query, own string) string {
		return header +
			"edge-1      query     https://proxy:9090?agentName=edge-1   " + query + "\n" +
			"edge-1      own       https://kubernetes.default.svc        " + own + "\n" +
			"edge-1      set       https://proxy:9090?agentName=edge-1   not written: ApplicationSet sets makes it: change its template\n" +
			"edge-1      leaving   https://proxy:9090?agentName=edge-1   not written: it is being deleted\n" +
			"elsewhere   untold    https://proxy:9090?agentName=edge-1   not written: the principal does not say that it is the agent's (condition ArgomeshError)\n"
	}
	const needsFlag = "not written: it is the hub's own cluster: say --hub-has-no-controller if nothing on the hub deploys there"
	tests := map[string]struct {
		flags   string
		out     string
		wantErr string
		written []string
	}{
		"a dry run":                          {"--dry-run", rows("would be rewritten", needsFlag), "", nil},
		"a dry run, without a controller":    {"--dry-run --hub-has-no-controller", rows("would be rewritten", "would be rewritten"), "", nil},
		"without a person to ask":            {"", "", "there is no terminal to ask on: say --yes", nil},
		"the hub may have a controller":      {"--yes", rows("rewritten", needsFlag), `rewrite destinations of agent "edge-1": 4 Applications of 5 not written, for the reasons in the table`, []string{"query"}},
		"the hub has none, without a header": {"-y --hub-has-no-controller --no-headers", strings.TrimPrefix(rows("rewritten", "rewritten"), header), "3 Applications of 5 not written", []string{"query", "own"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h, server := newRewriteHub(t)
			want := h.destinations(t)
			for _, name := range test.written {
				want[name] = rewritten
			}
			out, _, err := agentctl(t, append(strings.Fields("agent rewrite-destinations edge-1 --server "+server), strings.Fields(test.flags)...)...)
			if test.wantErr == "" && err != nil || test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("error %v, want %q", err, test.wantErr)
			}
			if fold(out) != fold(test.out) {
				t.Errorf("output (-want +got):\n%s", cmp.Diff(test.out, out))
			}
			if diff := cmp.Diff(want, h.destinations(t)); diff != "" {
				t.Errorf("destinations (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRewriteMeetsOthers: what someone else writes between the look and the patch is
// neither lost nor undone.
func TestRewriteMeetsOthers(t *testing.T) {
	tests := map[string]struct {
		meddle func(app part)
		result string
		want   part // nil for gone
	}{
		"its status changes": {func(app part) { changed(app) }, "rewritten", part{"name": "edge-1", "namespace": "web"}},
		"somebody sends it elsewhere": {func(app part) {
			merge(app, part{"spec": part{"destination": part{"server": "https://elsewhere"}}})
			changed(app)
		}, "not written: it was changed meanwhile", part{"server": "https://elsewhere", "namespace": "web"}},
		"somebody makes it anew": {func(app part) {
			merge(app, part{"metadata": part{"uid": "another"}})
			changed(app)
		}, "not written: it was changed meanwhile", part{"server": "https://proxy:9090?agentName=edge-1", "namespace": "web"}},
		"somebody deletes it": {func(app part) {
			merge(app, part{"metadata": part{"name": ""}})
		}, "not written: it was deleted meanwhile", nil},
		"it begins to be deleted": {func(app part) {
			merge(app, part{"metadata": part{"deletionTimestamp": "2026-11-21T12:00:00Z"}})
			changed(app)
		}, "not written: it is being deleted", part{"server": "https://proxy:9090?agentName=edge-1", "namespace": "web"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h, server := newRewriteHub(t)
			h.apps = h.apps[:1]
			met := false
			h.meddle = func(app map[string]any) {
				if !met {
					met = true
					test.meddle(app)
				}
			}
			out, _, err := agentctl(t, "agent", "rewrite-destinations", "edge-1", "--server", server, "-y", "--no-headers")
			if (err == nil) != (test.result == "rewritten") {
				t.Errorf("error %v", err)
			}
			if !met || !strings.HasSuffix(strings.TrimSpace(out), test.result) {
				t.Errorf("output %q, want the result %q", out, test.result)
			}
			got, _ := h.destinations(t)["query"].(map[string]any)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("destination (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRewriteHasNothingToDo(t *testing.T) {
	h, server := newRewriteHub(t)
	h.apps = nil
	_, note, err := agentctl(t, "agent", "rewrite-destinations", "edge-1", "--server", server)
	if err != nil || note != "No Application names agent edge-1 as argocd-agent does.\n" {
		t.Errorf("it says %q, %v", note, err)
	}
	h.mode = "autonomous"
	if _, _, err := agentctl(t, "agent", "rewrite-destinations", "edge-1", "--server", server); err == nil || !strings.Contains(err.Error(), "it is for mode managed") {
		t.Errorf("of an autonomous agent: %v", err)
	}
}

// destinations are the destinations of this moment.
func (h *rewriteHub) destinations(t *testing.T) map[string]any {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	all := part{}
	for _, app := range h.apps {
		name, _ := app["metadata"].(part)["name"].(string)
		all[name] = app["spec"].(part)["destination"]
	}
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var out part // a copy
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// fold makes columns of any width the same.
func fold(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	return strings.Join(lines, "\n")
}

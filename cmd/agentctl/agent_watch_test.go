package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// watchHub serves a table of Agents, and the events of each watch in turn; the last watch
// stays open.
type watchHub struct {
	mu      sync.Mutex // guards what follows
	lists   []string   // rows of each list, the last one again and again
	watches []string   // events of each watch
}

const (
	watchColumns = `"columnDefinitions":[{"name":"Name","type":"string"},{"name":"Status","type":"string"},{"name":"Since","type":"date"}]`
	watchHead    = `"apiVersion":"meta.k8s.io/v1","kind":"Table","metadata":{"resourceVersion":"7"}`
)

// watchRow is the row of an Agent.
func watchRow(name, status, since string) string {
	return fmt.Sprintf(`{"cells":[%q,%q,%q],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"namespace":"argocd","name":%q}}}`, name, status, since, name)
}

// watchEvent is one event. Only the first of a watch has the columns.
func watchEvent(kind, row string, first bool) string {
	columns := `"columnDefinitions":null`
	if first {
		columns = watchColumns
	}
	return fmt.Sprintf(`{"type":%q,"object":{%s,%s,"rows":[%s]}}`+"\n", kind, watchHead, columns, row)
}

func (h *watchHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	next := func(of *[]string) (text string, more bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(*of) == 0 {
			return "", false
		}
		text = (*of)[0]
		if len(*of) > 1 || of == &h.watches {
			*of = (*of)[1:]
		}
		return text, true
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case !strings.HasPrefix(r.URL.Path, "/apis/argomesh.io/v1alpha1/namespaces/argocd/agents"):
		w.WriteHeader(http.StatusNotFound)
	case r.URL.Query().Get("watch") == "true":
		events, more := next(&h.watches)
		_, _ = fmt.Fprint(w, events)
		_ = http.NewResponseController(w).Flush()
		if !more {
			<-r.Context().Done()
		}
	case strings.HasSuffix(r.URL.Path, "/agents"):
		rows, _ := next(&h.lists)
		_, _ = fmt.Fprintf(w, "{%s,%s,\"rows\":[%s]}", watchHead, watchColumns, rows)
	case strings.HasSuffix(r.URL.Path, "/edge-1"):
		_, _ = fmt.Fprint(w, `{"apiVersion":"argomesh.io/v1alpha1","kind":"Agent","metadata":{"name":"edge-1","namespace":"argocd"}}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": http.StatusNotFound,
			"details": map[string]any{"name": "edge-9", "group": "argomesh.io", "kind": "agents"}})
	}
}

// lineWriter tells of what is written to it.
type lineWriter struct {
	mu      sync.Mutex // guards text
	text    strings.Builder
	written chan struct{}
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.written <- struct{}{}:
	default:
	}
	return w.text.Write(p)
}

func (w *lineWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// Each agent has a line when it changes in more than its age, also in what was not seen as an
// event; what goes is told, and nothing is said twice.
func TestWatch(t *testing.T) {
	for name, tt := range map[string]struct{ args, out, err string }{
		"all": {
			"list --watch",
			"NAME STATUS SINCE; edge-1 Connected 1m; edge-2 Never connected 1m; edge-1 Away 1s; edge-3 Connected 0s; edge-1 Connected 9s; ",
			"Agent argocd/edge-2 is deleted.; Agent argocd/edge-3 is deleted.; ",
		},
		"one": {"get edge-1 -w", "NAME STATUS SINCE; edge-1 Connected 1m; edge-1 Away 1s; edge-1 Connected 9s; ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(&watchHub{
				lists: []string{watchRow("edge-1", "Connected", "1m") + "," + watchRow("edge-2", "Never connected", "1m"), watchRow("edge-1", "Connected", "9s")},
				watches: []string{
					watchEvent("MODIFIED", watchRow("edge-1", "Connected", "2m"), true) + watchEvent("MODIFIED", watchRow("edge-1", "Away", "1s"), false) +
						watchEvent("DELETED", watchRow("edge-2", "Never connected", "2m"), false) + watchEvent("ADDED", watchRow("edge-3", "Connected", "0s"), false),
					`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}` + "\n",
				},
			})
			defer server.Close()
			t.Setenv("HOME", t.TempDir())
			t.Setenv("KUBECONFIG", "")
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			ctx, cancel := context.WithCancel(t.Context())
			out, complaint := &lineWriter{written: make(chan struct{}, 1)}, &lineWriter{written: make(chan struct{}, 1)}
			ended := make(chan error, 1)
			go func() {
				ended <- run(ctx, append([]string{"agent", "--server", server.URL, "--namespace", "argocd"}, strings.Fields(tt.args)...), cli.Streams{In: strings.NewReader(""), Out: out, Err: complaint})
			}()
			words := func(w *lineWriter) string {
				var all strings.Builder
				for line := range strings.Lines(w.String()) {
					all.WriteString(strings.Join(strings.Fields(line), " ") + "; ")
				}
				return all.String()
			}
			late := time.After(30 * time.Second)
			for words(out) != tt.out || words(complaint) != tt.err {
				select {
				case <-out.written:
				case <-complaint.written:
				case err := <-ended:
					t.Fatalf("it ends with %v", err)
				case <-late:
					t.Fatalf("it prints\n%s\n%s\nwant\n%s\n%s", words(out), words(complaint), tt.out, tt.err)
				}
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("interrupted it ends with %v", err)
			}
		})
	}
}

func TestWatchRefuses(t *testing.T) {
	server := httptest.NewServer(&watchHub{})
	defer server.Close()
	for args, want := range map[string]string{
		"list -w -o json":         "--watch prints a table",
		"list -w --unknown":       "--unknown and --watch",
		"get -w edge-1 -o yaml":   "--watch prints a table",
		"get -w edge-1 edge-9":    `get agent "edge-9": not found`,
		"list -w --namespace not": "list agents: ",
	} {
		_, _, err := agentctl(t, append([]string{"agent", "--server", server.URL, "--namespace", "argocd"}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("agent %s ends with %v, want %q", args, err, want)
		}
	}
}

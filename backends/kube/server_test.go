package kube_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

// apiServer answers lists and watches of Applications as a script of the test
// wants it. Its zero value serves nothing yet; see newAPIServer.
type apiServer struct {
	*httptest.Server

	mu       sync.Mutex // guards what follows
	revision int
	objects  map[string]map[string]any // by name
	watches  map[chan map[string]any]bool
	history  []change // for watches that begin after it
	requests []string // path?query of lists and watches
	noStream bool     // refuse lists by watch
	fail     func(http.ResponseWriter, *http.Request) bool
}

type change struct {
	revision int
	event    map[string]any
}

func newAPIServer(t testing.TB) *apiServer {
	a := &apiServer{objects: map[string]map[string]any{}, watches: map[chan map[string]any]bool{}, revision: 100}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

func (a *apiServer) failWith(fail func(http.ResponseWriter, *http.Request) bool) {
	a.fails(fail)
	a.CloseClientConnections()
}

// fails is failWith that leaves the connections as they are.
func (a *apiServer) fails(fail func(http.ResponseWriter, *http.Request) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail = fail
}

func status(code int, body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		if strings.HasPrefix(body, "{") {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body)) // the client may be gone
		return true
	}
}

// put makes or changes an object at the next revision.
func (a *apiServer) put(name string) { a.putAt(name, 0) }

func (a *apiServer) putAt(name string, revision int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revision++
	if revision == 0 {
		revision = a.revision
	}
	kind := "MODIFIED"
	if a.objects[name] == nil {
		kind = "ADDED"
	}
	a.objects[name] = app(name, revision)
	a.send(kind, a.objects[name])
}

func (a *apiServer) remove(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revision++
	delete(a.objects, name)
	a.send("DELETED", app(name, a.revision))
}

// send is called with mu locked.
func (a *apiServer) send(kind string, object map[string]any) {
	event := map[string]any{"type": kind, "object": object}
	a.history = append(a.history, change{a.revision, event})
	for w := range a.watches {
		w <- event
	}
}

// event sends what is not true to the watches, as it is.
func (a *apiServer) event(kind string, object map[string]any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.send(kind, object)
}

// restore replaces everything, as a backup does.
func (a *apiServer) restore(revision int, objects ...map[string]any) {
	a.mu.Lock()
	a.revision = revision
	a.history = nil
	clear(a.objects)
	for _, o := range objects {
		a.objects[o["metadata"].(map[string]any)["name"].(string)] = o
	}
	a.mu.Unlock()
	a.event("ERROR", map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410})
	a.mu.Lock()
	a.history = nil
	a.mu.Unlock()
}

// breakWatches breaks the connections of the watches in the midst of what they say.
func (a *apiServer) breakWatches() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for w := range a.watches {
		w <- nil
	}
}

// breakOff breaks a connection in another way than by its end: the client cannot read on.
func breakOff(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_, _ = conn.Write([]byte("broken\r\n")) // the client may be gone
		_ = conn.Close()
	}
}

func (a *apiServer) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

func app(name string, revision int) map[string]any {
	return map[string]any{
		"apiVersion": "argoproj.io/v1alpha1",
		"kind":       "Application",
		"metadata": map[string]any{
			"name": name, "namespace": "argocd", "uid": "uid-" + name, "resourceVersion": strconv.Itoa(revision),
			"managedFields": []any{map[string]any{"manager": "someone"}},
		},
		"spec": map[string]any{"project": "default"},
	}
}

func (a *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	fail := a.fail
	a.mu.Unlock()
	if fail != nil && fail(w, r) {
		return
	}
	a.mu.Lock()
	a.requests = append(a.requests, r.URL.String())
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") == "true" {
		a.watch(w, r)
		return
	}
	a.list(w, r)
}

// list serves pages; the token of a page is where it starts.
func (a *apiServer) list(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for name := range a.objects {
		names = append(names, name)
	}
	slices.Sort(names)
	from, _ := strconv.Atoi(r.URL.Query().Get("continue")) // zero at first
	to := len(names)
	metadata := map[string]any{"resourceVersion": strconv.Itoa(a.revision)}
	if limit, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && from+limit < to {
		to = from + limit
		metadata["continue"] = strconv.Itoa(to)
	}
	items := []any{}
	for _, name := range names[from:to] {
		items = append(items, a.objects[name])
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationList", "metadata": metadata, "items": items,
	}) // the client may be gone
}

func (a *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	streamed := r.URL.Query().Get("sendInitialEvents") == "true"
	events := make(chan map[string]any, 1000)
	a.mu.Lock()
	if streamed && a.noStream {
		a.mu.Unlock()
		status(422, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)(w, r)
		return
	}
	if streamed {
		for _, object := range a.objects {
			events <- map[string]any{"type": "ADDED", "object": object}
		}
		events <- map[string]any{"type": "BOOKMARK", "object": map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
			"metadata": map[string]any{
				"resourceVersion": strconv.Itoa(a.revision),
				"annotations":     map[string]any{"k8s.io/initial-events-end": "true"},
			},
		}}
	}
	if from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion")); err == nil && !streamed {
		for _, c := range a.history {
			if c.revision > from {
				events <- c.event
			}
		}
	}
	a.watches[events] = true
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.watches, events)
		a.mu.Unlock()
	}()
	flusher := w.(http.Flusher)
	flusher.Flush()
	encoder := json.NewEncoder(w)
	for {
		select {
		case event := <-events:
			if event == nil {
				breakOff(w)
				return
			}
			if encoder.Encode(event) != nil {
				return
			}
			flusher.Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// running is a Store that runs, with what it logs and counts.
type running struct {
	*kube.Store
	t       testing.TB
	log     *kit.Log
	metrics *prometheus.Registry
	stop    func() // ends Run
}

func start(t testing.TB, url string) *running {
	t.Helper()
	r := &running{t: t, log: kit.NewLog(), metrics: prometheus.NewRegistry()}
	r.log.Show(t)
	r.Store = newStore(t, url, kube.Config{
		Watch:   map[stream.Kind][]string{stream.Application: {"argocd"}},
		Metrics: r.metrics,
		Log:     r.log.Logger(),
	})
	r.stop = kit.Background(t, r.Run)
	return r
}

func newStore(t testing.TB, url string, cfg kube.Config) *kube.Store {
	t.Helper()
	client, err := dynamic.NewForConfig(&rest.Config{Host: url, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Client = client
	store, err := kube.New(cfg)
	if err != nil {
		t.Fatalf("New(): %v", err)
	}
	return store
}

func waitSynced(t testing.TB, s *kube.Store) {
	t.Helper()
	select {
	case <-s.Synced():
	case <-kit.Context(t).Done():
		t.Fatal("not synced")
	}
}

func (r *running) waitSynced() {
	r.t.Helper()
	waitSynced(r.t, r.Store)
}

// shows waits until the cache holds these: name@resourceVersion.
func (r *running) shows(want ...string) {
	r.t.Helper()
	kit.EventuallyNil(r.t, fmt.Sprintf("cache to show %v", want), func() error {
		if got := r.names(); !slices.Equal(got, want) {
			return fmt.Errorf("it shows %v", got)
		}
		return nil
	})
}

func (r *running) names() []string {
	var names []string
	for _, object := range r.List(stream.Application, "") {
		names = append(names, object.Key.Name+"@"+object.ResourceVersion)
	}
	slices.Sort(names)
	return names
}

// metric is the sum of the values of a gauge or counter over its labels.
func (r *running) metric(name string) float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func key(name string) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Application, Namespace: "argocd", Name: name}
}

var _ backends.Store = (*running)(nil)

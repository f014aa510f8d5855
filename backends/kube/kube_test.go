package kube_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

func TestNewNamesEveryProblem(t *testing.T) {
	client, err := dynamic.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	ok := map[stream.Kind][]string{stream.Application: nil}
	tests := map[string]struct {
		cfg  kube.Config
		want []string
	}{
		"nothing given":   {kube.Config{}, []string{"no client", "no registerer", "no kind"}},
		"an unknown kind": {kube.Config{Client: client, Watch: map[stream.Kind][]string{"Pod": nil}, Metrics: prometheus.NewRegistry()}, []string{`kind "Pod"`}},
		"bad namespaces": {
			kube.Config{Client: client, Watch: map[stream.Kind][]string{stream.Application: {"A b", "", "x", "x"}}, Metrics: prometheus.NewRegistry()},
			[]string{`namespace "A b"`, `namespace ""`, `"x" of Application is given twice`},
		},
		"bad selectors": {
			kube.Config{Client: client, Watch: map[stream.Kind][]string{stream.Secret: nil, stream.ConfigMap: nil, stream.Application: nil},
				Only: map[stream.Kind][]backends.Selector{
					stream.AppProject: {{Name: "x"}}, stream.Secret: {{Labels: "a b"}}, stream.ConfigMap: {{Name: "x"}, {Labels: "a"}, {}},
					stream.Application: {},
				}, Metrics: prometheus.NewRegistry()},
			[]string{"AppProject is selected, but not watched", "label selector of Secret", "ConfigMap may name the same object",
				"ConfigMap has not exactly one", "no selector of Application"},
		},
		"a negative timeout": {kube.Config{Client: client, Watch: ok, Metrics: prometheus.NewRegistry(), Timeout: -1}, []string{"timeout"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := kube.New(test.cfg)
			if err == nil {
				t.Fatal("New() = nil")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("New() = %q, lacks %q", err, want)
				}
			}
		})
	}
	registry := prometheus.NewRegistry()
	if _, err := kube.New(kube.Config{Client: client, Watch: ok, Metrics: registry}); err != nil {
		t.Fatalf("New(): %v", err)
	}
	if _, err := kube.New(kube.Config{Client: client, Watch: ok, Metrics: registry}); err == nil {
		t.Error("New() took a registerer that has the metrics of another Store")
	}
}

func TestCacheFollows(t *testing.T) {
	for name, noStream := range map[string]bool{"a server that streams lists": false, "a server that does not": true} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			server.noStream = noStream
			server.put("a")
			server.put("b")
			s := start(t, server.URL)
			s.waitSynced()
			s.shows("a@101", "b@102")
			server.put("a")
			server.put("c")
			s.shows("a@103", "b@102", "c@104")
			server.remove("b")
			s.shows("a@103", "c@104")
			if got, want := s.metric("argomesh_store_objects"), 2.0; got != want {
				t.Errorf("argomesh_store_objects = %v, want %v", got, want)
			}
			want := 0
			for _, object := range s.List(stream.Application, "argocd") {
				want += len(object.Raw)
				if bytes.Contains(object.Raw, []byte("managedFields")) {
					t.Errorf("cached %s", object.Raw)
				}
			}
			if got := s.metric("argomesh_store_object_bytes"); got != float64(want) {
				t.Errorf("argomesh_store_object_bytes = %v, want %d", got, want)
			}
			if got := s.log.String(); got != "" {
				t.Errorf("logged %s", got)
			}
		})
	}
}

// Anyone who waits for Synced looks at all that there is. Of the first list nothing is told
// after that, or he would look at each object twice.
func TestFirstListIsToldBeforeSynced(t *testing.T) {
	server := newAPIServer(t)
	for n := range 250 {
		server.put(fmt.Sprintf("app-%03d", n))
	}
	store := newStore(t, server.URL, kube.Config{
		Watch: map[stream.Kind][]string{stream.Application: {"argocd"}}, Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
	})
	var told, late atomic.Int64
	store.Subscribe(func(stream.ResourceKey) {
		told.Add(1)
		select {
		case <-store.Synced():
			late.Add(1)
		default:
		}
	})
	stop := kit.Background(t, store.Run)
	waitSynced(t, store)
	if told.Load() != 250 {
		t.Errorf("when it was synced, %d of 250 had been told", told.Load())
	}
	stop()
	if n := late.Load(); n > 0 {
		t.Errorf("%d were told late", n)
	}
}

func TestCachedBytesAreDeterministic(t *testing.T) {
	server := newAPIServer(t)
	server.put("a")
	first, second := start(t, server.URL), start(t, server.URL)
	first.waitSynced()
	second.waitSynced()
	a, _ := first.Get(key("a"))
	b, _ := second.Get(key("a"))
	want := backends.Object{
		Key: key("a"), UID: "uid-a", ResourceVersion: "101",
		Raw:     []byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"a","namespace":"argocd","resourceVersion":"101","uid":"uid-a"},"spec":{"project":"default"}}`),
		Managed: 42,
	}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Errorf("Get() (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("two stores differ (-first +second):\n%s", diff)
	}
}

func TestListsAreConsistentAndPaged(t *testing.T) {
	server := newAPIServer(t)
	server.noStream = true
	for n := range 250 {
		server.put(fmt.Sprintf("app-%03d", n))
	}
	s := start(t, server.URL)
	s.waitSynced()
	if got := len(s.List(stream.Application, "")); got != 250 {
		t.Errorf("List() has %d objects, want 250", got)
	}
	if pages := server.consistentLists(t); pages != 3 {
		t.Errorf("%d pages, want 3: %v", pages, server.seen())
	}
}

// consistentLists checks the lists so far and returns how many pages they took.
func (a *apiServer) consistentLists(t *testing.T) (pages int) {
	t.Helper()
	for _, request := range a.seen() {
		parsed, err := url.Parse(request)
		if err != nil {
			t.Fatal(err)
		}
		query := parsed.Query()
		if query.Get("watch") == "" && query.Get("limit") == "1" {
			continue // reflector.Continues asks where the API server stands, once a watch has begun
		}
		page, streamed := query.Get("watch") == "", query.Get("sendInitialEvents") == "true"
		if page {
			pages++
			if query.Get("limit") != "100" {
				t.Errorf("page without limit: %s", request)
			}
		}
		if (page || streamed) && query.Get("resourceVersion") != "" {
			t.Errorf("a list that need not be consistent: %s", request)
		}
	}
	return pages
}

func TestCacheIgnoresOlderEvents(t *testing.T) {
	server := newAPIServer(t)
	server.put("a")
	s := start(t, server.URL)
	s.waitSynced()
	server.put("a")
	s.shows("a@102")
	var mu sync.Mutex
	told := map[string]int{}
	s.Subscribe(func(key stream.ResourceKey) {
		mu.Lock()
		defer mu.Unlock()
		told[key.Name]++
	})
	server.event("MODIFIED", app("a", 101))
	server.event("MODIFIED", app("a", 102))
	server.event("DELETED", app("a", 101))
	server.put("b") // comes after them
	s.shows("a@102", "b@103")
	// The cache shows a change before its subscribers are told.
	kit.Eventually(t, "the call for b", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return told["b"] > 0
	})
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 1}, told); diff != "" {
		t.Errorf("calls, one of them at Subscribe() (-want +got):\n%s", diff)
	}
}

func TestRelistTellsWhatItChanges(t *testing.T) {
	server := newAPIServer(t)
	for _, name := range []string{"changes", "goes", "stays"} {
		server.put(name)
	}
	s := start(t, server.URL)
	s.waitSynced()
	var mu sync.Mutex
	told := map[string]int{}
	cancel := s.Subscribe(func(key stream.ResourceKey) {
		mu.Lock()
		defer mu.Unlock()
		told[key.Name]++
	})
	defer cancel()
	server.restore(110, app("changes", 105), app("comes", 106), app("stays", 103))
	s.shows("changes@105", "comes@106", "stays@103")
	kit.Eventually(t, "all calls", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return cmp.Equal(told, map[string]int{"changes": 2, "goes": 2, "stays": 1, "comes": 1})
	})
	if got := s.metric("argomesh_store_expired_watches_total"); got != 1 {
		t.Errorf("argomesh_store_expired_watches_total = %v, want 1", got)
	}
	if got := s.metric("argomesh_store_history_breaks_total"); got != 0 {
		t.Errorf("argomesh_store_history_breaks_total = %v, want 0", got)
	}
	if got, want := s.metric("argomesh_store_objects"), 3.0; got != want {
		t.Errorf("argomesh_store_objects = %v, want %v", got, want)
	}
}

func TestCacheFollowsARestoredServer(t *testing.T) {
	tests := map[string]struct {
		revision int
		older    map[string]any
	}{
		"to an earlier revision":             {50, app("a", 41)},
		"whose revision moved past the last": {500, app("a", 41)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			server.put("a")
			s := start(t, server.URL)
			s.waitSynced()
			s.shows("a@101")
			server.restore(test.revision, test.older)
			s.shows("a@41")
			kit.Eventually(t, "a warning", func() bool { return len(s.log.Find("message", "went back in time")) == 1 })
			if got := s.metric("argomesh_store_history_breaks_total"); got != 1 {
				t.Errorf("argomesh_store_history_breaks_total = %v, want 1", got)
			}
			server.consistentLists(t)
		})
	}
}

// counting fails every request and says so.
func counting(fail func(http.ResponseWriter, *http.Request) bool) (counted func(http.ResponseWriter, *http.Request) bool, attempts chan struct{}) {
	attempts = make(chan struct{}, 1000)
	return func(w http.ResponseWriter, r *http.Request) bool {
		attempts <- struct{}{}
		return fail(w, r)
	}, attempts
}

func await(t *testing.T, attempts chan struct{}, n int) {
	t.Helper()
	limit := time.NewTimer(kit.Patience)
	defer limit.Stop()
	for range n {
		select {
		case <-attempts:
		case <-limit.C:
			t.Fatalf("not within %s: %d more attempts", kit.Patience, n)
		}
	}
}

func TestServerAwayAtStart(t *testing.T) {
	server := newAPIServer(t)
	fail, attempts := counting(status(http.StatusServiceUnavailable, "starting"))
	server.failWith(fail)
	s := start(t, server.URL)
	await(t, attempts, 6)
	if got := s.metric("argomesh_store_failing_informers"); got != 1 {
		t.Errorf("argomesh_store_failing_informers = %v, want 1", got)
	}
	if got := s.metric("argomesh_store_informer_failures_total"); got < 2 {
		t.Errorf("argomesh_store_informer_failures_total = %v, want one per attempt", got)
	}
	select {
	case <-s.Synced():
		t.Error("synced without a server")
	default:
	}
	server.put("a")
	server.failWith(nil)
	s.waitSynced()
	s.shows("a@101")
	s.wantOutage(1)
}

// wantOutage checks that the log tells of outages once each, all over now.
func (r *running) wantOutage(n int) {
	r.t.Helper()
	kit.Eventually(r.t, "a line that the server is back", func() bool { return len(r.log.Find("message", "API server is back")) == n })
	if got := len(r.log.Find("message", "API server is unreachable")); got != n {
		r.t.Errorf("%d lines of %d outages", got, n)
	}
	if got := r.metric("argomesh_store_failing_informers"); got != 0 {
		r.t.Errorf("argomesh_store_failing_informers = %v, want 0", got)
	}
}

func TestServerGoesAndReturns(t *testing.T) {
	server := newAPIServer(t)
	server.put("a")
	server.put("b")
	s := start(t, server.URL)
	s.waitSynced()
	s.shows("a@101", "b@102")
	fail, attempts := counting(status(http.StatusInternalServerError, "etcd is away"))
	server.failWith(fail)
	await(t, attempts, 5)
	s.shows("a@101", "b@102") // what was known stays
	if _, err := s.Read(t.Context(), key("a")); !errors.Is(err, stream.ErrUnavailable) {
		t.Errorf("Read() = %v, want %v", err, stream.ErrUnavailable)
	}
	server.put("a")
	server.remove("b")
	server.failWith(nil)
	s.shows("a@103")
	s.wantOutage(1)
}

func TestRunEndsDuringAnOutage(t *testing.T) {
	for name, noStream := range map[string]bool{"while it lists": false, "while it watches": true} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			s := start(t, server.URL)
			if noStream {
				s.waitSynced()
			}
			fail, attempts := counting(status(http.StatusTooManyRequests, "busy"))
			server.failWith(fail)
			await(t, attempts, 3)
			s.stop()
		})
	}
}

func TestMissingDefinition(t *testing.T) {
	server := newAPIServer(t)
	fail, attempts := counting(status(http.StatusNotFound, "404 page not found\n"))
	server.failWith(fail)
	s := start(t, server.URL)
	await(t, attempts, 6)
	if got := len(s.log.Find("crd", "applications.argoproj.io")); got != 1 {
		t.Errorf("%d lines name the definition, want 1", got)
	}
	for name, err := range map[string]error{
		"Read()":   second(s.Read(t.Context(), key("a"))),
		"Update()": second(s.Update(t.Context(), backends.Object{Key: key("a"), UID: "x", ResourceVersion: "1"}, content("a"))),
		"Delete()": s.Delete(t.Context(), key("a"), backends.Preconditions{}),
		"Create()": second(s.Create(t.Context(), key("a"), content("a"))),
	} {
		// Nothing may conclude from it that the object is not there.
		if !errors.Is(err, stream.ErrUnavailable) || errors.Is(err, stream.ErrNotFound) {
			t.Errorf("%s = %v, want %v", name, err, stream.ErrUnavailable)
		}
	}
	server.failWith(nil)
	s.waitSynced()
	kit.Eventually(t, "a line that it recovered", func() bool { return len(s.log.Find("message", "informer recovered")) == 1 })
}

func TestForbidden(t *testing.T) {
	server := newAPIServer(t)
	fail, attempts := counting(status(http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
	server.failWith(fail)
	s := start(t, server.URL)
	await(t, attempts, 6)
	if got := len(s.log.Find("cure", "grant list and watch on applications.argoproj.io")); got != 1 {
		t.Errorf("%d lines name the cure, want 1", got)
	}
	server.failWith(nil)
	s.waitSynced()
}

func TestSilentServer(t *testing.T) {
	server := newAPIServer(t)
	silent := func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return true
	}
	fail, attempts := counting(silent)
	server.failWith(fail)
	s := newStore(t, server.URL, kube.Config{
		Watch:   map[stream.Kind][]string{stream.Application: nil},
		Metrics: prometheus.NewRegistry(),
		Timeout: 50 * time.Millisecond,
	})
	_, err := s.Read(t.Context(), key("a"))
	if !errors.Is(err, stream.ErrUnavailable) {
		t.Errorf("Read() = %v, want %v", err, stream.ErrUnavailable)
	}
	kit.Background(t, s.Run)
	await(t, attempts, 3) // the read, a watch that gave up, a list
}

func second[T any](_ T, err error) error { return err }

func content(name string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":"argocd","name":%q},"spec":{}}`, name)
}

// What a list shows no more may have been lost: no one says that it was deleted.
func TestDeletionsAreThoseOfTheWatch(t *testing.T) {
	server := newAPIServer(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		server.put(name)
	}
	s := start(t, server.URL)
	s.waitSynced()
	seen := make(chan string, 10)
	s.Deletions(func(d backends.Deletion) {
		seen <- fmt.Sprint(d.Last.Key.Name, " of ", d.Last.ResourceVersion, " at ", d.Revision)
	})
	server.remove("a")
	s.shows("b@102", "c@103", "d@104")
	server.restore(110, app("c", 103), app("d", 104)) // a gap, in which b went
	s.shows("c@103", "d@104")
	server.remove("d")
	s.shows("c@103")
	got := []string{<-seen, <-seen} // an object may be gone from the cache a moment before it is told
	if diff := cmp.Diff([]string{"a of 101 at 105", "d of 104 at 111"}, got); diff != "" || len(seen) > 0 {
		t.Errorf("deletions (-want +got):\n%s", diff)
	}
}

// A connection that breaks is no reason to list: the API server still knows who was deleted
// since, and a list does not tell.
func TestDeletionsAreSeenWhenAConnectionBreaks(t *testing.T) {
	server := newAPIServer(t)
	for _, name := range []string{"a", "b", "c"} {
		server.put(name)
	}
	s := start(t, server.URL)
	s.waitSynced()
	seen := make(chan string, 10)
	s.Deletions(func(d backends.Deletion) {
		seen <- fmt.Sprint(d.Last.Key.Name, " of ", d.Last.ResourceVersion, " at ", d.Revision)
	})
	server.remove("a") // a reflector lists after a watch that told of nothing
	s.shows("b@102", "c@103")
	fail, attempts := counting(status(http.StatusServiceUnavailable, "starting"))
	server.fails(fail)
	server.breakWatches()
	await(t, attempts, 3)
	server.remove("b")
	server.fails(nil)
	s.shows("c@103")
	got := []string{<-seen, <-seen} // an object may be gone from the cache a moment before it is told
	if diff := cmp.Diff([]string{"a of 101 at 104", "b of 102 at 105"}, got); diff != "" || len(seen) > 0 {
		t.Errorf("deletions (-want +got):\n%s", diff)
	}
	if got := s.metric("argomesh_store_expired_watches_total"); got != 0 {
		t.Errorf("argomesh_store_expired_watches_total = %v, want 0", got)
	}
	s.wantOutage(1)
}

// A list that is streamed and breaks off is followed by one in pages: behind a proxy that lets
// no long answer come to its end it would be streamed again and again.
func TestAStreamedListThatBreaksOff(t *testing.T) {
	for name, end := range map[string]func(http.ResponseWriter){
		"it breaks": breakOff,
		"it ends":   func(http.ResponseWriter) {},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			server.put("a")
			server.fails(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Get("sendInitialEvents") != "true" {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": app("a", 101)}) // the client may be gone
				_ = http.NewResponseController(w).Flush()
				end(w)
				return true
			})
			s := start(t, server.URL)
			s.waitSynced()
			server.put("b")
			s.shows("a@101", "b@102")
		})
	}
}

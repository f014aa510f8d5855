package resource_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/proxies/resource"
	"github.com/argomesh/argomesh/proxies/resource/spoke"
	"github.com/argomesh/argomesh/stream"
)

// discovery answers every path with itself, long ones in gzip.
func discovery(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json;of="+r.Header.Get("Accept"))
	w.Header().Set("Etag", `"`+r.URL.Path+`"`)
	body := "answer to " + r.URL.Path
	if r.Header.Get("Accept-Encoding") == "gzip" {
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		_, _ = io.WriteString(packed, body)
		_ = packed.Close()
		return
	}
	_, _ = io.WriteString(w, body)
}

func TestLastKnownReplies(t *testing.T) {
	w := start(t, discovery, settings{})
	known := []string{
		"/version", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1",
		"/openapi/v3/apis/apps/v1?hash=ABC",
	}
	unknown := []string{"/healthz", "/api/v1/namespaces", "/apis/apps/v1/deployments", "/version?x=y", "/openapi/v3/apis/apps/v1?hash=OTHER", "/metrics"}
	for _, path := range append(known, unknown...) {
		if strings.HasSuffix(path, "OTHER") {
			continue
		}
		r := w.request(t.Context(), http.MethodGet, path, nil)
		r.Header.Set("Accept", "application/json")
		if strings.HasPrefix(path, "/openapi/v2") {
			r.Header.Set("Accept-Encoding", "gzip")
		}
		res, _ := w.do(r)
		if warning := res.Header.Get("Warning"); warning != "" {
			t.Errorf("%s of a spoke that is there has warning %q", path, warning)
		}
	}
	w.setAway(true)
	for _, path := range known {
		r := w.request(t.Context(), http.MethodGet, path, nil)
		if strings.HasPrefix(path, "/apis") {
			q := r.URL.Query()
			q.Set("timeout", "32s")
			r.URL.RawQuery = q.Encode()
		}
		r.Header.Set("Accept", "application/json")
		res, body := w.do(r)
		plain, _, _ := strings.Cut(path, "?")
		if res.Code != 200 || body != "answer to "+plain || res.Header.Get("Content-Type") != "application/json;of=application/json" {
			t.Errorf("%s: %d %q %v", path, res.Code, body, res.Header)
		}
		if warning := res.Header.Get("Warning"); !strings.HasPrefix(warning, `299 - "agent edge-1 is away: this is its last known reply, of 20`) {
			t.Errorf("%s: warning %q", path, warning)
		}
	}
	for _, path := range unknown {
		r := w.request(t.Context(), http.MethodGet, path, nil)
		r.Header.Set("Accept", "application/json")
		if res, body := w.do(r); res.Code == 200 {
			t.Errorf("%s: %d %q", path, res.Code, body)
		}
	}
	other := w.request(t.Context(), http.MethodGet, "/version", nil)
	other.Header.Set("Accept", "application/yaml")
	if res, _ := w.do(other); res.Code != 502 {
		t.Errorf("for another Accept: %d", res.Code)
	}
	served := 0
	for _, r := range w.records.wait(t, audit.End, 2*len(known)+2*len(unknown)) {
		if r.AnsweredBy == audit.ByLastKnown && r.Result == audit.AgentGone && r.Status == http.StatusOK {
			served++
		}
	}
	if served != len(known) {
		t.Errorf("%d records of last known replies, want %d", served, len(known))
	}
}

// The same checks hold for what is remembered.
func TestLastKnownRepliesAreForWhoMayAsk(t *testing.T) {
	w := start(t, discovery, settings{})
	w.get("/version")
	w.setAway(true)
	for name, r := range map[string]func(*http.Request){
		"without a token":  func(r *http.Request) { r.Header.Del("Authorization") },
		"by another agent": func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token("edge-2")) },
	} {
		request := w.request(t.Context(), http.MethodGet, "/version", nil)
		r(request)
		if res, body := w.do(request); res.Code < 400 {
			t.Errorf("%s: %d %s", name, res.Code, body)
		}
	}
	edge2, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://hub/agents/edge-2/version", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	edge2.Header.Set("Authorization", "Bearer "+token("edge-2"))
	if res, body := w.do(edge2); res.Code != 502 {
		t.Errorf("another agent got %d %s", res.Code, body)
	}
}

// Impersonated callers may be shown less, so nothing of theirs is kept, and nothing
// kept is theirs.
func TestLastKnownRepliesOfImpersonation(t *testing.T) {
	config := everything()
	config.Impersonate = []string{"jane"}
	w := start(t, discovery, settings{hubAccess: &config, spokeAccess: &config})
	w.get("/version")
	w.setAway(true)
	r := w.request(t.Context(), http.MethodGet, "/version", nil)
	r.Header.Set("Impersonate-User", "jane")
	if res, _ := w.do(r); res.Code != 502 {
		t.Errorf("answer %d", res.Code)
	}
}

func TestRepliesThatAreNotKept(t *testing.T) {
	for name, api := range map[string]http.HandlerFunc{
		"refused":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"broken":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"another code": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) },
		"a coding nobody knows": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			_, _ = io.WriteString(w, "x")
		},
		"gzip that is none": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "x")
		},
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			block := make([]byte, 1<<20)
			for range 65 {
				_, _ = w.Write(block)
			}
		},
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "x")
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, api, settings{})
			if res, err := w.client().Do(w.request(t.Context(), http.MethodGet, "/version", nil)); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
			w.setAway(true)
			if res, body := w.get("/version"); res.Code != 502 {
				t.Errorf("answer %d %.100s", res.Code, body)
			}
		})
	}
}

// A spoke whose owner no longer lets a reply through has it forgotten.
func TestRepliesAreForgotten(t *testing.T) {
	refuse := false
	store := &memStore{values: map[string][]byte{}}
	w := start(t, func(w http.ResponseWriter, r *http.Request) {
		if refuse {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		discovery(w, r)
	}, settings{store: store})
	w.get("/version")
	store.wait(t, func(values map[string][]byte) bool { return len(values) == 1 })
	refuse = true
	if res, _ := w.get("/version"); res.Code != 403 {
		t.Fatalf("answer %d", res.Code)
	}
	store.wait(t, isEmpty)
	w.setAway(true)
	if res, _ := w.get("/version"); res.Code != 502 {
		t.Errorf("answer %d", res.Code)
	}
}

func isEmpty(values map[string][]byte) bool { return len(values) == 0 }

// narrowed is a policy that at some time refuses all.
type narrowed struct {
	resource.Policy
	off atomic.Bool
}

func (n *narrowed) Decide(r access.Request) access.Decision {
	if n.off.Load() {
		return (&access.Policy{}).Decide(r)
	}
	return n.Policy.Decide(r)
}

// So does one whose agent refuses the call.
func TestRepliesThatTheAgentRefusesAreForgotten(t *testing.T) {
	store := &memStore{values: map[string][]byte{}}
	var policy *narrowed
	w := start(t, discovery, settings{store: store, spoke: func(c *spoke.Config) {
		policy = &narrowed{Policy: c.Policy}
		c.Policy = policy
	}})
	w.get("/version")
	store.wait(t, func(values map[string][]byte) bool { return len(values) == 1 })
	policy.off.Store(true)
	if res, _ := w.get("/version"); res.Code != 403 {
		t.Fatalf("answer %d", res.Code)
	}
	store.wait(t, isEmpty)
	w.setAway(true)
	if res, _ := w.get("/version"); res.Code != 502 {
		t.Errorf("answer %d", res.Code)
	}
}

// So does one that an earlier process kept, which this one has never read.
func TestRepliesOfAnEarlierHubAreForgotten(t *testing.T) {
	store := &memStore{values: map[string][]byte{}}
	before := start(t, discovery, settings{store: store})
	before.get("/version")
	store.wait(t, func(values map[string][]byte) bool { return len(values) == 1 })
	after := start(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, settings{store: store})
	if res, _ := after.get("/version"); res.Code != 404 {
		t.Fatalf("answer %d", res.Code)
	}
	store.wait(t, isEmpty)
}

// failing has dials fail with an error of the test's.
func failing(dial *atomic.Pointer[error]) func(*resource.HubConfig) {
	return func(c *resource.HubConfig) {
		tunnel := c.Dial
		c.Dial = func(ctx context.Context, to identity.AgentName) (net.Conn, error) {
			if err := dial.Load(); err != nil {
				return nil, *err
			}
			return tunnel(ctx, to)
		}
	}
}

// A spoke whose owner no longer lets its Kubernetes API be reached is not away: what
// is known of it is neither told nor kept.
func TestRepliesOfASpokeThatRefuses(t *testing.T) {
	var dial atomic.Pointer[error]
	store := &memStore{values: map[string][]byte{}}
	w := start(t, discovery, settings{store: store, hub: failing(&dial)})
	w.get("/version")
	w.get("/api")
	store.wait(t, func(values map[string][]byte) bool { return len(values) == 2 })
	refused := fmt.Errorf("not configured: %w", stream.ErrRefused)
	dial.Store(&refused)
	w.cut()
	for range 2 {
		res, body := w.get("/version")
		if said := sentence(t, res, body); res.Code != 502 || res.Header.Get("Warning") != "" || !strings.Contains(said, "does not serve its Kubernetes API") {
			t.Errorf("answer %d %s", res.Code, body)
		}
	}
	store.wait(t, isEmpty)
	dial.Store(nil)
	w.setAway(true)
	for _, path := range []string{"/version", "/api"} {
		if res, body := w.get(path); res.Code != 502 {
			t.Errorf("%s of a spoke that has refused and is away: %d %s", path, res.Code, body)
		}
	}
}

// One that is busy is not away either; its last known reply is as true as before.
func TestRepliesOfASpokeThatIsBusy(t *testing.T) {
	var dial atomic.Pointer[error]
	w := start(t, discovery, settings{hub: failing(&dial)})
	w.get("/version")
	busy := fmt.Errorf("no spare stream: %w", stream.ErrUnavailable)
	dial.Store(&busy)
	w.cut()
	res, body := w.get("/version")
	if warning := res.Header.Get("Warning"); res.Code != 200 || body != "answer to /version" ||
		!strings.HasPrefix(warning, `299 - "agent edge-1 has no connection to spare: this is its last known reply, of 20`) {
		t.Errorf("answer %d %q, warning %q", res.Code, body, warning)
	}
	res, body = w.get("/api/v1/pods")
	if said := sentence(t, res, body); res.Code != 503 || !strings.Contains(said, "has no connection to spare") {
		t.Errorf("answer %d %s", res.Code, body)
	}
	for _, record := range w.records.wait(t, audit.End, 3) {
		if record.Result != audit.Complete {
			t.Errorf("record = %+v", record)
		}
	}
}

// Nor is one that does not answer: that is what is said of it.
func TestRepliesOfASpokeThatIsSilent(t *testing.T) {
	var dial atomic.Pointer[error]
	w := start(t, discovery, settings{hub: failing(&dial)})
	w.get("/version")
	silent := fmt.Errorf("%w: %w", stream.ErrSilent, stream.ErrUnavailable)
	dial.Store(&silent)
	w.cut()
	res, body := w.get("/version")
	if warning := res.Header.Get("Warning"); res.Code != 200 || body != "answer to /version" ||
		!strings.HasPrefix(warning, `299 - "agent edge-1 does not answer: this is its last known reply, of 20`) {
		t.Errorf("answer %d %q, warning %q", res.Code, body, warning)
	}
	res, body = w.get("/api/v1/pods")
	if said := sentence(t, res, body); res.Code != 503 || !strings.Contains(said, "agent edge-1 does not answer") {
		t.Errorf("answer %d %s", res.Code, body)
	}
}

// memStore is a LastReplyStore in memory.
type memStore struct {
	mu      sync.Mutex // guards what follows
	values  map[string][]byte
	changed chan struct{}
	away    bool
}

func (s *memStore) Get(_ context.Context, owner, key string, limit int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, errors.New("away")
	}
	value := s.values[owner+"|"+key]
	return value[:min(limit, len(value))], nil
}

func (s *memStore) Set(_ context.Context, owner, key string, value []byte) error {
	return s.change(func() {
		if s.values[owner+"|"+key] = value; len(value) == 0 {
			delete(s.values, owner+"|"+key)
		}
	})
}

func (s *memStore) Clear(_ context.Context, owner string) error {
	return s.change(func() {
		maps.DeleteFunc(s.values, func(key string, _ []byte) bool { return strings.HasPrefix(key, owner+"|") })
	})
}

func (s *memStore) change(do func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return errors.New("away")
	}
	do()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	return nil
}

func (s *memStore) wait(t *testing.T, ok func(map[string][]byte) bool) {
	t.Helper()
	for {
		s.mu.Lock()
		done := ok(s.values)
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Fatal("the store has not what it should after 10s")
		}
	}
}

// A hub that was restarted knows what its store has, and nothing of another Agent of
// the same name.
func TestRepliesOutliveTheHub(t *testing.T) {
	store := &memStore{values: map[string][]byte{}}
	before := start(t, discovery, settings{store: store})
	before.get("/version")
	store.wait(t, func(values map[string][]byte) bool { return len(values) == 1 })
	after := start(t, discovery, settings{store: store})
	after.setAway(true)
	if res, body := after.get("/version"); res.Code != 200 || body != "answer to /version" {
		t.Errorf("answer %d %q", res.Code, body)
	}
	store.mu.Lock()
	for key := range store.values {
		store.values[key] = []byte("{}\nnot what it was")
	}
	store.mu.Unlock()
	broken := start(t, discovery, settings{store: store})
	broken.setAway(true)
	if res, _ := broken.get("/version"); res.Code != 502 {
		t.Errorf("of a broken value: %d", res.Code)
	}
	store.mu.Lock()
	store.away = true
	store.mu.Unlock()
	alone := start(t, discovery, settings{store: store})
	alone.get("/version")
	alone.setAway(true)
	if res, _ := alone.get("/version"); res.Code != 200 {
		t.Errorf("without its store: %d", res.Code)
	}
}

// A kept reply that says it is of a time to come, by a clock that was ahead, is taken
// down again.
func TestRepliesOfAClockThatWasAhead(t *testing.T) {
	store := &memStore{values: map[string][]byte{}}
	before := start(t, discovery, settings{store: store})
	before.get("/version")
	store.wait(t, func(values map[string][]byte) bool { return len(values) == 1 })
	store.mu.Lock()
	for key, value := range store.values {
		store.values[key] = regexp.MustCompile(`"at":"\d+`).ReplaceAll(value, []byte(`"at":"2999`))
	}
	store.mu.Unlock()
	after := start(t, discovery, settings{store: store})
	warning := func() string {
		after.setAway(true)
		defer after.setAway(false)
		res, _ := after.get("/version")
		return res.Header.Get("Warning")
	}
	if got := warning(); !strings.Contains(got, " of 2999-") {
		t.Fatalf("the kept one has warning %q", got)
	}
	after.get("/version")
	store.wait(t, func(values map[string][]byte) bool {
		return !slices.ContainsFunc(slices.Collect(maps.Values(values)), func(v []byte) bool { return bytes.Contains(v, []byte(`"at":"2999`)) })
	})
	if got := warning(); got == "" || strings.Contains(got, " of 2999-") {
		t.Errorf("after another answer it has warning %q", got)
	}
}

// What the hub does not allow is not answered from memory either.
func TestLastKnownRepliesWithLiveAccessOff(t *testing.T) {
	on, off := access.Config{Enabled: true}, access.Config{}
	agents := &changing{target: resource.Target{UID: "uid-1", Policy: policy(t, access.Hub, on)}, changed: make(chan struct{})}
	w := start(t, discovery, settings{hub: func(c *resource.HubConfig) { c.Agents = agents }})
	const path = "/openapi/v2"
	w.get(path)
	w.setAway(true)
	if res, _ := w.get(path); res.Code != 200 {
		t.Fatalf("answer %d while it is allowed", res.Code)
	}
	agents.set(resource.Target{UID: "uid-1", Policy: policy(t, access.Hub, off)}, nil)
	if res, _ := w.get(path); res.Code != 403 {
		t.Errorf("answer %d", res.Code)
	}
}

// A caller that asks for the same in ever new words fills no one's store.
func TestRepliesForEndlessAccepts(t *testing.T) {
	store := &memStore{values: map[string][]byte{}}
	w := start(t, discovery, settings{store: store})
	ask := func(accept string) {
		t.Helper()
		r := w.request(t.Context(), http.MethodGet, "/openapi/v2", nil)
		r.Header.Set("Accept", accept)
		if res, _ := w.do(r); res.Code != 200 {
			t.Errorf("for %q: %d", accept, res.Code)
		}
	}
	for n := range 100 {
		ask(fmt.Sprintf("application/json;x=%d", n))
	}
	w.get("/version") // is kept after all the others
	store.wait(t, func(values map[string][]byte) bool {
		for _, value := range values {
			if bytes.Contains(value, []byte(`"path":"/version"`)) {
				return true
			}
		}
		return false
	})
	store.mu.Lock()
	defer store.mu.Unlock()
	if n := len(store.values); n != 1 {
		t.Errorf("%d replies are kept, want 1", n)
	}
}

package resource_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
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
	if res, _ := w.do(other); res.Code != 503 {
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
	if res, body := w.do(edge2); res.Code != 503 {
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
	if res, _ := w.do(r); res.Code != 503 {
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
			if res, body := w.get("/version"); res.Code != 503 {
				t.Errorf("answer %d %.100s", res.Code, body)
			}
		})
	}
}

// A spoke whose owner no longer lets a reply through has it forgotten.
func TestRepliesAreForgotten(t *testing.T) {
	refuse := false
	keep := &keep{values: map[string][]byte{}}
	w := start(t, func(w http.ResponseWriter, r *http.Request) {
		if refuse {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		discovery(w, r)
	}, settings{keep: keep})
	w.get("/version")
	keep.wait(t, func(values map[string][]byte) bool { return len(values) == 1 })
	refuse = true
	if res, _ := w.get("/version"); res.Code != 403 {
		t.Fatalf("answer %d", res.Code)
	}
	keep.wait(t, func(values map[string][]byte) bool {
		for _, value := range values {
			if len(value) > 0 {
				return false
			}
		}
		return true
	})
	w.setAway(true)
	if res, _ := w.get("/version"); res.Code != 503 {
		t.Errorf("answer %d", res.Code)
	}
}

// keep is a Keep in memory.
type keep struct {
	mu     sync.Mutex // guards what follows
	values map[string][]byte
	grown  chan struct{}
	away   bool
}

func (k *keep) Get(_ context.Context, key string, limit int) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.away {
		return nil, errors.New("away")
	}
	return k.values[key][:min(limit, len(k.values[key]))], nil
}

func (k *keep) Set(_ context.Context, key string, value []byte, expiry time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.away {
		return errors.New("away")
	}
	if expiry <= 0 {
		return fmt.Errorf("expiry %v", expiry)
	}
	k.values[key] = value
	if k.grown != nil {
		close(k.grown)
		k.grown = nil
	}
	return nil
}

func (k *keep) wait(t *testing.T, ok func(map[string][]byte) bool) {
	t.Helper()
	for {
		k.mu.Lock()
		done := ok(k.values)
		if k.grown == nil {
			k.grown = make(chan struct{})
		}
		grown := k.grown
		k.mu.Unlock()
		if done {
			return
		}
		select {
		case <-grown:
		case <-time.After(10 * time.Second):
			t.Fatal("not kept after 10s")
		}
	}
}

// A hub that was restarted knows what its Keep has, and nothing of another Agent of
// the same name.
func TestRepliesOutliveTheHub(t *testing.T) {
	keep := &keep{values: map[string][]byte{}}
	before := start(t, discovery, settings{keep: keep})
	before.get("/version")
	keep.wait(t, func(values map[string][]byte) bool { return len(values) == 1 })
	after := start(t, discovery, settings{keep: keep})
	after.setAway(true)
	if res, body := after.get("/version"); res.Code != 200 || body != "answer to /version" {
		t.Errorf("answer %d %q", res.Code, body)
	}
	keep.mu.Lock()
	for key := range keep.values {
		keep.values[key] = []byte("{}\nnot what it was")
	}
	keep.mu.Unlock()
	broken := start(t, discovery, settings{keep: keep})
	broken.setAway(true)
	if res, _ := broken.get("/version"); res.Code != 503 {
		t.Errorf("of a broken value: %d", res.Code)
	}
	keep.mu.Lock()
	keep.away = true
	keep.mu.Unlock()
	alone := start(t, discovery, settings{keep: keep})
	alone.get("/version")
	alone.setAway(true)
	if res, _ := alone.get("/version"); res.Code != 200 {
		t.Errorf("without its keep: %d", res.Code)
	}
}

// What the hub does not allow is not answered from memory either.
func TestLastKnownRepliesWithLiveAccessOff(t *testing.T) {
	off := access.Config{}
	w := start(t, discovery, settings{hubAccess: &off})
	w.setAway(true)
	if res, _ := w.get("/version"); res.Code != 403 {
		t.Errorf("answer %d", res.Code)
	}
}

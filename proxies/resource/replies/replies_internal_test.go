package replies

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
)

func key(t *testing.T, agent, path string) Key {
	t.Helper()
	name, err := identity.ParseAgentName(agent)
	if err != nil {
		t.Fatal(err)
	}
	return Key{Agent: name, UID: "1", Path: path}
}

// memory is bounded in all, of an agent, and in number; what was used last stays.
func TestRepliesAreBounded(t *testing.T) {
	r, err := New(Config{MaxBytes: 20 << 20, Metrics: prometheus.NewRegistry(), Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	put := func(agent, path string, size int) {
		t.Helper()
		r.store(&reply{key: key(t, agent, path), at: time.Unix(1, 0), packed: make([]byte, size)})
	}
	has := func(agent, path string) bool {
		_, found := r.inMemory(key(t, agent, path))
		return found
	}
	// In number.
	for n := range maxReplies + 1 {
		put("edge-1", fmt.Sprintf("/apis/%d", n), 1)
	}
	if count, _ := r.counts(); count != maxReplies || has("edge-1", "/apis/0") || !has("edge-1", "/apis/1") {
		t.Errorf("%d replies of an agent, want %d, the oldest gone", count, maxReplies)
	}
	// The bytes of an agent: those of others stay.
	put("edge-2", "/version", 1)
	for n := range 4 {
		put("edge-1", fmt.Sprintf("/openapi/%d", n), maxAgentBytes/3)
	}
	if of := r.agents[key(t, "edge-1", "").Agent]; of.bytes > maxAgentBytes || !has("edge-2", "/version") || !has("edge-1", "/openapi/3") || has("edge-1", "/openapi/0") {
		t.Errorf("%d bytes of an agent", of.bytes)
	}
	// The bytes of all: what was not used for longest goes, whosever it is.
	has("edge-2", "/version")
	for n := range 5 {
		put(fmt.Sprintf("edge-%d", n+3), "/openapi/v2", maxAgentBytes/2)
	}
	if _, bytes := r.counts(); bytes > 20<<20 || has("edge-1", "/openapi/3") {
		t.Errorf("%d bytes in all", bytes)
	}
	// One that would fit nowhere is not kept.
	put("edge-9", "/openapi/v2", maxAgentBytes)
	if has("edge-9", "/openapi/v2") {
		t.Error("a reply above the limit of an agent is kept")
	}
	// What is gone is accounted for.
	for element := r.order.Front(); element != nil; element = r.order.Front() {
		r.Forget(element.Value.(*reply).key)
	}
	if count, bytes := r.counts(); count != 0 || bytes != 0 || len(r.agents) != 0 {
		t.Errorf("%d replies, %d bytes, %d agents after all were forgotten", count, bytes, len(r.agents))
	}
}

// Nor is there one for each query that an API server does not look at.
func TestKeyOf(t *testing.T) {
	agent := key(t, "edge-1", "").Agent
	for target, want := range map[string]string{
		"/version?timeout=32s":             "/version",
		"/openapi/v3/apis/apps/v1?hash=AB": "/openapi/v3/apis/apps/v1?hash=AB",
		"/openapi/v3?hash=AB":              "",
		"/openapi/v2?hash=AB":              "",
		"/openapi/v2?x=1":                  "",
		"/openapi/v3/api/v1?hash=A&hash=B": "",
	} {
		request, err := access.Parse(http.MethodGet, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		there, err := url.ParseRequestURI(target)
		if err != nil {
			t.Fatal(err)
		}
		if got, kept := KeyOf(agent, "1", request, there, nil); got.Path != want || kept != (want != "") {
			t.Errorf("keyOf(%s) = %q, %v, want %q", target, got.Path, kept, want)
		}
	}
}

// Replies that stand still stop the recording of no other agent, and of their own for
// no longer than half a minute. Anyone who reads one on gets all of it.
func TestRecordingsThatStandStill(t *testing.T) {
	for _, coding := range []string{"", "gzip"} {
		t.Run("coding "+coding, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, err := New(Config{Metrics: prometheus.NewRegistry(), Log: zerolog.Nop()})
				if err != nil {
					t.Fatal(err)
				}
				observe := func(agent string, n int) (body io.ReadCloser, recorded bool) {
					t.Helper()
					res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Encoding": {coding}}, Body: io.NopCloser(strings.NewReader("a reply"))}
					r.Observe(key(t, agent, fmt.Sprintf("/apis/%d", n)), false, res, time.Now())
					_, recorded = res.Body.(*recordedBody)
					return res.Body, recorded
				}
				var still []io.ReadCloser
				stall := func(agent string, want bool) {
					t.Helper()
					body, recorded := observe(agent, len(still))
					if recorded != want {
						t.Errorf("recording %d, of %s: %v, want %v", len(still), agent, recorded, want)
					}
					if _, err := body.Read(make([]byte, 1)); err != nil {
						t.Error(err)
					}
					still = append(still, body)
				}
				for range recordersOfAgent {
					stall("edge-1", true)
				}
				stall("edge-1", false)
				for n := range recorders - recordersOfAgent {
					stall(fmt.Sprintf("edge-%d", n+2), true)
				}
				stall("edge-99", false)
				time.Sleep(recordTime) //nolint:forbidigo // the fake clock of synctest
				synctest.Wait()
				for n, body := range still {
					if rest, err := io.ReadAll(body); err != nil || string(rest) != " reply" {
						t.Errorf("body %d: %q, %v", n, rest, err)
					}
					if err := body.Close(); err != nil {
						t.Error(err)
					}
				}
				if count, _ := r.counts(); count != 0 {
					t.Errorf("%d replies that were given up are kept", count)
				}
				for n := range 3 {
					body, recorded := observe("edge-1", n)
					if !recorded {
						t.Fatalf("reply %d after them is not recorded", n)
					}
					if _, err := io.ReadAll(body); err != nil {
						t.Error(err)
					}
				}
				if count, _ := r.counts(); (count == 3) != (coding == "") {
					t.Errorf("%d replies are kept", count)
				}
			})
		})
	}
}

package resource_test

import (
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
)

// The kinds of an API version that no one has asked for are known while the spoke is away,
// once they were learned; that is done once, and leaves no record.
func TestLearn(t *testing.T) {
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis/gone.example.org/v1" {
			http.NotFound(rw, r)
			return
		}
		discovery(rw, r)
	}, settings{})
	ctx, edge := t.Context(), agent(t, "edge-1")
	for path, v := range map[string][2]string{"/apis/apps/v1": {"apps", "v1"}, "/api/v1": {"", "v1"}} {
		for range 2 {
			if !w.hub.Learn(ctx, edge, v[0], v[1]) {
				t.Errorf("%s is not known", path)
			}
		}
	}
	if w.hub.Learn(ctx, edge, "gone.example.org", "v1") {
		t.Error("what the spoke does not have is known")
	}
	if calls := w.calls(); len(calls) != 3 {
		t.Errorf("there were %d calls", len(calls))
	}
	for _, bad := range [][2]string{{"apps", "v1/deployments"}, {"apps", ".."}, {"apps", ""}, {"..", "v1"}, {"apps/v1", "namespaces"}, {"", "v1?x=y"}, {"a b", "v1"}} {
		if w.hub.Learn(ctx, edge, bad[0], bad[1]) {
			t.Errorf("%q is known", bad)
		}
	}
	if w.hub.Learn(ctx, agent(t, "edge-9"), "apps", "v1") {
		t.Error("of an agent that is not registered kinds are known")
	}
	if calls := w.calls(); len(calls) != 3 {
		t.Errorf("after what is refused there were %d calls", len(calls))
	}
	w.setAway(true)
	if w.hub.Learn(ctx, edge, "batch", "v1") {
		t.Error("of a spoke that is away something is learned")
	}
	if !w.hub.Learn(ctx, edge, "apps", "v1") {
		t.Error("what is known is not, since the spoke is away")
	}
	for path, want := range map[string]int{"/apis/apps/v1": 200, "/api/v1": 200, "/apis/batch/v1": 502, "/apis/gone.example.org/v1": 502} {
		r := w.request(ctx, http.MethodGet, path, nil)
		r.Header.Set("Accept", "application/json, */*") // as client-go asks
		if res, body := w.do(r); res.Code != want || want == 200 && body != "answer to "+path {
			t.Errorf("%s: %d %s", path, res.Code, body)
		}
	}
	if records := w.records.wait(t, audit.End, 4); len(records) != 4 {
		t.Errorf("%d records", len(records))
	}
	if n, err := testutil.GatherAndCount(w.metrics, "argomesh_resource_learned_kinds_total"); err != nil || n != 4 {
		t.Errorf("%d results are counted, %v", n, err)
	}
}

// Of a spoke whose owner shows Kubernetes' own kinds alone, no others are learned.
func TestLearnOwnKindsAlone(t *testing.T) {
	off := access.Config{}
	w := start(t, discovery, settings{spokeAccess: &off})
	ctx, edge := t.Context(), agent(t, "edge-1")
	if !w.hub.Learn(ctx, edge, "apps", "v1") || w.hub.Learn(ctx, edge, "example.org", "v1") {
		t.Error("what is learned is not what its owner shows")
	}
}

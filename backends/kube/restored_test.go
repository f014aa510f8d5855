package kube_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

// A restore is told by what a list shows: what was replaced, or was deleted, is there
// again. Another object under an old name is none.
func TestRestoredServerIsTold(t *testing.T) {
	another := app("gone", 500)
	another["metadata"].(map[string]any)["uid"] = "uid-of-another"
	for name, test := range map[string]struct {
		objects []map[string]any
		want    int64
	}{
		"as before, with what came since":     {[]map[string]any{app("a", 101), app("new", 400)}, 0},
		"another under the name of one":       {[]map[string]any{app("a", 101), another}, 0},
		"one as it was before":                {[]map[string]any{app("a", 41)}, 1},
		"one of which the deletion was seen":  {[]map[string]any{app("a", 101), app("gone", 102)}, 1},
		"less than before, which may be true": {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			server.put("a")
			server.put("gone")
			var told atomic.Int64
			s := newStore(t, server.URL, kube.Config{
				Watch: map[stream.Kind][]string{stream.Application: {"argocd"}}, Metrics: prometheus.NewRegistry(),
				Restored: func() { told.Add(1) },
			})
			kit.Background(t, s.Run)
			waitSynced(t, s)
			server.remove("gone")
			kit.Eventually(t, "a deletion", func() bool { return len(s.List(stream.Application, "argocd")) == 1 })
			before := time.Now()
			if s.ListedSince(before) || !s.ListedSince(time.Time{}) {
				t.Error("it was listed in the past")
			}
			server.restore(900, test.objects...)
			kit.Eventually(t, "a list", func() bool { return s.ListedSince(before) })
			kit.Eventually(t, "word of a restore", func() bool { return told.Load() == test.want })
			if got := told.Load(); got != test.want {
				t.Errorf("told of %d restores, want %d", got, test.want)
			}
		})
	}
}

package redis_test

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
)

// gzipped compresses as Argo CD does.
func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	must(t, err)
	must(t, w.Close())
	return b.String()
}

// What a spoke keeps to cost its readers memory reaches none of them, whether it is short
// or passes piece by piece, alone or in a list. It is not kept, not shown while the spoke
// is away, and its limit is counted; what is well passes as before.
func TestBombsOfASpokeReachNobody(t *testing.T) {
	protocols(t, func(t *testing.T, protocol int) {
		w, ctx := newHubEnv(t, nil), t.Context()
		e := w.add("a", nil)
		spoke := e.redis.client(t, 3)
		well := gzipped(t, `{"nodes":[{"kind":"Service"}]}`)
		must(t, spoke.Set(ctx, tree("", "shop"), well, 0).Err())
		must(t, spoke.Set(ctx, tree("", "small"), gzipped(t, `{"nodes":[`+strings.Repeat("{},", 3<<20)+`{}]}`), 0).Err())
		// Longer than what is held as a whole: a header, and then the same.
		var long bytes.Buffer
		z, err := gzip.NewWriterLevel(&long, gzip.NoCompression)
		must(t, err)
		_, err = z.Write([]byte(`{"x":"` + strings.Repeat("x", 2<<20) + `","nodes":[` + strings.Repeat("{},", 3<<20) + `{}]}`))
		must(t, err)
		must(t, z.Close())
		must(t, spoke.Set(ctx, tree("", "large"), long.String(), 0).Err())
		c := w.client(protocol)
		if got, err := c.Get(ctx, tree("a", "small")).Result(); err == nil || !strings.Contains(err.Error(), "AGENTREFUSED a value of agent a is refused") {
			t.Errorf("GET of a small one = %d bytes, %v", len(got), err)
		}
		if got, err := c.Get(ctx, tree("a", "large")).Result(); err == nil {
			t.Errorf("GET of a large one = %d bytes", len(got))
		}
		if got, err := c.MGet(ctx, tree("a", "shop"), tree("a", "small")).Result(); err == nil {
			t.Errorf("MGET = %d values", len(got))
		}
		if got, err := c.Get(ctx, tree("a", "shop")).Result(); err != nil || got != well {
			t.Errorf("GET of what is well = %d bytes, %v", len(got), err)
		}
		for key := range w.store.all() {
			if strings.Contains(key, "small") || strings.Contains(key, "large") {
				t.Errorf("%s is kept", key)
			}
		}
		families, err := w.metrics.Gather()
		must(t, err)
		counted := 0.0
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "argomesh_redis_proxy_limits_total" {
					counted += m.GetCounter().GetValue()
				}
			}
		}
		if counted < 3 { // a client may ask once more
			t.Errorf("%v of them are counted", counted)
		}
	})
}

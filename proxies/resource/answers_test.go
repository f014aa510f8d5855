package resource_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// A spoke does not take the memory of who reads its answers: they are counted, unpacked too.
func TestLongAnswers(t *testing.T) {
	const object, list = 16 << 20, 128 << 20
	packed := func(n int64) string {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		if _, err := io.CopyN(w, zeros{}, n); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for name, test := range map[string]struct {
		path   string
		packed bool
		bytes  int64
		length bool // it says how long it is
		passes bool
	}{
		"an object at the limit":            {"/api/v1/namespaces/web/pods/a", false, object, false, true},
		"an object beyond it":               {"/api/v1/namespaces/web/pods/a", false, object + 1, false, false},
		"one that says so before":           {"/api/v1/namespaces/web/pods/a", false, object + 1, true, false},
		"a packed object at the limit":      {"/api/v1/namespaces/web/pods/a", true, object, true, true},
		"a packed object beyond it":         {"/api/v1/namespaces/web/pods/a", true, object + 1, true, false},
		"a bomb":                            {"/api/v1/namespaces/web/pods/a", true, 4 * object, true, false},
		"a list":                            {"/api/v1/namespaces/web/pods", true, object + 1, true, true},
		"a list beyond its limit":           {"/api/v1/namespaces/web/pods", true, list + 1, true, false},
		"a log, which is read as it comes":  {"/api/v1/namespaces/web/pods/a/log", false, object + 1, false, true},
		"what is packed and cannot be read": {"/api/v1/namespaces/web/pods/b", true, 0, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			content := ""
			switch {
			case test.packed && test.bytes == 0:
				content = strings.Repeat("no gzip", 1000)
			case test.packed:
				content = packed(test.bytes)
			}
			w := start(t, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "application/json")
				if test.packed {
					rw.Header().Set("Content-Encoding", "gzip")
					_, _ = io.WriteString(rw, content) // the hub may have ended it
					return
				}
				if test.length {
					rw.Header().Set("Content-Length", "16777217")
				}
				_, _ = io.CopyN(rw, zeros{}, test.bytes)
			}, settings{})
			request := w.request(t.Context(), http.MethodGet, test.path, nil)
			request.Header.Set("Accept-Encoding", "gzip") // so that nobody else unpacks it
			res, err := w.client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			n, err := io.Copy(io.Discard, res.Body)
			if passes := res.StatusCode == http.StatusOK && err == nil; passes != test.passes {
				t.Errorf("answer %d of %d bytes: %v", res.StatusCode, n, err)
			}
			want := 1.0
			if test.passes {
				want = 0
			}
			if got := counted(t, w.metrics, "argomesh_resource_answers_cut_total"); got != want {
				t.Errorf("%v answers are counted as cut", got)
			}
		})
	}
}

// counted is the value of a counter without labels of its own.
func counted(t *testing.T, from prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

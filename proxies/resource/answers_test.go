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
	pack := func(n int64) string {
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
	one := pack(object)
	packed := func(n int64) string { // files of gzip may follow each other
		return strings.Repeat(one, int(n/object)) + pack(n%object)
	}
	const (
		pod     = "/api/v1/namespaces/web/pods/a"
		pods    = "/api/v1/namespaces/web/pods"
		tooMuch = "answered with more than is passed on"
		garbled = "answered with what says that it is packed with gzip and cannot be unpacked"
	)
	for name, test := range map[string]struct {
		path   string
		packed bool
		bytes  int64
		length bool   // it says how long it is
		raw    string // what comes in place of so many bytes
		fails  string // what is said of the agent; empty when all of it passes
		early  bool   // before anything of it has passed; else it may be cut
	}{
		"an object at the limit":            {path: pod, bytes: object},
		"an object beyond it":               {path: pod, bytes: object + 1, fails: tooMuch},
		"one that says so before":           {path: pod, bytes: object + 1, length: true, fails: tooMuch, early: true},
		"a packed object at the limit":      {path: pod, packed: true, bytes: object},
		"a packed object beyond it":         {path: pod, packed: true, bytes: object + 1, fails: tooMuch},
		"a bomb":                            {path: pod, packed: true, bytes: 4 * object, fails: tooMuch},
		"a list":                            {path: pods, packed: true, bytes: object + 1},
		"a list beyond its limit":           {path: pods, packed: true, bytes: list + 1, fails: tooMuch},
		"a log, which is read as it comes":  {path: pod + "/log", bytes: object + 1},
		"what is packed and cannot be read": {path: pod, packed: true, raw: strings.Repeat("no gzip", 1000), fails: garbled, early: true},
		"what is shorter than its header":   {path: pod, packed: true, raw: packed(0)[:5], fails: garbled, early: true},
		"what is packed and not whole":      {path: pod, packed: true, raw: one[:8<<10], fails: garbled},
		"what is packed and empty":          {path: pod, packed: true, raw: packed(0)},
	} {
		t.Run(name, func(t *testing.T) {
			content := test.raw
			if test.packed && content == "" {
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
			request.Header.Set("Accept-Encoding", "gzip") // so that no one else unpacks it
			res, err := w.client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			var began bytes.Buffer // as long as a Status may be
			n, err := io.Copy(&began, io.LimitReader(res.Body, 4<<10))
			if err == nil {
				var more int64
				more, err = io.Copy(io.Discard, res.Body)
				n += more
			}
			switch {
			case test.fails == "" && (res.StatusCode != http.StatusOK || err != nil):
				t.Errorf("answer %d of %d bytes: %v", res.StatusCode, n, err)
			case test.fails == "":
			case res.StatusCode == http.StatusOK:
				if err == nil || test.early {
					t.Errorf("%d bytes pass: %v", n, err)
				}
			case res.StatusCode != http.StatusBadGateway || err != nil || !strings.Contains(began.String(), "argomesh hub: agent edge-1 "+test.fails):
				t.Errorf("answer %d: %s, %v", res.StatusCode, &began, err)
			}
			want := 1.0
			if test.fails == "" {
				want = 0
			}
			if got := counted(t, w.metrics, "argomesh_resource_answers_cut_total"); got != want {
				t.Errorf("%v answers are counted as cut", got)
			}
		})
	}
}

// An answer of which nothing but the header came is none, and its caller is told.
func TestAnswerLostBeforeItsBegin(t *testing.T) {
	w := start(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", "100")
		rw.WriteHeader(http.StatusOK)
		if err := http.NewResponseController(rw).Flush(); err != nil {
			t.Error(err)
		}
		panic(http.ErrAbortHandler)
	}, settings{})
	res, err := w.client().Do(w.request(t.Context(), http.MethodGet, "/api/v1/namespaces/web/pods/a", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusBadGateway || err != nil || !strings.Contains(string(text), "argomesh hub: agent edge-1 was lost before it answered") {
		t.Errorf("answer %d: %s, %v", res.StatusCode, text, err)
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

package replies

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/test/heap"
)

// zeros is endless.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Whatever a spoke answers, to keep it and to give it again takes little: nothing of it is
// there as a whole but what is kept, packed.
func TestHeapOfReplies(t *testing.T) {
	const mostHeap = 32 << 20
	noise := func(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{}), n) }
	packed := func(content io.Reader) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := io.Copy(w, content); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	const part = maxReply / 8
	one := packed(io.LimitReader(zeros{}, part))
	packedZeros := func(n int) io.Reader { // files of gzip may follow each other
		return bytes.NewReader(bytes.Repeat(one, n/part))
	}
	for name, tt := range map[string]struct {
		coding string
		body   io.Reader
		kept   bool
	}{
		"the longest":                   {"", io.LimitReader(zeros{}, maxReply), true},
		"longer than any":               {"", io.LimitReader(zeros{}, 2*maxReply), false},
		"the longest that is not dense": {"", noise(maxPacked - 4096), true},
		"more that is not dense":        {"", noise(4 * maxPacked), false},
		"the longest, compressed":       {"gzip", packedZeros(maxReply), true},
		"a bomb":                        {"gzip", packedZeros(8 * maxReply), false},
		"noise, compressed":             {"gzip", bytes.NewReader(packed(noise(maxPacked - 4096))), true},
		"what is not compressed":        {"gzip", io.LimitReader(zeros{}, maxReply), false},
		"a long name in gzip's header":  {"gzip", io.MultiReader(strings.NewReader("\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\xff"), io.LimitReader(neverZero{}, maxReply)), false},
	} {
		r, err := New(Config{Metrics: prometheus.NewRegistry(), Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		of := key(t, "edge-1", "/openapi/v2")
		res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Encoding": {tt.coding}}, Body: io.NopCloser(tt.body), ContentLength: -1}
		took := heap.Of(func() {
			r.Observe(of, false, res, time.Now())
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			_ = res.Body.Close() // never fails
		})
		if took > mostHeap {
			t.Errorf("%s: to keep it takes %d bytes of heap", name, took)
		}
		known, found := r.inMemory(of)
		if found != tt.kept {
			t.Errorf("%s: kept %t, want %t", name, found, tt.kept)
		}
		if !found {
			continue
		}
		value, err := known.encode()
		if err != nil {
			t.Fatal(err)
		}
		took = heap.Of(func() {
			if _, err := decodeReply(value); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			w := httptest.NewRecorder()
			w.Body = nil
			if !r.Serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), of, "") {
				t.Errorf("%s: it is not given again", name)
			}
		})
		if took > mostHeap {
			t.Errorf("%s: to give it again takes %d bytes of heap", name, took)
		}
	}
}

// neverZero is endless and has no end of a text of gzip's header.
type neverZero struct{}

func (neverZero) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

package zstd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/zstd"
)

// status is the status of an Application with n resources, as Argo CD writes it:
// about 5 KiB of JSON for 20.
func status(random *rand.Rand, n int) []byte {
	digits := func(length int) string {
		s := ""
		for len(s) < length {
			s += fmt.Sprintf("%016x", random.Uint64())
		}
		return s[:length]
	}
	revision := digits(40)
	kinds := []string{"ConfigMap", "Service", "Deployment", "ServiceAccount", "Ingress"}
	resources := make([]any, n)
	results := make([]any, n)
	for i := range n {
		name := fmt.Sprintf("guestbook-%s", digits(4))
		resources[i] = map[string]any{
			"version": "v1", "kind": kinds[i%len(kinds)], "namespace": "guestbook", "name": name,
			"status": "Synced", "health": map[string]any{"status": "Healthy"},
		}
		results[i] = map[string]any{
			"version": "v1", "kind": kinds[i%len(kinds)], "namespace": "guestbook", "name": name,
			"status": "Synced", "message": "configured", "hookPhase": "Running", "syncPhase": "Sync",
		}
	}
	raw, err := json.Marshal(map[string]any{
		"sync":      map[string]any{"status": "Synced", "revision": revision},
		"health":    map[string]any{"status": "Healthy", "lastTransitionTime": "2026-11-21T10:00:00Z"},
		"resources": resources, "reconciledAt": "2026-11-21T10:00:00Z", "sourceType": "Kustomize",
		"operationState": map[string]any{
			"phase": "Succeeded", "startedAt": "2026-11-21T10:00:00Z", "finishedAt": "2026-11-21T10:00:03Z",
			"syncResult": map[string]any{"revision": revision, "resources": results},
		},
		"summary": map[string]any{"images": []any{"registry.example/guestbook@sha256:" + digits(64)}},
	})
	if err != nil {
		panic(err)
	}
	return raw
}

// batch is a frame with so many statuses.
func batch(tb testing.TB, statuses int) []byte {
	tb.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var b stream.Batch
	for i := range statuses {
		data := status(random, 20)
		b.Events = append(b.Events, stream.Event{
			ID:   fmt.Sprintf("0b5e1c5c-3f0e-4a51-9f6b-5d8a1f3c2b1a.%d", i),
			Key:  stream.EntryKey{Collection: stream.Statuses, Name: fmt.Sprint("guestbook-", i)},
			Verb: stream.Apply, Version: stream.Version{SourceUID: "f2a1c0de-0000-4000-8000-000000000000", Hash: stream.HashOf(data)}, Data: data,
		})
	}
	return marshal(tb, b)
}

func heartbeat(tb testing.TB) []byte {
	tb.Helper()
	return marshal(tb, stream.Heartbeat{Digests: []stream.Digest{
		{Collection: stream.Statuses, Root: stream.Sum{1, 200, 3, 90, 5, 61, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, Entries: 1000},
		{Collection: stream.AppProjects, Root: stream.Sum{77, 2, 93, 4, 5, 6, 77, 8, 19, 1, 21, 12, 13, 34, 1, 16}, Entries: 3},
	}})
}

// answers is the frame that answers so many events.
func answers(tb testing.TB, n int) []byte {
	tb.Helper()
	var a stream.Applied
	random := rand.New(rand.NewPCG(3, 4))
	for i := range n {
		a.Results = append(a.Results, stream.Result{
			Key:   stream.EntryKey{Collection: stream.Statuses, Name: fmt.Sprint("guestbook-", i)},
			Event: fmt.Sprintf("0b5e1c5c-3f0e-4a51-9f6b-5d8a1f3c2b1a.%d", i),
			Held:  stream.Version{SourceUID: fmt.Sprintf("f2a1c0de-0000-4000-8000-%012x", i), Hash: stream.HashOf(fmt.Append(nil, random.Uint64()))},
		})
	}
	return marshal(tb, a)
}

func marshal(tb testing.TB, m stream.Message) []byte {
	tb.Helper()
	raw, err := proto.Marshal(stream.FrameOf(m))
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// Benchmark compares what a message costs: time, and bytes on the wire.
func Benchmark(b *testing.B) {
	messages := []struct {
		name string
		raw  []byte
	}{
		{"heartbeat", heartbeat(b)}, {"answer", answers(b, 1)}, {"8answers", answers(b, 8)}, {"256answers", answers(b, 256)},
		{"status", batch(b, 1)}, {"100statuses", batch(b, 100)},
	}
	for _, m := range messages {
		for _, c := range []encoding.Compressor{zstd.New(), encoding.GetCompressor(gzip.Name)} {
			var packed bytes.Buffer
			b.Run("Compress/"+m.name+"/"+c.Name(), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(m.raw)))
				for b.Loop() {
					packed.Reset()
					compress(b, c, &packed, m.raw)
				}
				b.ReportMetric(float64(packed.Len()), "bytes")
			})
			b.Run("Decompress/"+m.name+"/"+c.Name(), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(m.raw)))
				for b.Loop() {
					decompress(b, c, packed.Bytes())
				}
			})
		}
	}
}

func compress(tb testing.TB, c encoding.Compressor, to io.Writer, raw []byte) {
	tb.Helper()
	w, err := c.Compress(to)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := w.Write(raw); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
}

func decompress(tb testing.TB, c encoding.Compressor, packed []byte) {
	tb.Helper()
	r, err := c.Decompress(onlyReader{bytes.NewReader(packed)})
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		tb.Fatal(err)
	}
	if closer, ok := r.(io.Closer); ok {
		_ = closer.Close()
	}
}

// onlyReader hides what else a reader can, as gRPC's does.
type onlyReader struct{ io.Reader }

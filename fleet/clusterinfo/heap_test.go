package clusterinfo_test

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/fleet/clusterinfo"
	"github.com/argomesh/argomesh/test/heap"
)

// mostHeap is what any value may take: eight times the longest there is unpacked, and
// never more than 64 MiB.
const mostHeap = 64 << 20

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Whatever an Argo CD keeps of a cluster, to read it takes little.
func TestHeapOfEntries(t *testing.T) {
	const most = 8 << 20 // that is read, unpacked
	full := func(begin, element, end string) string {
		return begin + strings.TrimSuffix(strings.Repeat(element+",", (most-len(begin)-len(end))/(len(element)+1)), ",") + end
	}
	for name, text := range map[string]string{
		"a long text":         full(`{"serverVersion":"`+strings.Repeat("x", most-100), "", `"}`),
		"a long time":         full(`{"cacheInfo":{"lastCacheSyncTime":"`+strings.Repeat("\x7f", most-100), "", `"}}`),
		"escapes in a time":   full(`{"cacheInfo":{"lastCacheSyncTime":"`+strings.Repeat(`\u0001`, most/6-100), "", `"}}`),
		"a long number":       full(`{"applicationsCount":`+strings.Repeat("1", most-100), "", `}`),
		"objects":             full(`{"x":[`, `{}`, `]}`),
		"members":             full(`{`, `"cacheInfo":{}`, `}`),
		"depth":               strings.Repeat(`[`, most),
		"more than is read":   strings.Repeat(` `, 4*most),
		"what is not of JSON": strings.Repeat("\x00", most),
	} {
		value := gzipped(t, text)
		var err error
		if took := heap.Of(func() { _, err = (clusterinfo.Format{}).Decode(value) }); took > mostHeap {
			t.Errorf("%s: %d bytes of heap for %d, %d unpacked: %.100v", name, took, len(value), len(text), err)
		}
	}
	for name, text := range map[string]string{"plain text": `{"serverVersion":"` + strings.Repeat("x", clusterinfo.MaxBytes-100) + `"}`} {
		if took := heap.Of(func() { _, _ = (clusterinfo.Format{Plain: true}).Decode([]byte(text)) }); took > uint64(8*len(text)) {
			t.Errorf("%s: %d bytes of heap for %d", name, took, len(text))
		}
	}
}

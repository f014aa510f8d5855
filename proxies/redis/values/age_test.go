package values

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/proxies/redis/resp"
	"github.com/argomesh/argomesh/test/heap"
)

// pack compresses as Argo CD does.
func pack(t testing.TB, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A tree says at its roots how old it is, and is else what it was.
func TestMarkTree(t *testing.T) {
	const (
		tree = `{"nodes":[{"kind":"Deployment","name":"shop","info":[{"name":"Revision","value":"Rev:1"}]},
			{"kind":"Pod","name":"shop-1","parentRefs":[{"kind":"ReplicaSet","name":"shop"}],"x":12345678901234567890},{"kind":"Service","name":"<shop>"},null],
			"orphanedNodes":[{"kind":"Job"}],"shardsCount":3}`
		mark = `{"name":"Last known","value":"as of 12:00:00 UTC on 2026-11-21, agent edge-1 is away"}`
		want = `{"nodes":[{"kind":"Deployment","name":"shop","info":[` + mark + `,{"name":"Revision","value":"Rev:1"}]},
			{"kind":"Pod","name":"shop-1","parentRefs":[{"kind":"ReplicaSet","name":"shop"}],"x":12345678901234567890},{"kind":"Service","name":"<shop>","info":[` + mark + `]},null],
			"orphanedNodes":[{"kind":"Job"}],"shardsCount":3}`
	)
	age := "as of " + Clock(time.Date(2026, 11, 21, 13, 0, 0, 0, time.FixedZone("CET", 3600))) + ", agent edge-1 is away"
	parsed := func(text []byte) (v any) {
		t.Helper()
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, compressed := range []bool{true, false} {
		value := []byte(tree)
		if compressed {
			value = pack(t, value)
		}
		got, err := MarkTree(value, compressed, age)
		if err != nil {
			t.Fatal(err)
		}
		if compressed {
			r, err := gzip.NewReader(bytes.NewReader(got))
			if err != nil {
				t.Fatal(err)
			}
			if got, err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(parsed([]byte(want)), parsed(got)); diff != "" {
			t.Errorf("compressed %t (-want +got)\n%s", compressed, diff)
		}
	}
	for name, tree := range map[string]string{
		"with resources twice":                    `{"nodes":[{"kind":"Pod"}],"nodes":[{"kind":"Pod"}]}`,
		"that its marks would make far too large": `{"nodes":[` + strings.Repeat("{},", maxMarkedBytes/100) + `{}]}`,
	} {
		took := heap.Of(func() {
			if _, err := MarkTree([]byte(tree), false, age); !errors.Is(err, errUnmarked) {
				t.Errorf("a tree %s: %v", name, err)
			}
		})
		if took > MarkingBytes {
			t.Errorf("a tree %s takes %d bytes, and %d are counted", name, took, MarkingBytes)
		}
	}
	padded := func(n int) []byte { return append([]byte(`{"nodes":[]}`), bytes.Repeat([]byte{' '}, n-12)...) }
	for name, tt := range map[string]struct {
		value      []byte
		compressed bool
		want       error
	}{
		"the longest":             {padded(maxMarkedBytes), false, nil},
		"longer":                  {padded(maxMarkedBytes + 1), false, resp.ErrTooLong},
		"the longest, compressed": {pack(t, padded(maxMarkedBytes)), true, nil},
		"longer, compressed":      {pack(t, padded(maxMarkedBytes+1)), true, resp.ErrTooLong},
		"not compressed":          {[]byte(tree), true, errUnmarked},
		"compressed":              {pack(t, []byte(tree)), false, errUnmarked},
		"cut":                     {pack(t, []byte(tree))[:40], true, errUnmarked},
		"empty":                   {nil, false, errUnmarked},
		"a list":                  {[]byte(`[]`), false, errUnmarked},
		"without resources":       {[]byte(`{}`), false, errUnmarked},
		"other resources":         {[]byte(`{"nodes":{}}`), false, errUnmarked},
		"other information":       {[]byte(`{"nodes":[{"info":{}}]}`), false, errUnmarked},
	} {
		if _, err := MarkTree(tt.value, tt.compressed, age); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

package values

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/proxies/redis/resp"
	"github.com/argomesh/argomesh/test/heap"
)

var (
	packedTree = appkey.Key{Family: appkey.ResourcesTree, Instance: appkey.Instance{Name: "shop"}, Format: "1.8.3.gz"}
	plainTree  = appkey.Key{Family: appkey.ResourcesTree, Instance: appkey.Instance{Name: "shop"}, Format: "1.8.3"}
)

// treeOf is a tree of n resources of which each is that.
func treeOf(n int, node string) []byte {
	return []byte(`{"nodes":[` + strings.Repeat(node+",", max(n-1, 0)) + node + `]}`)
}

// noise is text that no coding makes much shorter.
func noise(n int) string {
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz012345"[random.IntN(32)]
	}
	return string(b)
}

// repeated is a compressed text of which the middle comes n times. It is compressed once:
// what is compressed apart is unpacked as one.
func repeated(t testing.TB, first, middle string, n int, last string) []byte {
	t.Helper()
	value := bytes.Repeat(pack(t, []byte(middle)), n)
	return append(append(pack(t, []byte(first)), value...), pack(t, []byte(last))...)
}

// compressedTree is a tree of n resources of which each is that, compressed.
func compressedTree(t testing.TB, n int, node string) []byte {
	t.Helper()
	const at = 1000 // once
	return repeated(t, `{"nodes":[`+strings.Repeat(node+",", n%at), strings.Repeat(node+",", at), n/at-1, strings.Repeat(node+",", at-1)+node+`]}`)
}

// tooMuch are values that are more than passes, by the limit that they exceed.
func tooMuch(t testing.TB) map[string][]byte {
	t.Helper()
	var resources strings.Builder
	for letters := noise(64 * 100); letters != ""; letters = letters[64:] {
		resources.WriteString(`,{"info":["` + strings.Join(strings.Split(letters[:64], ""), `","`) + `"]}`)
	}
	return map[string][]byte{
		"bytes":    repeated(t, `"`, strings.Repeat(noise(1<<10), 64), maxUnpacked>>16, `"`),
		"ratio":    repeated(t, `{"nodes":[{"name":"`, strings.Repeat("x", 1<<16), 64, `"}]}`),
		"elements": compressedTree(t, valueLimits.Elements+1, `{"name":"shop"}`),
		"values":   repeated(t, `{"nodes":[{}`, resources.String(), valueLimits.Elements/100-1, `]}`),
		"depth":    pack(t, []byte(strings.Repeat(`{"nodes":[`, 40))),
		"encoding": pack(t, []byte("\"\xe2\x82")), // ends within a character
	}
}

// A value of a spoke is refused by the name of the limit that it exceeds once it is
// unpacked, whether it is there or passes piece by piece, and then its end does not come.
func TestMeasured(t *testing.T) {
	passes := func(key appkey.Key, value []byte) (written []byte, err error) {
		var out bytes.Buffer
		to := bufio.NewWriterSize(&out, 512)
		in := resp.NewWire(io.MultiReader(bytes.NewReader(value), strings.NewReader("\r\n")))
		err = CopyMeasured(in, to, len(value), key)
		_ = to.Flush()
		return out.Bytes(), err
	}
	for limit, value := range tooMuch(t) {
		written, passErr := passes(packedTree, value)
		for way, err := range map[string]error{"whole": MeasuredWhole(packedTree, value), "piece by piece": passErr} {
			var e ExcessError
			if !errors.As(err, &e) || e.Limit != limit {
				t.Errorf("%s, %s: %v", limit, way, err)
			}
		}
		if len(written) >= len(value)+2 {
			t.Errorf("%s: all of it is passed on", limit)
		}
	}
	large := treeOf(valueLimits.Elements, `{"kind":"Pod","name":"shop","uid":"`+noise(36)+`","parentRefs":[{"kind":"ReplicaSet"}]}`)
	for name, tt := range map[string]struct {
		key   appkey.Key
		value []byte
	}{
		"nothing":                        {plainTree, nil},
		"as many resources as may be":    {plainTree, large},
		"the same, compressed":           {packedTree, pack(t, append([]byte(`{"x":"`+noise(64<<10)+`",`), large[1:]...))},
		"what is not JSON":               {plainTree, []byte("x")},
		"what is not compressed":         {packedTree, large},
		"what is cut":                    {packedTree, pack(t, large)[:1000]},
		"a few bytes that unpack to 1 M": {packedTree, pack(t, []byte(`"`+strings.Repeat("x", 1<<20-2)+`"`))},
	} {
		if err := MeasuredWhole(tt.key, tt.value); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if written, err := passes(tt.key, tt.value); err != nil || !bytes.Equal(written, append(bytes.Clone(tt.value), "\r\n"...)) {
			t.Errorf("%s, piece by piece: %d bytes of %d, %v", name, len(written), len(tt.value), err)
		}
	}
}

// Whatever a spoke keeps as a tree, to measure it takes a few buffers, and to mark it
// three times the longest text that is marked.
func TestHeapOfTrees(t *testing.T) {
	values := tooMuch(t)
	for _, element := range []string{`{}`, `[]`, `null`, `{"a":1}`, `""`} {
		values["full of "+element] = compressedTree(t, (maxMarkedBytes-20)/(len(element)+1), element)
		values["as many "+element] = compressedTree(t, valueLimits.Elements, element)
	}
	values["the longest"] = repeated(t, `{"nodes":[{"name":"`, noise(1<<16), maxMarkedBytes>>16-1, `"}]}`)
	for name, value := range values {
		if took := heap.Of(func() { _ = MeasuredWhole(packedTree, value) }); took > 1<<20 {
			t.Errorf("to measure %s, %d bytes: %d bytes of heap", name, len(value), took)
		}
		if took := heap.Of(func() { _, _ = MarkTree(value, true, "as of today") }); took > instrumented*64<<20 {
			t.Errorf("to mark %s, %d bytes: %d bytes of heap", name, len(value), took)
		}
	}
}

// FuzzMark holds the marks against a decoder, and every value against what it may take.
func FuzzMark(f *testing.F) {
	for _, text := range []string{
		`{"nodes":[{"kind":"Deployment","info":[{"name":"Revision"}]},{"parentRefs":[]},{},null, { "info" : [ ] , "x":"\"]}" } ]}`,
		`{"nodes":[]}`, `{"nodes":[{}],"nodes":[{"info":[]}]}`, `{"a":[1,2.5e-3,true],"nodes":[{"a":{"b":[{}]}}]}`, `[]`, `{"nodes":[1]}`,
	} {
		f.Add([]byte(text), false)
		f.Add(pack(f, []byte(text)), true)
	}
	f.Fuzz(func(t *testing.T, value []byte, compressed bool) {
		key := plainTree
		if compressed {
			key = packedTree
		}
		var marked []byte
		var err error
		took := heap.Of(func() {
			if err = MeasuredWhole(key, value); err == nil {
				marked, err = MarkTree(value, compressed, "as of today")
			}
		})
		if took > instrumented*64<<20 {
			t.Errorf("%d bytes take %d of heap", len(value), took)
		}
		if err != nil {
			return
		}
		before, beforeErr := Expand(value, compressed)
		after, afterErr := Expand(marked, compressed)
		if beforeErr != nil || afterErr != nil {
			t.Fatal(beforeErr, afterErr)
		}
		if bytes.Contains(before, []byte(`\u`)) {
			return // a name that is written otherwise is another one to us
		}
		if diff := cmp.Diff(marking(t, before), decoded(t, after)); diff != "" {
			t.Errorf("%s is marked as %s (-want +got)\n%s", before, after, diff)
		}
	})
}

func decoded(t *testing.T, text []byte) (tree map[string]any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

// marking is a tree with its marks, by way of a decoder.
func marking(t *testing.T, text []byte) map[string]any {
	t.Helper()
	tree := decoded(t, text)
	nodes, _ := tree["nodes"].([]any)
	for _, n := range nodes {
		node, ok := n.(map[string]any)
		if _, child := node["parentRefs"]; !ok || child {
			continue
		}
		info, _ := node["info"].([]any)
		node["info"] = append([]any{map[string]any{"name": "Last known", "value": "as of today"}}, info...)
	}
	return tree
}

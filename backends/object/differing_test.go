package object_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/test/heap"
)

func TestDifferences(t *testing.T) {
	a := map[string]any{
		"same": "x", "list": []any{"a", map[string]any{"b": 1.0}}, "shorter": []any{"a"}, "a/b": "x", "gone": nil, "kind": "text",
	}
	b := map[string]any{
		"same": "x", "list": []any{"z", map[string]any{"b": 2.0}}, "shorter": []any{}, "a/b": "y", "new": nil, "kind": map[string]any{},
	}
	d := object.Differences{Most: 7}
	d.Add("spec", a, b)
	d.Add("data", "x", "x")
	want := []string{"spec[a/b]", "spec.gone", "spec.kind", "spec.list[0]", "spec.list[1].b", "spec.new", "spec.shorter"}
	if diff := cmp.Diff(want, d.Paths); diff != "" || d.Number != len(want) {
		t.Errorf("it counts %d (-want +got):\n%s", d.Number, diff)
	}
	few := object.Differences{Most: 2}
	few.Add("spec", a, b)
	if diff := cmp.Diff(want[:2], few.Paths); diff != "" || few.Number != len(want) {
		t.Errorf("of two that are named it counts %d (-want +got):\n%s", few.Number, diff)
	}
}

// Members of an object with a long key have long paths, which are written for none but those that are named.
func TestDifferencesBelowALongKey(t *testing.T) {
	long := strings.Repeat("k", 400<<10)
	members := func(value string) map[string]any {
		out := map[string]any{}
		for i := range 60_000 {
			out[fmt.Sprint(i)] = value
		}
		return map[string]any{long: out}
	}
	a, b := members("a"), members("b")
	d := object.Differences{Most: 5}
	const most = 64 << 20
	if took := heap.Of(func() { d.Add("spec", a, b) }); took > most {
		t.Errorf("it takes %d bytes of heap", took)
	}
	if len(d.Paths) != 5 || d.Number != 60_000 || d.Paths[0] != "spec."+long[:252]+"…" {
		t.Errorf("it names %d of %d, the first %q", len(d.Paths), d.Number, d.Paths[0])
	}
}

package mirror

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPruned(t *testing.T) {
	for name, tt := range map[string]struct {
		written, stored any
		want            []string
	}{
		"nothing":                  {m{"a": m{"b": "c"}, "l": []any{m{"x": "y"}}}, m{"a": m{"b": "c"}, "l": []any{m{"x": "y"}}}, nil},
		"a field":                  {m{"a": "b", "new": "x"}, m{"a": "b"}, []string{"spec.new"}},
		"a branch is one path":     {m{"a": m{"new": m{"x": "1", "y": "2"}}}, m{"a": m{}}, []string{"spec.a.new"}},
		"in a list":                {m{"sources": []any{m{"path": "."}, m{"path": ".", "new": true}}}, m{"sources": []any{m{"path": "."}, m{"path": "."}}}, []string{"spec.sources[1].new"}},
		"what is empty is no loss": {m{"a": "", "b": false, "c": m{}}, m{}, nil},
		"what was defaulted":       {m{"a": "b"}, m{"a": "b", "project": "default"}, nil},
		"no spec":                  {nil, nil, nil},
	} {
		if diff := cmp.Diff(tt.want, pruned(tt.written, tt.stored)); diff != "" {
			t.Errorf("%s: pruned() (-want +got):\n%s", name, diff)
		}
	}
}

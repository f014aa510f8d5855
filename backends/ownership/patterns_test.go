package ownership

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
)

// Neither side takes a project whose patterns would keep its Argo CD busy.
func TestDearPatternsAreRefused(t *testing.T) {
	for side, mode := range map[stream.Side]stream.Mode{stream.Hub: stream.Autonomous, stream.Spoke: stream.Managed} {
		r := ruleSet(t, side, mode)
		for stars, refused := range map[int]bool{6: false, 7: true, 40: true} {
			e := objecttest.Apply(stream.AppProjects, "p-1", 4, m{"spec": m{
				"destinations": []any{m{"name": "in-cluster", "namespace": strings.Repeat("[a-z]*", stars)}},
			}})
			key, ok := r.Local(e.Key)
			if !ok {
				t.Fatalf("%s: %v is not mapped", side, e.Key)
			}
			writes, refusal := r.Plan(e, key, nil, operations.Requests{})
			if is := refusal != nil && refusal.Kind == stream.RefusalInvalid && len(writes) == 0; is != refused {
				t.Errorf("%s, a pattern of %d stars: Plan() = %v, %v", side, stars, writes, refusal)
			}
		}
	}
}

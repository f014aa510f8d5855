package ownership

import (
	"testing"

	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
)

// A deletion is about what the sink held when it was told: not about what another
// connection has made of it since.
func TestADeletionIsAboutWhatWasHeld(t *testing.T) {
	for _, side := range []stream.Side{stream.Hub, stream.Spoke} {
		mode := stream.Autonomous
		if side == stream.Spoke {
			mode = stream.Managed
		}
		t.Run(side.String(), func(t *testing.T) {
			r := ruleSet(t, side, mode)
			r.HistoryID = "history"
			current := copyOf(t, r, objecttest.Apply(stream.Applications, "second", 7, canonical(objecttest.Object(t, appKey(r), nil, nil), m{"project": "default"})), nil)
			for deleted, want := range map[string]stream.RefusalKind{"first": stream.RefusalOutdated, "second": "", "": ""} {
				e := objecttest.Removal(stream.Applications)
				e.Deleted = deleted
				_, refusal := r.Plan(e, current.Key, &current, operations.Requests{})
				if got := kindOf(refusal); got != want {
					t.Errorf("a deletion of %q is refused as %q, want %q", deleted, got, want)
				}
			}
		})
	}
}

func kindOf(r *stream.Refusal) stream.RefusalKind {
	if r == nil {
		return ""
	}
	return r.Kind
}

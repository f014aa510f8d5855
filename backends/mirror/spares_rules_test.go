package mirror

import (
	"testing"

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
			current := copyOf(t, r, makeEvent(stream.Applications, "second", 7, canonical(makeObject(t, appKey(r), nil, nil), m{"project": "default"})), nil)
			for deleted, want := range map[string]stream.RefusalKind{"first": stream.RefusalOutdated, "second": "", "": ""} {
				e := removal(stream.Applications)
				e.Deleted = deleted
				_, refusal := r.Plan(e, current.key, &current, Requests{})
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

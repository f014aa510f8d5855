package sim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What a person has kept does not lose its workloads any more, unless that was under way.
func TestCheckKeep(t *testing.T) {
	spec := func() m { return m{"project": "default"} }
	going := func(o m, annotations m) m {
		meta, _ := o["metadata"].(m)
		meta["deletionTimestamp"], meta["finalizers"] = "2026-01-01T00:00:00Z", []any{cascadeFinalizer}
		if annotations != nil {
			meta["annotations"] = annotations
		}
		return o
	}
	kept := m{keepAnnotation: "true"}
	start := func(by Writer, annotations m) *logbook {
		return newLogbook().raw(hubPlace, People, "h", false, hubs("", spec())).
			raw("far", AgentSide, "c", false, theirs(adoptedFrom(""), spec())).
			raw(hubPlace, People, "h", false, going(hubs("", spec()), nil)).
			raw(hubPlace, by, "h", false, going(hubs("", spec()), annotations))
	}
	later := func(b *logbook) *logbook {
		for range int(lateTime/time.Second) + 1 {
			b.note(Entry{Place: "far", Note: Started})
		}
		return b
	}
	takes := func(b *logbook) *logbook {
		return b.raw("far", AgentSide, "c", false, going(theirs(adoptedFrom(""), spec()), nil))
	}
	for name, c := range map[string]struct {
		log  *logbook
		want []string
	}{
		"nobody keeps them":                 {log: takes(later(start(People, m{})))},
		"they go though a person kept them": {log: takes(later(start(People, kept))), want: []string{"I4"}},
		"they were going when he did":       {log: takes(start(People, kept))},
		"the copy goes, and they stay":      {log: later(start(People, kept)).raw("far", AgentSide, "c", true, theirs(adoptedFrom(""), spec()))},
		"the copy goes though nobody kept it": {
			log: later(start(People, m{})).raw("far", AgentSide, "c", true, theirs(adoptedFrom(""), spec())), want: []string{"I4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, found(c.log.log)); diff != "" {
				t.Errorf("Check() (-want +got):\n%s%s", diff, describe(Check(c.log.log)))
			}
		})
	}
}

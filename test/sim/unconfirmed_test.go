package sim

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/stream"
)

// What the selector takes from an agent in the midst of its deletion may stay on the spoke for
// as long as no one there confirms it, and no longer.
func TestCheckUnconfirmed(t *testing.T) {
	const deleted = "2026-01-01T00:00:10Z"
	source := func(path string) m { return m{"project": "default", "source": m{"path": path}} }
	going := func(o m) m {
		o["metadata"].(m)["deletionTimestamp"], o["metadata"].(m)["finalizers"] = deleted, []any{cascadeFinalizer}
		return o
	}
	approved := func(at string) m {
		annotations := adoptedFrom("")
		annotations[approvedAnnotation] = at
		return annotations
	}
	log := func(copied m) Log {
		b := newLogbook().raw(hubPlace, People, "h", false, hubs("", source(confirmPath))).
			raw("far", AgentSide, "c", false, theirs(adoptedFrom(""), source(confirmPath))).
			raw(hubPlace, People, "h", false, going(hubs("", source(confirmPath)))).
			note(Entry{Place: "far", Note: Switched, Side: stream.Hub, Setting: setSelector, On: true})
		return b.raw("far", AgentSide, "c", false, copied).knows(nil, nil)
	}
	for name, c := range map[string]struct {
		log  Log
		want []string
	}{
		"nobody has confirmed it":            {log: log(going(theirs(adoptedFrom(""), source(confirmPath))))},
		"what was confirmed was another one": {log: log(going(theirs(approved("2026-01-01T00:00:09Z"), source(confirmPath))))},
		"it was confirmed":                   {log: log(going(theirs(approved(deleted), source(confirmPath)))), want: []string{"I8"}},
		"nothing wants a confirmation":       {log: log(going(theirs(adoptedFrom(""), source("other")))), want: []string{"I8"}},
		"it is not being deleted":            {log: log(theirs(adoptedFrom(""), source(confirmPath))), want: []string{"I8"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, found(c.log)); diff != "" {
				t.Errorf("Check() (-want +got):\n%s%s", diff, describe(Check(c.log)))
			}
		})
	}
}

package ownership

import (
	"testing"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
)

// A Delete that names what was deleted is carried out on the copy of that very object
// alone.
func TestPlanOfASeenDeletion(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	spoke.HistoryID = "history-1"
	e := objecttest.Apply(stream.Applications, "hub-app", 9, m{"spec": m{"project": "default", "destination": m{"name": "edge-1"}}})
	another := spoke
	another.HistoryID = "history-2"
	for name, c := range map[string]struct {
		rules    Rules
		deleted  string
		revision uint64
		there    bool
		releases bool
		refusal  stream.RefusalKind
	}{
		"of this object":                        {spoke, "hub-app", 9, true, true, ""},
		"of another one":                        {spoke, "other", 12, true, false, stream.RefusalOutdated},
		"before what this is a copy of":         {spoke, "hub-app", 8, true, false, stream.RefusalOutdated},
		"at a revision that nobody can compare": {another, "hub-app", 8, true, true, ""},
		"of what is not there":                  {spoke, "hub-app", 12, false, false, ""},
		"of whatever there is":                  {spoke, "", 0, true, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var current *object.Object
			key := appKey(spoke)
			if c.there {
				o := copyOf(t, spoke, e, nil)
				current, key = &o, o.Key
			}
			gone := objecttest.Removal(stream.Applications)
			gone.Deleted, gone.Revision = c.deleted, c.revision
			writes, refusal := c.rules.Plan(gone, key, current, operations.Requests{})
			kind := stream.RefusalKind("")
			if refusal != nil {
				kind = refusal.Kind
			}
			if (len(writes) > 0) != c.releases || kind != c.refusal {
				t.Errorf("Plan() = %d writes, refused %q", len(writes), kind)
			}
		})
	}
}

// What the agent had of the hub, and what it had not, when it was deleted.
func TestWasSent(t *testing.T) {
	hub, key := ruleSet(t, stream.Hub, stream.Managed), appKey(ruleSet(t, stream.Hub, stream.Managed))
	here := m{"spec": m{"destination": m{"name": "edge-1"}}}
	for name, c := range map[string]struct {
		rules Rules
		meta  m
		rest  m
		want  bool
	}{
		"the agent's":                     {hub, nil, here, true},
		"being deleted without workloads": {hub, m{"deletionTimestamp": now}, here, true},
		"being deleted with them":         {hub, m{"deletionTimestamp": now, "finalizers": []any{object.CascadeFinalizer}}, here, true},
		"to be ignored":                   {hub, m{"labels": m{object.IgnoreSyncKey: "true"}}, here, false},
		"for elsewhere":                   {hub, nil, m{"spec": m{"destination": m{"name": "elsewhere"}}}, false},
		"a mirror":                        {hub, m{"annotations": m{object.SourceUIDKey: "u", object.RecordKey: "{}"}}, here, false},
		"of an autonomous agent":          {ruleSet(t, stream.Hub, stream.Autonomous), nil, here, false},
	} {
		if got := c.rules.WasSent(objecttest.Object(t, key, c.meta, c.rest)); got != c.want {
			t.Errorf("%s: wasSent() = %t", name, got)
		}
	}
}

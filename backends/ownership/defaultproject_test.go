package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

func TestDefaultProjectIsSharedByDecision(t *testing.T) {
	for name, c := range map[string]struct {
		decided  DefaultProject
		gives    bool
		project  string
		sent, up bool // sent to the spoke; given up there when it is not
	}{
		"not shared":       {NotShared, true, "default", false, true},
		"shared":           {Shared, true, "default", true, false},
		"no longer shared": {NoLongerShared, true, "default", false, true},
		"no longer shared, with an agent that would lose": {NoLongerShared, false, "default", true, false},
		"another project": {NotShared, true, "team", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := ruleSet(t, stream.Hub, stream.Managed)
			r.DefaultProject, r.GivesUp = c.decided, c.gives
			o := objecttest.Object(t, projectKey(r, c.project), nil, m{"spec": m{
				"sourceNamespaces": []any{"*"}, "destinations": []any{m{"server": "*", "namespace": "*"}},
			}})
			entry := stream.EntryKey{Collection: stream.AppProjects, Name: c.project}
			if _, sent := r.Content(stream.AppProjects, o, operations.Requests{}); sent != c.sent || r.GivesUpEntry(entry) != c.up {
				t.Errorf("sent %v, given up %v, want %v, %v", sent, r.GivesUpEntry(entry), c.sent, c.up)
			}
		})
	}
}

func TestGivingUpLeavesTheObject(t *testing.T) {
	r := adopting(ruleSet(t, stream.Spoke, stream.Managed))
	e := objecttest.Apply(stream.AppProjects, "project-1", 7, m{
		"labels": m{"team": "a"}, "annotations": m{}, "spec": m{"description": "of the hub", "destinations": []any{m{"server": "*", "namespace": "*"}}},
	})
	e.Key.Name = "default"
	theirs := copyOf(t, r, e, nil)
	gone := stream.Event{ID: "c.2", Key: e.Key, Verb: stream.Delete, GiveUp: true}

	writes, refusal := r.Plan(gone, theirs.Key, &theirs, operations.Requests{})
	if refusal != nil || len(writes) != 1 || writes[0].Op != Update {
		t.Fatalf("Plan() = %+v, %+v, want one update", viewsOf(t, theirs.Key, writes), refusal)
	}
	left := stored(t, theirs.Key, writes, nil)
	if record.Has(left) || !r.Stored(stream.AppProjects, left, nil).Absent() {
		t.Error("it still counts as a copy")
	}
	if diff := cmp.Diff(theirs.Fields["spec"], left.Fields["spec"]); diff != "" {
		t.Errorf("the spec changed (-before +after)\n%s", diff)
	}
	if left.Label("team") != "a" {
		t.Error("it lost its label")
	}

	if writes, _ := r.Plan(gone, left.Key, &left, operations.Requests{}); len(writes) != 0 {
		t.Errorf("what was given up is written again: %+v", viewsOf(t, left.Key, writes))
	}
	app := copyOf(t, r, objecttest.Apply(stream.Applications, "app-1", 7, m{"labels": m{}, "annotations": m{}, "spec": m{}}), nil)
	gone.Key.Collection, gone.Key.Name = stream.Applications, app.Key.Name
	if writes, _ := r.Plan(gone, app.Key, &app, operations.Requests{}); len(writes) != 2 || writes[1].Op != Delete {
		t.Errorf("an Application cannot be given up, and is not released: %+v", viewsOf(t, app.Key, writes))
	}
}

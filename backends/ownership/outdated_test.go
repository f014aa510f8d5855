package ownership

import (
	"math/rand/v2"
	"testing"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// TestPlanOfAnOutdatedEvent lets an event of revision 8 come to what was written
// from one of revision 9 (I2).
func TestPlanOfAnOutdatedEvent(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	spoke.HistoryID = "h-1"
	in := func(history string) Rules {
		r := spoke
		r.HistoryID = history
		return r
	}
	heir := spoke
	heir.FormerHubs, heir.Inherits = []string{"hub-2"}, true
	const refused = "outdated: it was read at revision 8 of the hub, and the spoke has what was read at revision 9"
	app := func(uid string, revision uint64, project string) stream.Event {
		return objecttest.Apply(stream.Applications, uid, revision, m{"spec": m{"project": project}})
	}
	leaving := objecttest.Apply(stream.Applications, "hub-app", 8, m{"leaving": []any{object.CascadeFinalizer}, "spec": m{}})
	has := copied(spoke, app("hub-app", 9, "new"), nil)
	tests := map[string]struct {
		rules   Rules
		event   stream.Event
		current func(*testing.T) *object.Object
		writes  bool
		refused bool
	}{
		"an older spec":                         {spoke, app("hub-app", 8, "old"), has, false, true},
		"an older spec that is the same":        {spoke, app("hub-app", 8, "new"), has, false, true},
		"an older witness of a deletion":        {spoke, leaving, has, false, true},
		"the same revision":                     {spoke, app("hub-app", 9, "other"), has, true, false},
		"a newer revision":                      {spoke, app("hub-app", 10, "newer"), has, true, false},
		"an earlier object of that name":        {spoke, app("hub-app-0", 8, "old"), has, false, true},
		"a later object of that name":           {spoke, app("hub-app-2", 10, "newer"), has, true, false},
		"nothing is there":                      {spoke, app("hub-app", 8, "old"), nil, true, false},
		"another history":                       {in("h-2"), app("hub-app", 8, "old"), has, true, false},
		"a history that is not known":           {in(""), app("hub-app", 8, "old"), has, true, false},
		"a copy from before there was one":      {spoke, app("hub-app", 8, "old"), copied(in(""), app("hub-app", 9, "new"), nil), true, false},
		"a revision that is no number":          {spoke, app("hub-app", 0, "old"), has, true, false},
		"an object that is not ours":            {adopting(spoke), app("hub-app", 8, "old"), foreign(spoke, nil, m{"spec": m{}}), true, false},
		"the copy of an earlier hub":            {heir, app("hub-app", 8, "old"), copied(spoke, app("hub-app", 9, "new"), func(o *object.Object) { o.SetAnnotation(object.PrincipalUIDKey, "hub-2") }), true, false},
		"an absence has no revision":            {spoke, objecttest.Removal(stream.Applications), has, true, false},
		"a damaged record, which tells nothing": {spoke, app("hub-app", 8, "old"), copied(spoke, app("hub-app", 9, "new"), func(o *object.Object) { o.SetAnnotation(object.RecordKey, "}{") }), true, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var current *object.Object
			key := appKey(test.rules)
			if test.current != nil {
				current = test.current(t)
			}
			writes, refusal := test.rules.Plan(test.event, key, current, operations.Requests{})
			want := ""
			if test.refused {
				want = refused
			}
			if got := refusalText(refusal); got != want || test.writes != (len(writes) > 0) {
				t.Errorf("Plan() = %d writes, refusal %q", len(writes), got)
			}
		})
	}
	t.Run("a project", func(t *testing.T) {
		project := func(revision uint64) stream.Event {
			return objecttest.Apply(stream.AppProjects, "hub-project", revision, m{"spec": m{"destinations": []any{}, "description": revision}})
		}
		current := copied(spoke, project(9), nil)(t)
		if _, refusal := spoke.Plan(project(8), current.Key, current, operations.Requests{}); refusalText(refusal) != refused {
			t.Errorf("Plan() = %q", refusalText(refusal))
		}
	})
	t.Run("a mirror on the hub, whose revisions are the spoke's", func(t *testing.T) {
		hub := ruleSet(t, stream.Hub, stream.Autonomous)
		hub.HistoryID = "h-1"
		current := copied(hub, app("spoke-app", 9, "new"), nil)(t)
		if writes, refusal := hub.Plan(app("spoke-app", 8, "old"), current.Key, current, operations.Requests{}); refusal != nil || len(writes) == 0 {
			t.Errorf("Plan() = %d writes, %q", len(writes), refusalText(refusal))
		}
	})
}

// TestOutdatedNeverGoesBackAndNeverBlocks feeds events in any order, now and then
// from another history. Within one, what the spoke has never goes back; the newest
// state of the hub is always taken.
func TestOutdatedNeverGoesBackAndNeverBlocks(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 2)) //nolint:gosec // a schedule, not a secret
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	spoke.HistoryID = "h-0"
	event := func(revision uint64) stream.Event {
		return objecttest.Apply(stream.Applications, "hub-app", revision, m{"spec": m{"revision": revision}})
	}
	key := appKey(spoke)
	var current *object.Object
	newest, refusals := uint64(1000), 0
	for range 3000 {
		switch random.IntN(20) {
		case 0: // the hub is restored
			spoke.HistoryID = "h-" + string(rune('a'+random.IntN(26)))
			newest = 1 + random.Uint64N(newest)
			if old := current; old != nil {
				rec, _ := record.Of(*old)
				if rec.History == spoke.HistoryID {
					spoke.HistoryID += "'" // an id is never used again
				}
			}
		case 1, 2, 3:
			newest++
		}
		e := event(newest - min(newest-1, random.Uint64N(3)))
		var before record.Record
		if current != nil {
			before, _ = record.Of(*current)
		}
		writes, refusal := spoke.Plan(e, key, current, operations.Requests{})
		if refusal != nil {
			refusals++
			if e.Revision == newest {
				t.Fatalf("the newest state is refused: %s", refusal.Message)
			}
			continue
		}
		if len(writes) == 0 {
			continue
		}
		o := stored(t, key, writes, nil)
		after, _ := record.Of(o)
		if after.History == before.History && after.Revision < before.Revision {
			t.Fatalf("in history %s the spoke went from revision %d to %d", after.History, before.Revision, after.Revision)
		}
		current = &o
	}
	if refusals == 0 {
		t.Error("no event was refused: the test shows nothing")
	}
}

// TestCreatedIsOfTheSameHistory: by the revision from which a copy was made it is
// told whether a command was sent before, so it must not be of another history.
func TestCreatedIsOfTheSameHistory(t *testing.T) {
	first, second := ruleSet(t, stream.Spoke, stream.Managed), ruleSet(t, stream.Spoke, stream.Managed)
	first.HistoryID, second.HistoryID = "h-1", "h-2"
	made := objecttest.Apply(stream.Applications, "hub-app", 5000, m{"spec": m{"project": "a"}})
	restored := objecttest.Apply(stream.Applications, "hub-app", 3000, m{"spec": m{"project": "b"}})
	leaving := objecttest.Apply(stream.Applications, "hub-app", 3000, m{"leaving": []any{object.CascadeFinalizer}, "spec": m{"project": "a"}})
	for name, test := range map[string]struct {
		rules Rules
		event stream.Event
		want  uint64
	}{
		"the same history":                     {first, objecttest.Apply(stream.Applications, "hub-app", 5001, m{"spec": m{}}), 5000},
		"another history":                      {second, restored, 1},
		"another history, in which it is gone": {second, leaving, 1},
	} {
		t.Run(name, func(t *testing.T) {
			current := copied(first, made, nil)(t)
			writes, refusal := test.rules.Plan(test.event, current.Key, current, operations.Requests{})
			if refusal != nil {
				t.Fatal(refusal)
			}
			rec, _ := record.Of(stored(t, current.Key, writes, nil))
			if rec.Created != test.want || rec.History != test.rules.HistoryID {
				t.Errorf("made at %d in history %q, want %d", rec.Created, rec.History, test.want)
			}
		})
	}
}

// TestCommandsOfHistories: a command runs on a copy that was there when it became
// free to be sent, in whichever history, and on no other.
func TestCommandsOfHistories(t *testing.T) {
	made := objecttest.Apply(stream.Applications, "hub-app", 5000, m{"spec": m{"project": "a"}})
	later := objecttest.Apply(stream.Applications, "hub-app", 3000, m{"spec": m{"project": "b"}})
	in := func(history string) Rules {
		r := ruleSet(t, stream.Spoke, stream.Managed)
		r.HistoryID = history
		return r
	}
	for name, test := range map[string]struct {
		first, second string // the histories of the copy's making and of its last write; no second is no write
		now, after    string // the history of the moment, and what the command says
		runs          bool
	}{
		"of the copy's history, after it":              {"h-1", "", "h-1", "5000@h-1", true},
		"of the copy's history, before it":             {"h-1", "", "h-1", "4999@h-1", false},
		"of the present history, the copy is older":    {"h-1", "", "h-2", "7@h-2", true},
		"the older copy was written since":             {"h-1", "h-2", "h-2", "7@h-2", true},
		"of an earlier history, the copy is of it":     {"h-1", "", "h-2", "5000@h-1", true},
		"of an earlier history, the copy may be later": {"h-2", "", "h-2", "6000@h-1", false},
		"of an earlier history, the copy was written":  {"h-1", "h-2", "h-2", "6000@h-1", false},
		"of no history, as the copy":                   {"", "", "", "5000", true},
		"of no history, the copy is later":             {"h-1", "", "h-1", "6000", false},
		"of no history, and none is known now":         {"h-1", "", "", "6000", false},
		"the first history has begun since the copy":   {"", "", "h-1", "5001@h-1", true},
		"the copy was made while it was not known":     {"", "", "h-1", "4999@h-1", false},
		"and was written since":                        {"", "h-1", "h-1", "4999@h-1", false},
	} {
		t.Run(name, func(t *testing.T) {
			o := *copied(in(test.first), made, nil)(t)
			if test.second != "" {
				writes, refusal := in(test.second).Plan(later, o.Key, &o, operations.Requests{})
				if refusal != nil {
					t.Fatal(refusal)
				}
				o = stored(t, o.Key, writes, nil)
			}
			command := objecttest.Apply(stream.Commands, "hub-app", 9000, m{"operation": m{
				"sync": m{}, "info": []any{m{"name": object.CommandInfo, "value": "c-1"}, m{"name": object.AfterInfo, "value": test.after}},
			}})
			writes, refusal := in(test.now).Plan(command, o.Key, &o, operations.Requests{})
			if runs := len(writes) > 0 && refusal == nil; runs != test.runs {
				t.Errorf("Plan() = %d writes, %v; it runs: %t, want %t", len(writes), refusal, runs, test.runs)
			}
		})
	}
}

package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
)

// mirrors are an event of each kind of which a hub keeps mirrors, and the rules of its agent.
func mirrors(t *testing.T) map[string]struct {
	rules Rules
	event stream.Event
} {
	t.Helper()
	autonomous, managed := ruleSet(t, stream.Hub, stream.Autonomous), ruleSet(t, stream.Hub, stream.Managed)
	managed.Children = true
	autonomous.Hub, managed.Hub = "hub-1", "hub-1"
	app := m{"labels": m{}, "annotations": m{}, "spec": m{"project": "", "destination": m{"server": object.InClusterServer}}, "status": m{}}
	project := m{"labels": m{}, "annotations": m{}, "spec": m{"sourceRepos": []any{"*"}}}
	return map[string]struct {
		rules Rules
		event stream.Event
	}{
		"an Application":      {autonomous, objecttest.Apply(stream.Applications, "u-1", 3, app)},
		"an AppProject":       {autonomous, objecttest.Apply(stream.AppProjects, "u-1", 3, project)},
		"a child application": {managed, objecttest.Apply(stream.Children, "u-1", 3, app)},
	}
}

func TestMirrorsNameTheirHub(t *testing.T) {
	for name, test := range mirrors(t) {
		t.Run(name, func(t *testing.T) {
			written := copyOf(t, test.rules, test.event, nil)
			if got := written.Annotation(object.HubKey); got != "hub-1" {
				t.Errorf("the mirror names hub %q", got)
			}
			if raw, needed := test.rules.PlanHubUpdate(written, LinkState{}); needed {
				t.Errorf("Tend() = %s", raw)
			}
			if got := test.rules.Stored(test.event.Key.Collection, written, nil); got != test.event.Version {
				t.Errorf("Held() = %v, want %v", got, test.event.Version)
			}
		})
	}
}

// What an earlier release wrote is marked by one write, which changes nothing else, and is no
// drift.
func TestMirrorsOfEarlierReleasesAreMarked(t *testing.T) {
	for name, test := range mirrors(t) {
		t.Run(name, func(t *testing.T) {
			earlier := test.rules
			earlier.Hub = ""
			written := copyOf(t, earlier, test.event, nil)
			if written.Annotation(object.HubKey) != "" {
				t.Fatal("it is marked by who does not know the hub")
			}
			if raw, needed := earlier.PlanHubUpdate(written, LinkState{}); needed {
				t.Fatalf("Tend() of who does not know the hub = %s", raw)
			}
			raw, needed := test.rules.PlanHubUpdate(written, LinkState{})
			if !needed {
				t.Fatal("Tend() leaves it unmarked")
			}
			fields, err := object.Decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			marked := object.Object{Key: written.Key, Fields: fields}
			if got := test.rules.Stored(test.event.Key.Collection, marked, nil); got != test.event.Version {
				t.Errorf("Held() = %v, want %v", got, test.event.Version)
			}
			if again, needed := test.rules.PlanHubUpdate(marked, LinkState{}); needed {
				t.Errorf("Tend() again = %s", again)
			}
			writes, refusal := test.rules.Plan(test.event, marked.Key, &marked, operations.Requests{})
			if len(writes) != 0 || refusal != nil {
				t.Errorf("Plan() = %d writes, %v", len(writes), refusal)
			}
			delete(marked.Child("metadata", "annotations"), object.HubKey)
			if diff := cmp.Diff(written.Fields, marked.Fields); diff != "" {
				t.Errorf("beside the mark (-before +after)\n%s", diff)
			}
		})
	}
}

// A mirror that names another hub is written once more; no one takes the mark away without
// having something to write.
func TestMirrorsOfAnotherHubAreMarkedWithTheirNextWrite(t *testing.T) {
	for name, test := range mirrors(t) {
		t.Run(name, func(t *testing.T) {
			other := copyOf(t, test.rules, test.event, func(o object.Object) { o.SetAnnotation(object.HubKey, "hub-2") })
			if raw, needed := test.rules.PlanHubUpdate(other, LinkState{}); needed {
				t.Errorf("Tend() = %s", raw)
			}
			if got := test.rules.Stored(test.event.Key.Collection, other, nil); got == test.event.Version {
				t.Error("nobody sends it once more")
			}
			writes, refusal := test.rules.Plan(test.event, other.Key, &other, operations.Requests{})
			if refusal != nil {
				t.Fatalf("Plan() = %v", refusal)
			}
			ours := stored(t, other.Key, writes, nil)
			if got := ours.Annotation(object.HubKey); got != "hub-1" {
				t.Errorf("the mirror names hub %q", got)
			}
			if got := test.rules.Stored(test.event.Key.Collection, ours, nil); got != test.event.Version {
				t.Errorf("Held() = %v, want %v", got, test.event.Version)
			}
		})
	}
}

func TestNothingButMirrorsIsMarked(t *testing.T) {
	managed, autonomous := ruleSet(t, stream.Hub, stream.Managed), ruleSet(t, stream.Hub, stream.Autonomous)
	managed.Hub, autonomous.Hub = "hub-1", "hub-1"
	event := mirrors(t)["an Application"].event
	mirror := copyOf(t, ruleSet(t, stream.Hub, stream.Autonomous), event, nil)
	copied := copyOf(t, ruleSet(t, stream.Spoke, stream.Managed), event, nil)
	deleting := mirror.Clone()
	deleting.Ensure("metadata")["deletionTimestamp"] = now
	for name, test := range map[string]struct {
		rules Rules
		o     object.Object
	}{
		"an Application of the hub":        {managed, objecttest.Object(t, appKey(managed), nil, m{"spec": m{"destination": m{"name": "edge-1"}}})},
		"one in an autonomous namespace":   {autonomous, objecttest.Object(t, appKey(autonomous), nil, nil)},
		"a mirror of a former mode":        {managed, mirror},
		"a mirror that is being deleted":   {autonomous, deleting},
		"a spoke's copy on the hub":        {autonomous, copied},
		"a mirror of another agent's link": {autonomous, copyOf(t, ruleSet(t, stream.Hub, stream.Autonomous), event, func(o object.Object) { o.SetAnnotation(object.RecordKey, `{"agent":"edge-2"}`) })},
	} {
		t.Run(name, func(t *testing.T) {
			if test.rules.NamesNoHub(test.o) || test.rules.NamesOtherHub(test.o) {
				t.Error("it is taken for a mirror of this hub")
			}
			if raw, needed := test.rules.PlanHubUpdate(test.o, LinkState{}); needed && (object.Object{Fields: must(t, raw)}).Annotation(object.HubKey) != "" {
				t.Errorf("Tend() = %s", raw)
			}
		})
	}
}

func must(t *testing.T, raw []byte) m {
	t.Helper()
	fields, err := object.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

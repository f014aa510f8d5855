package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// begun is what is written of a copy whose cascading deletion an event tells.
func begun(t testing.TB, r Rules, leaving stream.Event, o object.Object) []Write {
	t.Helper()
	writes, refusal := r.Plan(leaving, o.Key, &o, operations.Requests{})
	if refusal != nil {
		t.Fatalf("Plan() = %+v", refusal)
	}
	return writes
}

// TestPlanOfWhatChangesWhileItGoes changes labels and annotations of an Application on the
// hub while its copy is being deleted.
func TestPlanOfWhatChangesWhileItGoes(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	const before, after = "2025-12-31T23:59:59Z", "2026-01-01T00:00:01Z" // of the copy's deletionTimestamp
	event := func(annotations m, more m) stream.Event {
		data := m{"leaving": []any{object.CascadeFinalizer}, "labels": m{"team": "a"}, "annotations": annotations, "spec": m{"project": "p"}}
		for key, value := range more {
			data[key] = value
		}
		return objecttest.Apply(stream.Applications, "hub-app", 15, data)
	}
	leaving := event(m{"note": "x"}, nil)
	going := func(change func(*object.Object)) func(*testing.T) *object.Object {
		return func(t *testing.T) *object.Object {
			t.Helper()
			o := copyOf(t, spoke, objecttest.Apply(stream.Applications, "hub-app", 9, m{"labels": m{"team": "a"}, "annotations": m{"note": "x"}, "spec": m{"project": "p"}}), nil)
			o = stored(t, o.Key, begun(t, spoke, leaving, o), nil)
			o.Ensure("metadata")["deletionTimestamp"] = now
			if change != nil {
				change(&o)
			}
			return &o
		}
	}
	annotated := func(pairs m) m {
		out := m{object.SourceUIDKey: "hub-app", object.PrincipalUIDKey: "hub-1"}
		for key, value := range pairs {
			out[key] = value
		}
		return out
	}
	written := func(annotations m, change func(*view)) []view {
		v := view{
			Op: Update, Labels: m{"team": "a"}, Annotations: annotated(annotations), Spec: m{"project": "p", "destination": m{"name": "in-cluster"}},
			Leaving: true, Finalizers: []string{object.CascadeFinalizer}, SourceLabels: []string{"team"}, Created: 9, Revision: 15,
		}
		if change != nil {
			change(&v)
		}
		return []view{v}
	}
	owners := func(o *object.Object) { // who deletes the copy by himself
		rec, _ := record.Of(*o)
		rec.Leaving = false
		stamp(*o, rec)
	}
	yes := m{"approved": true}
	for name, test := range map[string]struct {
		event   stream.Event
		current func(*testing.T) *object.Object
		want    []view
	}{
		"nothing": {leaving, going(nil), nil},
		"a confirmation is said in the time of the copy's deletion": {event(m{"note": "x", approvedKey: before}, yes), going(nil),
			written(m{"note": "x", approvedKey: now}, nil)},
		"a later one as it is":            {event(m{"note": "x", approvedKey: after}, yes), going(nil), written(m{"note": "x", approvedKey: after}, nil)},
		"one of another deletion is none": {event(m{"note": "x", approvedKey: after}, nil), going(func(o *object.Object) { o.SetAnnotation("mine", "m") }), written(m{"note": "x", "mine": "m"}, nil)},
		"one that is no time":             {event(m{"note": "x", approvedKey: "yes"}, yes), going(nil), written(m{"note": "x", approvedKey: now}, nil)},
		"keys come and go, those of others stay": {
			objecttest.Apply(stream.Applications, "hub-app", 15, m{"leaving": []any{object.CascadeFinalizer}, "labels": m{"tier": "1"}, "annotations": m{object.SkipReconcileKey: "true"}, "spec": m{"project": "other"}}),
			going(func(o *object.Object) { o.SetAnnotation("mine", "m") }),
			written(m{object.SkipReconcileKey: "true", "mine": "m"}, func(v *view) { v.Labels, v.SourceLabels = m{"tier": "1"}, []string{"tier"} })},
		"no finalizer is added to those that are left": {event(m{}, nil), going(func(o *object.Object) { o.SetFinalizers([]string{object.PostDeleteFinalizer}) }),
			written(nil, func(v *view) { v.Finalizers = []string{object.PostDeleteFinalizer} })},
		"its owner deletes it with its workloads, and so does the hub now": {event(m{}, nil), going(owners), written(nil, nil)},
		"its owner deletes it without": {event(m{}, nil), going(func(o *object.Object) {
			o.SetFinalizers([]string{"foreign"})
			owners(o)
		}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			checkPlan(t, spoke, test.event, test.current, "", test.want, "")
			o := test.current(t)
			if len(test.want) == 0 {
				return
			}
			next := stored(t, o.Key, begun(t, spoke, test.event, *o), nil)
			if held := spoke.Stored(stream.Applications, next, nil); held != test.event.Version {
				t.Errorf("Held() = %v, want what was sent", held)
			}
			checkPlan(t, spoke, test.event, func(*testing.T) *object.Object { return &next }, "", nil, "")
		})
	}
}

// TestConfirmationBeforeTheDeletionReachesTheSpoke has the copy deleted after someone
// confirmed it: in whose time it has to be said is known only then.
func TestConfirmationBeforeTheDeletionReachesTheSpoke(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	leaving := objecttest.Apply(stream.Applications, "hub-app", 15, m{
		"leaving": []any{object.CascadeFinalizer}, "annotations": m{approvedKey: "2020-01-01T00:00:00Z"}, "approved": true, "spec": m{"project": "p"},
	})
	o := copyOf(t, spoke, objecttest.Apply(stream.Applications, "hub-app", 9, m{"spec": m{"project": "p"}}), nil)
	o = stored(t, o.Key, begun(t, spoke, leaving, o), nil)
	o.Ensure("metadata")["deletionTimestamp"] = now
	if held := spoke.Stored(stream.Applications, o, nil); held == leaving.Version {
		t.Error("it is held before the confirmation is there")
	}
	o = stored(t, o.Key, begun(t, spoke, leaving, o), nil)
	if got := o.Annotation(approvedKey); got != now {
		t.Errorf("confirmed at %q, want %q", got, now)
	}
	if held := spoke.Stored(stream.Applications, o, nil); held != leaving.Version {
		t.Errorf("Held() = %v, want what was sent", held)
	}
}

// TestApproved says which times confirm a deletion, and that the hub says so to the spoke.
func TestApproved(t *testing.T) {
	hub := ruleSet(t, stream.Hub, stream.Managed)
	for name, test := range map[string]struct {
		deleted, at string
		want        bool
	}{
		"not asked":               {now, "", false},
		"in the second":           {now, now, true},
		"later, in another zone":  {now, "2026-01-01T02:00:00+01:00", true},
		"before, another one":     {now, "2025-12-31T23:59:59Z", false},
		"no time":                 {now, "yes", false},
		"it is not being deleted": {"", now, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := objecttest.Object(t, appKey(hub), m{
				"annotations": m{approvedKey: test.at}, "deletionTimestamp": test.deleted, "finalizers": []any{object.CascadeFinalizer},
			}, m{"spec": m{"destination": m{"name": "edge-1"}}})
			if got := approved(o); got != test.want {
				t.Errorf("approved() = %t, want %t", got, test.want)
			}
			content, _ := hub.Content(stream.Applications, o, operations.Requests{})
			data, err := object.Decode(content.Data)
			if err != nil {
				t.Fatal(err)
			}
			told, _ := data["approved"].(bool)
			if diff := cmp.Diff(test.want, told); diff != "" {
				t.Errorf("Content() tells (-want +got)\n%s", diff)
			}
		})
	}
}

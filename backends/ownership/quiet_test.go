package ownership

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
)

// TestPlanOfACopyWithHooks deletes a copy that has finalizers of delete hooks step by step,
// while the spoke's Argo CD, the people there and the clock do something in between.
func TestPlanOfACopyWithHooks(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const hooks = object.PostDeleteFinalizer + "/cleanup"
	made := func(annotations m) stream.Event {
		return objecttest.Apply(stream.Applications, "hub-app", 9, m{"annotations": annotations, "spec": m{"project": "p"}})
	}
	leaving := func(annotations m) stream.Event {
		return objecttest.Apply(stream.Applications, "hub-app", 15, m{"leaving": []any{object.CascadeFinalizer}, "annotations": annotations, "spec": m{"project": "p"}})
	}
	skip := m{object.SkipReconcileKey: "true"}
	finalizers := func(list ...string) func(object.Object) { return func(o object.Object) { o.SetFinalizers(list) } }
	reconciled := func(o object.Object) { o.Ensure("status")["reconciledAt"] = "2026-01-01T00:00:01Z" }
	type step struct {
		at     time.Duration       // since the beginning
		change func(object.Object) // by others, since the step before
		event  m                   // annotations on the hub
		want   string              // what the step does
	}
	const waits, deletes, nothing, follows = "waits, skipped: true", "deletes, skipped: false", "nothing", "updates, skipped: false"
	for name, test := range map[string]struct {
		hooks []string
		made  m // annotations on the hub before
		steps []step
	}{
		"none: at once":                 {nil, nil, []step{{0, nil, nil, deletes}}},
		"some: when it has stood still": {[]string{hooks}, nil, []step{{0, nil, nil, waits}, {quiesceTime - 1, nil, nil, nothing}, {quiesceTime, nil, nil, deletes}}},
		"somebody else's: at once":      {[]string{"foreign"}, nil, []step{{0, nil, nil, deletes}}},
		"before the delete as well":     {[]string{object.PreDeleteFinalizer}, nil, []step{{0, nil, nil, waits}}},
		"a reconciliation ended": {[]string{hooks}, nil, []step{
			{0, nil, nil, waits}, {quiesceTime - 1, reconciled, nil, waits}, {2*quiesceTime - 2, nil, nil, nothing}, {2*quiesceTime - 1, nil, nil, deletes},
		}},
		"it took all finalizers with it": {[]string{hooks}, nil, []step{
			{0, nil, nil, waits}, {quiesceTime - 1, finalizers(), nil, waits}, {quiesceTime, nil, nil, nothing}, {2 * quiesceTime, nil, nil, deletes},
		}},
		"hooks come before the deletion": {nil, nil, []step{{0, nil, nil, deletes}, {time.Second, finalizers(hooks), nil, waits}, {time.Second + quiesceTime, nil, nil, deletes}}},
		"the deletion met a conflict":    {[]string{hooks}, nil, []step{{0, nil, nil, waits}, {quiesceTime, nil, nil, deletes}, {quiesceTime, reconciled, nil, deletes}}},
		"and all finalizers went":        {[]string{hooks}, nil, []step{{0, nil, nil, waits}, {quiesceTime, nil, nil, deletes}, {quiesceTime, finalizers(), nil, waits}}},
		"somebody lets it be reconciled": {[]string{hooks}, nil, []step{
			{0, nil, nil, waits}, {quiesceTime - 1, func(o object.Object) { delete(o.Child("metadata", "annotations"), object.SkipReconcileKey) }, nil, waits}, {quiesceTime, nil, nil, nothing},
		}},
		"the clock is put back":         {[]string{hooks}, nil, []step{{0, nil, nil, waits}, {-time.Hour, nil, nil, waits}, {quiesceTime - time.Hour, nil, nil, deletes}}},
		"somebody deletes it meanwhile": {[]string{hooks}, nil, []step{{0, nil, nil, waits}, {time.Second, func(o object.Object) { o.Ensure("metadata")["deletionTimestamp"] = now }, nil, follows}}},
		"the hub has it skipped":        {[]string{hooks}, skip, []step{{0, nil, skip, waits}, {quiesceTime, nil, skip, "deletes, skipped: true"}}},
		"the hub had it skipped":        {[]string{hooks}, skip, []step{{0, nil, skip, waits}, {quiesceTime, nil, nil, deletes}}},
		"another writer on the spoke has it skipped": {nil, nil, []step{
			{0, func(o object.Object) {
				o.SetFinalizers([]string{hooks})
				o.SetAnnotation(object.SkipReconcileKey, "true")
			}, nil, waits}, {quiesceTime, nil, nil, "deletes, skipped: true"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			spoke := ruleSet(t, stream.Spoke, stream.Managed)
			o := copyOf(t, spoke, made(test.made), finalizers(test.hooks...))
			for i, s := range test.steps {
				if s.change != nil {
					s.change(o)
				}
				spoke.Now = begin.Add(s.at)
				e := leaving(s.event)
				writes, refusal := spoke.Plan(e, o.Key, &o, operations.Requests{})
				got := nothing
				if len(writes) > 0 {
					o = stored(t, o.Key, writes, nil)
					switch {
					case len(writes) == 2 && writes[1].Op == Delete && refusal == nil:
						got = "deletes"
					case refusal == nil:
						got = "updates"
					default:
						got = "waits"
					}
					got += ", skipped: false"
					if skipped(o) {
						got = got[:len(got)-len("false")] + "true"
					}
				}
				if diff := cmp.Diff(s.want, got); diff != "" {
					t.Fatalf("step %d (-want +got)\n%s", i, diff)
				}
				if done := refusal == nil; done == (got == waits || got == nothing) || !done && refusal.Kind != stream.RefusalUnavailable {
					t.Errorf("step %d is answered %s", i, refusalText(refusal))
				}
				if list := o.Finalizers(); list[len(list)-1] != object.CascadeFinalizer {
					t.Errorf("step %d leaves finalizers %v", i, list)
				}
				if held := spoke.Stored(stream.Applications, o, nil); got != follows && held == e.Version {
					t.Errorf("step %d: it is held before it is being deleted", i)
				}
			}
		})
	}
}

// TestWaitThatIsGivenUp makes the Application again on the hub, or takes it away, while its
// copy waits to be deleted.
func TestWaitThatIsGivenUp(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	spec := m{"spec": m{"project": "p"}}
	o := copyOf(t, spoke, objecttest.Apply(stream.Applications, "hub-app", 9, spec), func(o object.Object) { o.SetFinalizers([]string{object.PostDeleteFinalizer}) })
	leaving := objecttest.Apply(stream.Applications, "hub-app", 15, m{"leaving": []any{object.CascadeFinalizer}, "spec": m{"project": "p"}})
	writes, _ := spoke.Plan(leaving, o.Key, &o, operations.Requests{})
	o = stored(t, o.Key, writes, nil)
	writes, _ = spoke.Plan(objecttest.Apply(stream.Applications, "hub-app-2", 20, spec), o.Key, &o, operations.Requests{})
	if next := stored(t, o.Key, writes, nil); skipped(next) || !cmp.Equal(next.Finalizers(), []string{object.PostDeleteFinalizer}) {
		t.Errorf("made again it has annotations %v and finalizers %v", next.Child("metadata", "annotations"), next.Finalizers())
	}
	writes, _ = spoke.Plan(objecttest.Removal(stream.Applications), o.Key, &o, operations.Requests{})
	if next := stored(t, o.Key, writes, nil); !skipped(next) || len(next.Finalizers()) != 0 || len(writes) != 2 {
		t.Errorf("released it has annotations %v and finalizers %v", next.Child("metadata", "annotations"), next.Finalizers())
	}
}

package mirror

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/stream"
)

// TestPlanOfACopyWithHooks deletes a copy that has finalizers of delete hooks step by step,
// while the spoke's Argo CD, the people there and the clock do something in between.
func TestPlanOfACopyWithHooks(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const hooks = postDeleteFinalizer + "/cleanup"
	made := func(annotations m) stream.Event {
		return makeEvent(stream.Applications, "hub-app", 9, m{"annotations": annotations, "spec": m{"project": "p"}})
	}
	leaving := func(annotations m) stream.Event {
		return makeEvent(stream.Applications, "hub-app", 15, m{"leaving": []any{cascadeFinalizer}, "annotations": annotations, "spec": m{"project": "p"}})
	}
	skip := m{skipReconcileKey: "true"}
	finalizers := func(list ...string) func(object) { return func(o object) { o.setFinalizers(list) } }
	reconciled := func(o object) { o.ensure("status")["reconciledAt"] = "2026-01-01T00:00:01Z" }
	type step struct {
		at     time.Duration // since the beginning
		change func(object)  // by others, since the step before
		event  m             // annotations on the hub
		want   string        // what the step does
	}
	const waits, deletes, nothing, follows = "waits, skipped: true", "deletes, skipped: false", "nothing", "updates, skipped: false"
	for name, test := range map[string]struct {
		hooks []string
		made  m // annotations on the hub before
		steps []step
	}{
		"none: at once":                 {nil, nil, []step{{0, nil, nil, deletes}}},
		"some: when it has stood still": {[]string{hooks}, nil, []step{{0, nil, nil, waits}, {quietTime - 1, nil, nil, nothing}, {quietTime, nil, nil, deletes}}},
		"somebody else's: at once":      {[]string{"foreign"}, nil, []step{{0, nil, nil, deletes}}},
		"before the delete as well":     {[]string{preDeleteFinalizer}, nil, []step{{0, nil, nil, waits}}},
		"a reconciliation ended": {[]string{hooks}, nil, []step{
			{0, nil, nil, waits}, {quietTime - 1, reconciled, nil, waits}, {2*quietTime - 2, nil, nil, nothing}, {2*quietTime - 1, nil, nil, deletes},
		}},
		"it took all finalizers with it": {[]string{hooks}, nil, []step{
			{0, nil, nil, waits}, {quietTime - 1, finalizers(), nil, waits}, {quietTime, nil, nil, nothing}, {2 * quietTime, nil, nil, deletes},
		}},
		"hooks come before the deletion": {nil, nil, []step{{0, nil, nil, deletes}, {time.Second, finalizers(hooks), nil, waits}, {time.Second + quietTime, nil, nil, deletes}}},
		"the deletion met a conflict":    {[]string{hooks}, nil, []step{{0, nil, nil, waits}, {quietTime, nil, nil, deletes}, {quietTime, reconciled, nil, deletes}}},
		"and all finalizers went":        {[]string{hooks}, nil, []step{{0, nil, nil, waits}, {quietTime, nil, nil, deletes}, {quietTime, finalizers(), nil, waits}}},
		"somebody lets it be reconciled": {[]string{hooks}, nil, []step{
			{0, nil, nil, waits}, {quietTime - 1, func(o object) { delete(o.child("metadata", "annotations"), skipReconcileKey) }, nil, waits}, {quietTime, nil, nil, nothing},
		}},
		"the clock is put back":         {[]string{hooks}, nil, []step{{0, nil, nil, waits}, {-time.Hour, nil, nil, waits}, {quietTime - time.Hour, nil, nil, deletes}}},
		"somebody deletes it meanwhile": {[]string{hooks}, nil, []step{{0, nil, nil, waits}, {time.Second, func(o object) { o.ensure("metadata")["deletionTimestamp"] = now }, nil, follows}}},
		"the hub has it skipped":        {[]string{hooks}, skip, []step{{0, nil, skip, waits}, {quietTime, nil, skip, "deletes, skipped: true"}}},
		"the hub had it skipped":        {[]string{hooks}, skip, []step{{0, nil, skip, waits}, {quietTime, nil, nil, deletes}}},
		"somebody on the spoke has it skipped": {nil, nil, []step{
			{0, func(o object) { o.setFinalizers([]string{hooks}); o.setAnnotation(skipReconcileKey, "true") }, nil, waits}, {quietTime, nil, nil, "deletes, skipped: true"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			spoke := ruleSet(t, stream.Spoke, stream.Managed)
			o := copyOf(t, spoke, made(test.made), finalizers(test.hooks...))
			for i, s := range test.steps {
				if s.change != nil {
					s.change(o)
				}
				spoke.now = begin.Add(s.at)
				e := leaving(s.event)
				writes, refusal := spoke.Plan(e, o.key, &o, Requests{})
				got := nothing
				if len(writes) > 0 {
					o = stored(t, o.key, writes, nil)
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
				if list := o.finalizers(); list[len(list)-1] != cascadeFinalizer {
					t.Errorf("step %d leaves finalizers %v", i, list)
				}
				if held := spoke.Held(stream.Applications, o, nil); got != follows && held == e.Version {
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
	o := copyOf(t, spoke, makeEvent(stream.Applications, "hub-app", 9, spec), func(o object) { o.setFinalizers([]string{postDeleteFinalizer}) })
	leaving := makeEvent(stream.Applications, "hub-app", 15, m{"leaving": []any{cascadeFinalizer}, "spec": m{"project": "p"}})
	writes, _ := spoke.Plan(leaving, o.key, &o, Requests{})
	o = stored(t, o.key, writes, nil)
	writes, _ = spoke.Plan(makeEvent(stream.Applications, "hub-app-2", 20, spec), o.key, &o, Requests{})
	if next := stored(t, o.key, writes, nil); skipped(next) || !cmp.Equal(next.finalizers(), []string{postDeleteFinalizer}) {
		t.Errorf("made again it has annotations %v and finalizers %v", next.child("metadata", "annotations"), next.finalizers())
	}
	writes, _ = spoke.Plan(removal(stream.Applications), o.key, &o, Requests{})
	if next := stored(t, o.key, writes, nil); !skipped(next) || len(next.finalizers()) != 0 || len(writes) != 2 {
		t.Errorf("released it has annotations %v and finalizers %v", next.child("metadata", "annotations"), next.finalizers())
	}
}

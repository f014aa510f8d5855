package ownership

import (
	"testing"

	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
)

func TestPlanOfAnotherObjectOfThatName(t *testing.T) {
	spoke, hub := ruleSet(t, stream.Spoke, stream.Managed), ruleSet(t, stream.Hub, stream.Autonomous)
	event := func(uid string, revision uint64, policy string) stream.Event {
		annotations := m{}
		if policy != "" {
			annotations[object.MismatchPolicyKey] = policy
		}
		return objecttest.Apply(stream.Applications, uid, revision, m{"annotations": annotations, "spec": m{"project": "p"}})
	}
	earlier := func(r Rules, change func(o object.Object)) func(*testing.T) *object.Object {
		return copied(r, event("earlier", 5, ""), func(o *object.Object) {
			o.SetFinalizers([]string{object.CascadeFinalizer, object.PostDeleteFinalizer, "foreign"})
			o.Ensure("metadata", "labels")["mine"] = "m"
			o.Ensure("status")["history"] = "h"
			if change != nil {
				change(*o)
			}
		})
	}
	spec := m{"project": "p", "destination": m{"name": "in-cluster"}}
	annotated := func(uid, policy string) m {
		out := m{object.SourceUIDKey: uid, object.PrincipalUIDKey: "hub-1"}
		if policy != "" {
			out[object.MismatchPolicyKey] = policy
		}
		return out
	}
	inPlace := func(policy string) []view {
		return []view{{
			Op: Update, Labels: m{"mine": "m"}, Annotations: annotated("later", policy), Spec: spec, Status: m{"history": "h"},
			Finalizers: []string{object.PostDeleteFinalizer, "foreign"}, Created: 5, Revision: 9,
		}}
	}
	released := view{
		Op: Update, Labels: m{"mine": "m"}, Annotations: annotated("earlier", ""), Spec: spec, Status: m{"history": "h"},
		Finalizers: []string{"foreign"}, Releasing: true, Created: 5, Revision: 5,
	}
	released.Annotations[object.SkipReconcileKey] = "true"
	made := view{Op: Create, Annotations: annotated("later", copies.Recreate), Spec: spec, Created: 9, Revision: 9}
	tests := map[string]struct {
		event   stream.Event
		current func(*testing.T) *object.Object
		want    []view
		refusal string
	}{
		"no policy":                      {event("later", 9, ""), earlier(spoke, nil), inPlace(""), ""},
		"upsert":                         {event("later", 9, "upsert"), earlier(spoke, nil), inPlace("upsert"), ""},
		"a policy nobody knows":          {event("later", 9, "Recreate"), earlier(spoke, nil), inPlace("Recreate"), ""},
		"recreate":                       {event("later", 9, copies.Recreate), earlier(spoke, nil), []view{released, {Op: Delete}, made}, ""},
		"recreate, and it is there":      {event("later", 9, copies.Recreate), copied(spoke, event("later", 9, copies.Recreate), nil), nil, ""},
		"recreate, and nothing is there": {event("later", 9, copies.Recreate), nil, []view{made}, ""},
		"recreate, and the release of the earlier one waits for others": {event("later", 9, copies.Recreate), earlier(spoke, func(o object.Object) {
			o.SetFinalizers([]string{"foreign"})
			o.Ensure("metadata")["deletionTimestamp"] = now
		}), nil, "unavailable: the Application is being deleted on the spoke; it is created again when it is gone"},
		"recreate, set on the spoke: it is the owner's to say": {event("later", 9, ""), earlier(spoke, func(o object.Object) {
			o.SetAnnotation(object.MismatchPolicyKey, copies.Recreate)
		}), []view{{
			Op: Update, Labels: m{"mine": "m"}, Annotations: annotated("later", copies.Recreate), Spec: spec, Status: m{"history": "h"},
			Finalizers: []string{object.PostDeleteFinalizer, "foreign"}, Created: 5, Revision: 9,
		}}, ""},
		"recreate, over what someone else made": {event("later", 9, copies.Recreate), foreign(spoke, m{"finalizers": []any{object.CascadeFinalizer}}, m{"spec": m{}}), []view{{Op: SaveFound}, {
			Op: Update, Annotations: annotated("later", copies.Recreate), Spec: spec, Created: 9, Revision: 9,
		}}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkPlan(t, adopting(spoke), test.event, test.current, "", test.want, test.refusal)
		})
	}
	t.Run("a mirror on the hub", func(t *testing.T) {
		current := earlier(hub, nil)(t)
		writes, refusal := hub.Plan(event("later", 9, copies.Recreate), current.Key, current, operations.Requests{})
		if refusal != nil || len(writes) != 3 || writes[2].Op != Create {
			t.Errorf("Plan() = %+v, %v", viewsOf(t, current.Key, writes), refusal)
		}
	})
	t.Run("a project is overwritten, since Applications need it all the time", func(t *testing.T) {
		project := func(uid string) stream.Event {
			return objecttest.Apply(stream.AppProjects, uid, 9, m{"annotations": m{object.MismatchPolicyKey: copies.Recreate}, "spec": m{}})
		}
		current := copied(spoke, project("earlier"), nil)(t)
		writes, refusal := spoke.Plan(project("later"), current.Key, current, operations.Requests{})
		if refusal != nil || len(writes) != 1 || writes[0].Op != Update {
			t.Errorf("Plan() = %+v, %v", viewsOf(t, current.Key, writes), refusal)
		}
	})
}

package mirror

import (
	"testing"

	"github.com/argomesh/argomesh/stream"
)

func TestPlanOfAnotherObjectOfThatName(t *testing.T) {
	spoke, hub := ruleSet(t, stream.Spoke, stream.Managed), ruleSet(t, stream.Hub, stream.Autonomous)
	event := func(uid string, revision uint64, policy string) stream.Event {
		annotations := m{}
		if policy != "" {
			annotations[mismatchPolicyKey] = policy
		}
		return makeEvent(stream.Applications, uid, revision, m{"annotations": annotations, "spec": m{"project": "p"}})
	}
	earlier := func(r Rules, change func(o object)) func(*testing.T) *object {
		return copied(r, event("earlier", 5, ""), func(o *object) {
			o.setFinalizers([]string{cascadeFinalizer, postDeleteFinalizer, "foreign"})
			o.ensure("metadata", "labels")["mine"] = "m"
			o.ensure("status")["history"] = "h"
			if change != nil {
				change(*o)
			}
		})
	}
	spec := m{"project": "p", "destination": m{"name": "in-cluster"}}
	annotated := func(uid, policy string) m {
		out := m{sourceUIDKey: uid, principalUIDKey: "hub-1"}
		if policy != "" {
			out[mismatchPolicyKey] = policy
		}
		return out
	}
	inPlace := func(policy string) []view {
		return []view{{
			Op: Update, Labels: m{"mine": "m"}, Annotations: annotated("later", policy), Spec: spec, Status: m{"history": "h"},
			Finalizers: []string{postDeleteFinalizer, "foreign"}, Created: 5, Revision: 9,
		}}
	}
	released := view{
		Op: Update, Labels: m{"mine": "m"}, Annotations: annotated("earlier", ""), Spec: spec, Status: m{"history": "h"},
		Finalizers: []string{"foreign"}, Releasing: true, Created: 5, Revision: 5,
	}
	released.Annotations[skipReconcileKey] = "true"
	made := view{Op: Create, Annotations: annotated("later", policyRecreate), Spec: spec, Created: 9, Revision: 9}
	tests := map[string]struct {
		event   stream.Event
		current func(*testing.T) *object
		want    []view
		refusal string
	}{
		"no policy":                      {event("later", 9, ""), earlier(spoke, nil), inPlace(""), ""},
		"upsert":                         {event("later", 9, "upsert"), earlier(spoke, nil), inPlace("upsert"), ""},
		"a policy nobody knows":          {event("later", 9, "Recreate"), earlier(spoke, nil), inPlace("Recreate"), ""},
		"recreate":                       {event("later", 9, policyRecreate), earlier(spoke, nil), []view{released, {Op: Delete}, made}, ""},
		"recreate, and it is there":      {event("later", 9, policyRecreate), copied(spoke, event("later", 9, policyRecreate), nil), nil, ""},
		"recreate, and nothing is there": {event("later", 9, policyRecreate), nil, []view{made}, ""},
		"recreate, and the release of the earlier one waits for others": {event("later", 9, policyRecreate), earlier(spoke, func(o object) {
			o.setFinalizers([]string{"foreign"})
			o.ensure("metadata")["deletionTimestamp"] = now
		}), nil, "unavailable: the Application is being deleted on the spoke; it is made anew when it is gone"},
		"recreate, set on the spoke: it is the owner's to say": {event("later", 9, ""), earlier(spoke, func(o object) {
			o.setAnnotation(mismatchPolicyKey, policyRecreate)
		}), []view{{
			Op: Update, Labels: m{"mine": "m"}, Annotations: annotated("later", policyRecreate), Spec: spec, Status: m{"history": "h"},
			Finalizers: []string{postDeleteFinalizer, "foreign"}, Created: 5, Revision: 9,
		}}, ""},
		"recreate, over what someone else made": {event("later", 9, policyRecreate), foreign(spoke, m{"finalizers": []any{cascadeFinalizer}}, m{"spec": m{}}), []view{{Op: Keep}, {
			Op: Update, Annotations: annotated("later", policyRecreate), Spec: spec, Created: 9, Revision: 9,
		}}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkPlan(t, adopting(spoke), test.event, test.current, "", test.want, test.refusal)
		})
	}
	t.Run("a mirror on the hub", func(t *testing.T) {
		current := earlier(hub, nil)(t)
		writes, refusal := hub.Plan(event("later", 9, policyRecreate), current.key, current, Requests{})
		if refusal != nil || len(writes) != 3 || writes[2].Op != Create {
			t.Errorf("Plan() = %+v, %v", viewsOf(t, current.key, writes), refusal)
		}
	})
	t.Run("a project is overwritten, since Applications need it all the time", func(t *testing.T) {
		project := func(uid string) stream.Event {
			return makeEvent(stream.AppProjects, uid, 9, m{"annotations": m{mismatchPolicyKey: policyRecreate}, "spec": m{}})
		}
		current := copied(spoke, project("earlier"), nil)(t)
		writes, refusal := spoke.Plan(project("later"), current.key, current, Requests{})
		if refusal != nil || len(writes) != 1 || writes[0].Op != Update {
			t.Errorf("Plan() = %+v, %v", viewsOf(t, current.key, writes), refusal)
		}
	})
}

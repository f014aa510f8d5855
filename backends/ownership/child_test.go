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

func TestContentOfAChild(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	spoke.Children = true
	rules := func(change func(*Rules)) Rules {
		r := spoke
		change(&r)
		return r
	}
	tests := map[string]struct {
		rules Rules
		meta  m
		want  string // empty: nothing is sent
	}{
		"an Application without a source UID, and of its metadata what travels": {spoke, m{
			"labels": m{"team": "x"}, "annotations": m{"note": "n", object.TrackingKey: "parent:…", object.RefreshKey: "normal", object.NotifiedPrefix: "{}"},
			"finalizers": []any{object.CascadeFinalizer}, "ownerReferences": []any{m{"kind": "ApplicationSet"}},
		}, `{"annotations":{"note":"n"},"labels":{"team":"x"},"spec":{"project":"shop"},"status":{"health":{"status":"Healthy"}}}`},
		"one that is being deleted is shown until it is gone": {spoke, m{"deletionTimestamp": now, "finalizers": []any{object.CascadeFinalizer}},
			`{"annotations":{},"labels":{},"spec":{"project":"shop"},"status":{"health":{"status":"Healthy"}}}`},
		"the hub does not ask":            {rules(func(r *Rules) { r.Children = false }), nil, ""},
		"ignore-sync":                     {spoke, m{"labels": m{object.IgnoreSyncKey: "true"}}, ""},
		"a copy of this hub":              {spoke, m{"annotations": m{object.SourceUIDKey: "u", object.PrincipalUIDKey: "hub-1", object.RecordKey: "{}"}}, ""},
		"a copy of another hub":           {spoke, m{"annotations": m{object.SourceUIDKey: "u", object.PrincipalUIDKey: "hub-2", object.RecordKey: "{}"}}, ""},
		"a copy that argocd-agent made":   {spoke, m{"annotations": m{object.SourceUIDKey: "u"}}, ""},
		"an autonomous spoke has none":    {rules(func(r *Rules) { r.Mode = stream.Autonomous }), nil, ""},
		"an Application of the hub's own": {rules(func(r *Rules) { r.Side = stream.Hub }), nil, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := objecttest.Object(t, appKey(test.rules), test.meta, m{
				"spec": m{"project": "shop"}, "status": m{"health": m{"status": "Healthy"}, "conditions": []any{m{"type": object.ErrorCondition}}},
			})
			got, ok := test.rules.Content(stream.Children, o, operations.Requests{})
			if diff := cmp.Diff(test.want, string(got.Data)); diff != "" || ok != (test.want != "") {
				t.Errorf("Content() (-want +got)\n%s", diff)
			}
			if ok && (got.Version.SourceUID != "uid-1" || got.Leaving) {
				t.Errorf("version %v, leaving %t", got.Version, got.Leaving)
			}
		})
	}
}

func TestPlanOfAChild(t *testing.T) {
	hub := ruleSet(t, stream.Hub, stream.Managed)
	hub.Children = true
	child := func(uid string, revision uint64, health string) stream.Event {
		return objecttest.Apply(stream.Children, uid, revision, m{
			"labels": m{"team": "x"}, "annotations": m{"note": "n"},
			"spec":   m{"project": "", "destination": m{"server": object.InClusterServer, "namespace": "web"}},
			"status": m{"health": m{"status": health}},
		})
	}
	first := child("c-1", 3, "Healthy")
	written := view{
		Op: Create, Labels: m{"team": "x"}, Annotations: m{object.SourceUIDKey: "c-1", "note": "n"}, SourceLabels: []string{"team"},
		Spec:   m{"project": "default", "destination": m{"name": "edge-1", "namespace": "web"}},
		Status: m{"health": m{"status": "Healthy"}}, Created: 3, Revision: 3,
	}
	but := func(change func(v *view)) []view {
		v := written
		v.Op = Update
		change(&v)
		return []view{v}
	}
	autonomous := ruleSet(t, stream.Hub, stream.Autonomous)
	refused := func(before string) m {
		operation := m{"sync": m{}}
		if before != "" {
			operations.AddInfo(operation, object.BeforeInfo, before)
		}
		return m{"operation": operation, "phase": "Error", "message": operations.FailedMessage + "edge-1: " + childMessage, "startedAt": now, "finishedAt": now}
	}
	ran := func(startedAt string) stream.Event {
		return objecttest.Apply(stream.Children, "c-1", 5, m{
			"labels": m{"team": "x"}, "annotations": m{"note": "n"},
			"spec":   m{"project": "", "destination": m{"server": object.InClusterServer, "namespace": "web"}},
			"status": m{"operationState": m{"startedAt": startedAt}},
		})
	}
	before, after := "2025-01-01T00:00:00Z", "2025-01-01T00:00:01Z" // of a spoke whose clock is behind
	const own = "not-owned: the hub has an Application of that name of its own, which goes before the spoke's"
	tests := map[string]struct {
		rules   Rules
		event   stream.Event
		current func(*testing.T) *object.Object
		want    []view
		refusal string
	}{
		"nothing is there": {hub, first, nil, []view{written}, ""},
		"it is there":      {hub, first, copied(hub, first, nil), nil, ""},
		"another status": {hub, child("c-1", 5, "Degraded"), copied(hub, first, nil), but(func(v *view) {
			v.Status, v.Revision = m{"health": m{"status": "Degraded"}}, 5
		}), ""},
		"a status that someone changed on the hub": {hub, first, copied(hub, first, func(o *object.Object) { o.Ensure("status", "health")["status"] = "Missing" }), but(func(*view) {}), ""},
		"a finalizer that someone set on the hub":  {hub, first, copied(hub, first, func(o *object.Object) { o.SetFinalizers([]string{object.CascadeFinalizer}) }), but(func(*view) {}), ""},
		"another child of that name": {hub, child("c-2", 9, "Healthy"), copied(hub, first, nil), but(func(v *view) {
			v.Annotations, v.Revision = m{object.SourceUIDKey: "c-2", "note": "n"}, 9
		}), ""},
		"the end of an operation that we refused stays": {hub, child("c-1", 5, "Degraded"), copied(hub, first, func(o *object.Object) { o.Ensure("status")["operationState"] = refused("") }), but(func(v *view) {
			v.Status, v.Revision = m{"health": m{"status": "Degraded"}, "operationState": refused(operations.NeverStarted)}, 5
		}), ""},
		"what the spoke had run before does not take its place": {hub, ran(before), copied(hub, first, func(o *object.Object) { o.Ensure("status")["operationState"] = refused("") }), but(func(v *view) {
			v.Status, v.Revision = m{"operationState": refused(before)}, 5
		}), ""},
		"what the spoke has run since does": {hub, ran(after), copied(hub, first, func(o *object.Object) { o.Ensure("status")["operationState"] = refused(before) }), but(func(v *view) {
			v.Status, v.Revision = m{"operationState": m{"startedAt": after}}, 5
		}), ""},
		"the hub's own Application":                 {hub, first, foreign(hub, nil, m{"spec": m{}}), nil, own},
		"a mirror of when the agent was autonomous": {hub, first, copied(autonomous, objecttest.Apply(stream.Applications, "c-1", 3, m{"spec": m{}}), nil), nil, own},
		"another agent's child":                     {hub, first, copied(hub, first, func(o *object.Object) { o.SetAnnotation(object.RecordKey, `{"agent":"edge-2","child":true}`) }), nil, own},
		"the hub's own, and it is being deleted":    {hub, first, foreign(hub, m{"deletionTimestamp": now}, m{"spec": m{}}), nil, "unavailable: the Application is being deleted on the hub; it is created again when it is gone"},
		"the hub shows none":                        {ruleSet(t, stream.Hub, stream.Managed), first, nil, nil, "not-owned: the hub shows no child applications of this agent"},
		"gone":                                      {hub, objecttest.Removal(stream.Children), copied(hub, first, nil), []view{{Op: Update, Labels: written.Labels, Annotations: m{object.SourceUIDKey: "c-1", "note": "n", object.SkipReconcileKey: "true"}, SourceLabels: []string{"team"}, Spec: written.Spec, Status: written.Status, Releasing: true, Created: 3, Revision: 3}, {Op: Delete}}, ""},
		"gone, and the hub's own is there":          {hub, objecttest.Removal(stream.Children), foreign(hub, nil, m{"spec": m{}}), nil, ""},
		"gone, and nothing is there":                {hub, objecttest.Removal(stream.Children), nil, nil, ""},
		"data without a status":                     {hub, objecttest.Apply(stream.Children, "c-1", 3, m{"spec": m{}}), nil, nil, "invalid: the event carries no spec or no status"},
		"data without a spec":                       {hub, objecttest.Apply(stream.Children, "c-1", 3, m{"status": m{}}), nil, nil, "invalid: the event carries no spec or no status"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkPlan(t, test.rules, test.event, test.current, "", test.want, test.refusal)
		})
	}
}

// TestChildIsNothingElse: the mirror of a child has no part in any other
// collection, whatever is in it.
func TestChildIsNothingElse(t *testing.T) {
	hub := ruleSet(t, stream.Hub, stream.Managed)
	hub.Children = true
	e := objecttest.Apply(stream.Children, "c-1", 3, m{"spec": m{"destination": m{"name": "edge-1"}}, "status": m{"health": m{"status": "Healthy"}}})
	o := copyOf(t, hub, e, func(o object.Object) {
		o.SetAnnotation(object.RefreshKey, "hard")
		o.Fields["operation"] = operation("c-1", "6")
	})
	for _, c := range []stream.Collection{stream.Applications, stream.Commands, stream.Statuses} {
		if content, ok := hub.Content(c, o, operations.Requests{{Type: "normal", ID: "r-1"}}); ok {
			t.Errorf("as %s it is sent: %s", c, content.Data)
		}
		if held := hub.Stored(c, o, nil); !held.Absent() {
			t.Errorf("as %s it is held: %v", c, held)
		}
	}
	status := objecttest.Apply(stream.Statuses, "c-1", 3, m{"status": m{}})
	if writes, refusal := hub.Plan(status, o.Key, &o, operations.Requests{}); len(writes) != 0 || refusal != nil {
		t.Errorf("a status is written to it: %v, %v", writes, refusal)
	}
	if held := hub.Stored(stream.Children, o, nil); held != e.Version {
		t.Errorf("Held() = %v, want %v", held, e.Version)
	}
	raw, needed := hub.PlanHubUpdate(o, LinkState{Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Present: true, Refusal: &stream.Refusal{Kind: stream.RefusalInvalid}})
	if !needed {
		t.Fatal("Tend() has nothing to do")
	}
	tended := stored(t, o.Key, []Write{{Op: Update, Raw: raw}}, nil)
	if tended.Annotation(object.RefreshKey) != "" || tended.Child("operation") != nil || len(object.Conditions(tended.Child("status"))) != 0 {
		t.Errorf("Tend() = %s", raw)
	}
	if _, needed := hub.PlanHubUpdate(tended, LinkState{}); needed {
		t.Error("Tend() is never done")
	}
	// The spoke sends the mirror once more, so that what it shows can be noted.
	if held := hub.Stored(stream.Children, tended, nil); held == e.Version {
		t.Error("what the spoke shows when an operation is refused is not asked for")
	}
	writes, _ := hub.Plan(e, o.Key, &tended, operations.Requests{})
	noted := stored(t, o.Key, writes, nil)
	if held := hub.Stored(stream.Children, noted, nil); held != e.Version {
		t.Errorf("the mirror is sent again and again: Held() = %v, want %v", held, e.Version)
	}
}

// Where children are on the hub by destination, and what else may be there.
func TestWhereChildrenAreByDestination(t *testing.T) {
	r := ruleSet(t, stream.Hub, stream.Managed)
	r.ByDestination = true
	with := func(namespace string, admitted ...string) Rules {
		r := r
		r.ChildNamespace, r.Namespaces = namespace, admitted
		return r
	}
	at := func(namespace string) stream.ResourceKey {
		return stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: "a"}
	}
	child := func(namespace string) stream.EntryKey {
		return stream.EntryKey{Collection: stream.Children, Namespace: namespace, Name: "a"}
	}
	of := func(namespace string) []stream.EntryKey {
		return []stream.EntryKey{
			{Collection: stream.Applications, Namespace: namespace, Name: "a"}, {Collection: stream.Commands, Namespace: namespace, Name: "a"},
			{Collection: stream.Statuses, Namespace: namespace, Name: "a"},
		}
	}
	for name, test := range map[string]struct {
		rules Rules
		keys  map[string][]stream.EntryKey // by the namespace on the hub
		local map[string]string            // by the namespace on the wire; nothing for none
		list  []string
	}{
		"none":            {with(""), map[string][]stream.EntryKey{"argocd": of(""), "edge-1": nil}, map[string]string{}, []string{"argocd"}},
		"theirs":          {with("edge-1"), map[string][]stream.EntryKey{"argocd": of(""), "edge-1": {child("")}, "team": nil}, map[string]string{"": "edge-1"}, []string{"argocd", "edge-1"}},
		"admitted":        {with("edge-1", "edge-*"), map[string][]stream.EntryKey{"edge-1": append(of("edge-1"), child("")), "edge-2": of("edge-2")}, map[string]string{"": "edge-1"}, []string{""}},
		"never Argo CD's": {with("argocd"), map[string][]stream.EntryKey{"argocd": of("")}, map[string]string{}, []string{"argocd"}},
	} {
		t.Run(name, func(t *testing.T) {
			for namespace, want := range test.keys {
				if diff := cmp.Diff(want, test.rules.Keys(at(namespace))); diff != "" {
					t.Errorf("Keys() in %s (-want +got):\n%s", namespace, diff)
				}
			}
			for _, namespace := range []string{"", "team", "edge-1", "edge-2"} {
				want, is := test.local[namespace]
				if got, ours := test.rules.Local(child(namespace)); ours != is || ours && got != at(want) {
					t.Errorf("Local() of a child in %q = %v, %t", namespace, got, ours)
				}
			}
			if diff := cmp.Diff(test.list, test.rules.LocalNamespaces()); diff != "" {
				t.Errorf("namespaces (-want +got):\n%s", diff)
			}
		})
	}
}

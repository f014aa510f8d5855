package ownership

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/heap"
)

// now is a deletionTimestamp.
const now = "2026-01-01T00:00:00Z"

func TestPlanOfAnApplication(t *testing.T) {
	spoke, hub := ruleSet(t, stream.Spoke, stream.Managed), ruleSet(t, stream.Hub, stream.Autonomous)
	base := m{
		"labels": m{"team": "a", "tier": "1"}, "annotations": m{"note": "x", "link": "y"},
		"spec": m{"project": "default", "destination": m{"name": "edge-1", "server": testServer, "namespace": "web"}},
	}
	first := objecttest.Apply(stream.Applications, "hub-app", 9, base)
	inCluster := m{"project": "default", "destination": m{"name": "in-cluster", "namespace": "web"}}
	ours := m{object.SourceUIDKey: "hub-app", object.PrincipalUIDKey: "hub-1", "note": "x", "link": "y"}
	with := func(base m, pairs ...string) m {
		out, _ := object.Clone(base).(m)
		for i := 0; i < len(pairs); i += 2 {
			if delete(out, pairs[i]); pairs[i+1] != "" {
				out[pairs[i]] = pairs[i+1]
			}
		}
		return out
	}
	written := view{
		Op: Update, Labels: m{"team": "a", "tier": "1"}, Annotations: ours, Spec: inCluster,
		SourceLabels: []string{"team", "tier"}, Created: 9, Revision: 9,
	}
	but := func(change func(v *view)) []view {
		v := written
		change(&v)
		return []view{v}
	}
	tests := map[string]struct {
		rules   Rules
		event   stream.Event
		current func(t *testing.T) *object.Object // nil: nothing is there
		want    []view
		refusal string
	}{
		"nothing is there: it is made": {spoke, first, nil, but(func(v *view) { v.Op = Create }), ""},
		"it is there: nothing":         {spoke, first, copied(spoke, first, nil), nil, ""},
		"another spec": {spoke, objecttest.Apply(stream.Applications, "hub-app", 12, m{
			"labels": base["labels"], "annotations": base["annotations"], "spec": m{"project": "other"},
		}), copied(spoke, first, nil), but(func(v *view) {
			v.Spec, v.Revision = m{"project": "other", "destination": m{"name": "in-cluster"}}, 12
		}), ""},
		"a field was taken out of the spec, and one was added on the spoke": {spoke, first, copied(spoke, first, func(o *object.Object) {
			o.Ensure("spec", "destination")["extra"] = "z"
			o.Ensure("spec")["revisionHistoryLimit"] = 3
		}), but(func(*view) {}), ""},
		"keys that the source no longer has go, keys of others stay": {spoke, objecttest.Apply(stream.Applications, "hub-app", 12, m{
			"labels": m{"tier": "2"}, "annotations": m{}, "spec": base["spec"],
		}), copied(spoke, first, func(o *object.Object) {
			o.Ensure("metadata", "labels")["mine"] = "m"
			o.SetAnnotation(object.RefreshKey, "hard")
			o.SetAnnotation(object.CommandsKey, `["c-1"]`)
		}), but(func(v *view) {
			v.Labels, v.SourceLabels, v.Revision = m{"tier": "2", "mine": "m"}, []string{"tier"}, 12
			v.Annotations = m{object.SourceUIDKey: "hub-app", object.PrincipalUIDKey: "hub-1", object.RefreshKey: "hard", object.CommandsKey: `["c-1"]`}
		}), ""},
		"a key that someone else set is the source's once it has it": {spoke, first, copied(spoke,
			objecttest.Apply(stream.Applications, "hub-app", 8, m{"spec": base["spec"]}), func(o *object.Object) {
				o.Ensure("metadata", "labels")["team"] = "theirs"
			}), but(func(v *view) { v.Created = 8 }), ""},
		"keys of ours in the event are not taken": {spoke, objecttest.Apply(stream.Applications, "hub-app", 9, m{
			"labels": m{object.IgnoreSyncKey: "true"}, "annotations": m{object.PrincipalUIDKey: "evil", object.CommandsKey: "[]", object.RefreshKey: "hard"}, "spec": base["spec"],
		}), nil, but(func(v *view) {
			v.Op, v.Labels, v.SourceLabels = Create, nil, nil
			v.Annotations = m{object.SourceUIDKey: "hub-app", object.PrincipalUIDKey: "hub-1"}
		}), ""},
		"status, operation and other finalizers stay": {spoke, objecttest.Apply(stream.Applications, "hub-app", 12, m{
			"labels": base["labels"], "annotations": base["annotations"], "spec": m{},
		}), copied(spoke, first, func(o *object.Object) {
			o.Ensure("status")["health"] = "h"
			o.Ensure("operation")["sync"] = m{}
			o.SetFinalizers([]string{"foreign", object.CascadeFinalizer, object.PostDeleteFinalizer})
		}), but(func(v *view) {
			v.Spec, v.Revision = m{"destination": m{"name": "in-cluster"}}, 12
			v.Status, v.Operation = m{"health": "h"}, m{"sync": m{}}
			v.Finalizers = []string{"foreign", object.PostDeleteFinalizer}
		}), ""},
		"adoption of an object someone made on the spoke: it loses its cascade finalizer": {adopting(spoke), first, foreign(spoke, m{
			"labels": m{"mine": "m"}, "finalizers": []any{object.CascadeFinalizer + "/background", "foreign"},
		}, m{"spec": m{"project": "theirs"}}), append([]view{{Op: SaveFound}}, but(func(v *view) {
			v.Labels = m{"mine": "m", "team": "a", "tier": "1"}
			v.Finalizers = []string{"foreign"}
		})...), ""},
		"an object someone made on the spoke, who does not let it be adopted": {spoke, first, foreign(spoke, nil, m{"spec": m{}}), nil,
			"not-owned: the Application of that name on the spoke is its owner's: rename or remove one of the two, or allow its adoption: policy.adopt of the spoke does not name application/guestbook"},
		"the copy of an earlier object of that name is overwritten in place": {spoke, first, copied(spoke,
			objecttest.Apply(stream.Applications, "earlier", 5, m{"labels": m{"old": "o"}, "spec": m{}}), nil),
			but(func(v *view) { v.Created = 5 }), ""},
		"a release that was begun is abandoned": {spoke, first, copied(spoke, first, func(o *object.Object) {
			*o = stored(t, o.Key, release(spoke, o), nil)
		}), but(func(*view) {}), ""},
		"a release is abandoned, and the source itself wants skip-reconcile": {spoke, objecttest.Apply(stream.Applications, "hub-app", 9, m{
			"labels": base["labels"], "annotations": with(m{"note": "x", "link": "y"}, object.SkipReconcileKey, "true"), "spec": base["spec"],
		}), copied(spoke, first, func(o *object.Object) {
			*o = stored(t, o.Key, release(spoke, o), nil)
		}), but(func(v *view) { v.Annotations = with(ours, object.SkipReconcileKey, "true") }), ""},
		"null values of Helm stay null": {spoke, objecttest.Apply(stream.Applications, "hub-app", 9, m{
			"spec": m{"source": m{"helm": m{"valuesObject": m{"image": nil, "list": []any{nil, m{"x": nil}}}}}},
		}), nil, but(func(v *view) {
			v.Op, v.Labels, v.SourceLabels = Create, nil, nil
			v.Annotations = m{object.SourceUIDKey: "hub-app", object.PrincipalUIDKey: "hub-1"}
			v.Spec = m{
				"destination": m{"name": "in-cluster"},
				"source":      m{"helm": m{"valuesObject": m{"image": nil, "list": []any{nil, m{"x": nil}}}}},
			}
		}), ""},
		"a damaged record: it is written anew": {spoke, first, copied(spoke, first, func(o *object.Object) {
			o.SetAnnotation(object.RecordKey, "}{")
			o.Ensure("spec")["project"] = "theirs"
		}), but(func(*view) {}), ""},
		"the copy is being deleted": {spoke, first, copied(spoke, first, func(o *object.Object) {
			o.Ensure("metadata")["deletionTimestamp"] = now
		}), nil, "unavailable: the Application is being deleted on the spoke; it is created again when it is gone"},
		"on the hub an object that is no mirror is left alone": {hub, first, foreign(hub, nil, m{"spec": m{}}),
			nil, "not-owned: the Application of that name on the hub is its owner's: rename or remove one of the two, or allow its adoption: spec.adopt of the Agent does not name application/guestbook"},
		"a mirror on the hub names the agent and its project": {hub, objecttest.Apply(stream.Applications, "spoke-app", 3, m{
			"spec": m{"project": "web", "destination": m{"server": object.InClusterServer, "namespace": "a"}},
		}), nil, []view{{
			Op: Create, Annotations: m{object.SourceUIDKey: "spoke-app"}, Created: 3, Revision: 3,
			Spec: m{"project": "edge-1-web", "destination": m{"name": "edge-1", "namespace": "a"}},
		}}, ""},
		"a mirror without a project is of the agent's default project": {hub, objecttest.Apply(stream.Applications, "spoke-app", 3, m{"spec": m{}}), nil, []view{{
			Op: Create, Annotations: m{object.SourceUIDKey: "spoke-app"}, Created: 3, Revision: 3,
			Spec: m{"project": "edge-1-default", "destination": m{"name": "edge-1"}},
		}}, ""},
		"data that is not JSON":      {spoke, raw(`{"spec":`), nil, nil, "invalid: the event's data is not a JSON object"},
		"data that is null":          {spoke, raw(`null`), nil, nil, "invalid: the event's data is not a JSON object"},
		"data that is no object":     {spoke, raw(`[]`), nil, nil, "invalid: the event's data is not a JSON object"},
		"data without a spec":        {spoke, raw(`{"labels":{}}`), nil, nil, "invalid: the event carries no spec"},
		"data with a spec of a list": {spoke, raw(`{"spec":[]}`), nil, nil, "invalid: the event carries no spec"},
		"no data":                    {spoke, raw(``), nil, nil, "invalid: the event's data is not a JSON object"},
		"a spec with odd destination": {spoke, raw(`{"spec":{"destination":"x"},"labels":[],"annotations":7}`), nil, []view{{
			Op: Create, Annotations: m{object.SourceUIDKey: "hub-app", object.PrincipalUIDKey: "hub-1"}, Created: 9, Revision: 9,
			Spec: m{"destination": m{"name": "in-cluster"}},
		}}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkPlan(t, test.rules, test.event, test.current, "", test.want, test.refusal)
		})
	}
}

// copied is the copy that an event makes, changed.
func copied(r Rules, e stream.Event, change func(*object.Object)) func(*testing.T) *object.Object {
	return func(t *testing.T) *object.Object {
		t.Helper()
		o := copyOf(t, r, e, nil)
		if change != nil {
			change(&o)
		}
		return &o
	}
}

// foreign is an object that is not ours.
func foreign(r Rules, meta, rest m) func(*testing.T) *object.Object {
	return func(t *testing.T) *object.Object {
		t.Helper()
		o := objecttest.Object(t, appKey(r), meta, rest)
		return &o
	}
}

// raw is an event with data as it is.
func raw(data string) stream.Event {
	e := objecttest.Apply(stream.Applications, "hub-app", 9, nil)
	e.Data = []byte(data)
	e.Version.Hash = stream.HashOf(e.Data)
	return e
}

func checkPlan(t *testing.T, r Rules, e stream.Event, current func(*testing.T) *object.Object, refresh string, want []view, refused string) {
	t.Helper()
	key, ok := r.Local(e.Key)
	if !ok {
		t.Fatalf("%s is not local", e.Key)
	}
	var o *object.Object
	var before []byte
	if current != nil {
		o = current(t)
		key, before = o.Key, object.Encode(o.Fields)
	}
	writes, refusal := r.Plan(e, key, o, hard(refresh))
	if diff := cmp.Diff(refused, refusalText(refusal)); diff != "" {
		t.Errorf("Plan() refusal (-want +got)\n%s", diff)
	}
	// Numbers are compared as the text they are.
	for i := range want {
		want[i].Spec, want[i].Status, want[i].Operation = normal(t, want[i].Spec), normal(t, want[i].Status), normal(t, want[i].Operation)
	}
	if diff := cmp.Diff(want, viewsOf(t, key, writes), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Plan() (-want +got)\n%s", diff)
	}
	if o != nil && !bytes.Equal(object.Encode(o.Fields), before) {
		t.Error("Plan() changed the object that it was given")
	}
}

// normal is v as decoded JSON.
func normal(t *testing.T, v any) any {
	t.Helper()
	if v == nil {
		return nil
	}
	decoded, err := object.Decode(object.Encode(v))
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

// TestPlanOfAnEnd checks the three ways in which a copy goes (I4): as a witnessed
// cascade, as a release, and not at all.
func TestPlanOfAnEnd(t *testing.T) {
	spoke, hub := ruleSet(t, stream.Spoke, stream.Managed), ruleSet(t, stream.Hub, stream.Autonomous)
	made := objecttest.Apply(stream.Applications, "hub-app", 9, m{"labels": m{"team": "a"}, "spec": m{"project": "p"}})
	leaving := objecttest.Apply(stream.Applications, "hub-app", 15, m{
		"leaving": []any{object.CascadeFinalizer + "/foreground"}, "labels": m{"team": "a"}, "spec": m{"project": "p"},
	})
	gone := objecttest.Removal(stream.Applications)
	spec := m{"project": "p", "destination": m{"name": "in-cluster"}}
	annotations := m{object.SourceUIDKey: "hub-app", object.PrincipalUIDKey: "hub-1"}
	skipping := m{object.SourceUIDKey: "hub-app", object.PrincipalUIDKey: "hub-1", object.SkipReconcileKey: "true"}
	released := view{
		Op: Update, Labels: m{"team": "a"}, Annotations: skipping, Spec: spec, Releasing: true,
		SourceLabels: []string{"team"}, Created: 9, Revision: 9,
	}
	left := view{
		Op: Update, Labels: m{"team": "a"}, Annotations: annotations, Spec: spec, Leaving: true,
		Finalizers: []string{object.CascadeFinalizer + "/foreground"}, SourceLabels: []string{"team"}, Created: 9, Revision: 15,
	}
	but := func(v view, change func(v *view)) []view {
		change(&v)
		return []view{v, {Op: Delete}}
	}
	deleting := func(o *object.Object) { o.Ensure("metadata")["deletionTimestamp"] = now }
	witnessed := func(o *object.Object) {
		*o = stored(t, o.Key, begun(t, spoke, leaving, *o), nil)
		deleting(o)
	}
	allFinalizers := func(o *object.Object) {
		o.SetFinalizers([]string{
			object.CascadeFinalizer, object.CascadeFinalizer + "/background", object.PostDeleteFinalizer, object.PostDeleteFinalizer + "/cleanup",
			object.PreDeleteFinalizer, object.PreDeleteFinalizer + "/cleanup", "foreign",
		})
	}
	tests := map[string]struct {
		rules   Rules
		event   stream.Event
		current func(*testing.T) *object.Object
		want    []view
	}{
		"leaving: the cascade finalizer comes in the step in which it is deleted": {spoke, leaving, copied(spoke, made, nil), but(left, func(*view) {})},
		"leaving: finalizers of others stay": {spoke, leaving, copied(spoke, made, func(o *object.Object) { o.SetFinalizers([]string{"foreign"}) }),
			but(left, func(v *view) { v.Finalizers = []string{"foreign", object.CascadeFinalizer + "/foreground"} })},
		"leaving: a finalizer that is no cascade is not taken from the event": {spoke,
			objecttest.Apply(stream.Applications, "hub-app", 15, m{"leaving": []any{"foreign", object.CascadeFinalizer, 7}, "labels": m{"team": "a"}, "spec": m{}}), copied(spoke, made, nil),
			but(left, func(v *view) { v.Finalizers = []string{object.CascadeFinalizer} })},
		"leaving: after a release was begun it is no longer skipped": {spoke, leaving, copied(spoke, made, func(o *object.Object) {
			*o = stored(t, o.Key, release(spoke, o), nil)
		}), but(left, func(*view) {})},
		"leaving: it was begun before and not deleted": {spoke, leaving, copied(spoke, made, func(o *object.Object) {
			*o = stored(t, o.Key, begun(t, spoke, leaving, *o), nil)
		}), but(left, func(*view) {})},
		"leaving: nothing is there":            {spoke, leaving, nil, nil},
		"leaving: it is being deleted already": {spoke, leaving, copied(spoke, made, deleting), nil},
		"leaving: an object that is not ours":  {spoke, leaving, foreign(spoke, nil, m{"spec": m{}}), nil},
		"leaving: a copy of another hub":       {spoke, leaving, copied(spoke, made, func(o *object.Object) { o.SetAnnotation(object.PrincipalUIDKey, "hub-2") }), nil},
		"leaving: the copy of an earlier object of that name is released": {spoke,
			objecttest.Apply(stream.Applications, "hub-app-2", 15, m{"leaving": []any{object.CascadeFinalizer}, "spec": m{}}), copied(spoke, made, nil), but(released, func(*view) {})},

		"gone: no finalizer of Argo CD, no reconciliation, then deleted": {spoke, gone, copied(spoke, made, allFinalizers),
			but(released, func(v *view) { v.Finalizers = []string{"foreign"} })},
		"gone: what others set on the copy stays to its end": {spoke, gone, copied(spoke, made, func(o *object.Object) {
			o.Ensure("metadata", "labels")["mine"] = "m"
			o.Ensure("spec")["project"] = "drifted"
		}), but(released, func(v *view) {
			v.Labels, v.Spec = m{"team": "a", "mine": "m"}, m{"project": "drifted", "destination": m{"name": "in-cluster"}}
		})},
		"gone: a release goes on after a restart": {spoke, gone, copied(spoke, made, func(o *object.Object) {
			*o = stored(t, o.Key, release(spoke, o), nil)
		}), but(released, func(*view) {})},
		"gone: someone deleted it with a cascade finalizer of his own: the workloads stay": {spoke, gone, copied(spoke, made, func(o *object.Object) {
			o.SetFinalizers([]string{object.CascadeFinalizer})
			deleting(o)
		}), but(released, func(*view) {})},
		"gone: a begun cascade that was not deleted becomes a release": {spoke, gone, copied(spoke, made, func(o *object.Object) {
			*o = stored(t, o.Key, begun(t, spoke, leaving, *o), nil)
		}), but(released, func(v *view) { v.Leaving, v.Revision = true, 15 })},
		"gone: once witnessed it stays witnessed": {spoke, gone, copied(spoke, made, witnessed), nil},
		"gone: nothing is there":                  {spoke, gone, nil, nil},
		"gone: an object that is not ours":        {spoke, gone, foreign(spoke, m{"finalizers": []any{object.CascadeFinalizer}}, m{"spec": m{}}), nil},
		"gone: a copy of another hub":             {spoke, gone, copied(spoke, made, func(o *object.Object) { o.SetAnnotation(object.PrincipalUIDKey, "hub-2") }), nil},
		"gone: an object of that name on the hub": {hub, gone, foreign(hub, nil, m{"spec": m{}}), nil},
		"gone: a mirror on the hub": {hub, gone, copied(hub, made, func(o *object.Object) { o.SetFinalizers([]string{object.CascadeFinalizer}) }),
			but(released, func(v *view) {
				v.Annotations = m{object.SourceUIDKey: "hub-app", object.SkipReconcileKey: "true"}
				v.Spec = m{"project": "edge-1-p", "destination": m{"name": "edge-1"}}
			})},
		"gone: a status is not the existence of the object": {hub, objecttest.Removal(stream.Statuses), copied(hub, made, nil), nil},
		"gone: a command that is no more asks nothing":      {spoke, objecttest.Removal(stream.Commands), copied(spoke, made, nil), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkPlan(t, test.rules, test.event, test.current, "", test.want, "")
		})
	}
	t.Run("gone: a project has no reconciliation to skip", func(t *testing.T) {
		e := objecttest.Apply(stream.AppProjects, "hub-project", 4, m{"spec": m{}})
		checkPlan(t, spoke, objecttest.Removal(stream.AppProjects), copied(spoke, e, nil), "", []view{{
			Op: Update, Annotations: m{object.SourceUIDKey: "hub-project", object.PrincipalUIDKey: "hub-1"}, Spec: m{}, Releasing: true, Created: 4, Revision: 4,
		}, {Op: Delete}}, "")
	})
}

func TestPlanOfAProject(t *testing.T) {
	spoke, hub := ruleSet(t, stream.Spoke, stream.Managed), ruleSet(t, stream.Hub, stream.Autonomous)
	e := objecttest.Apply(stream.AppProjects, "p-1", 4, m{"labels": m{"a": "b"}, "spec": m{
		"sourceNamespaces": []any{"x"}, "roles": []any{m{"name": "admins"}}, "sourceRepos": []any{"*"},
		"destinations": []any{m{"name": "in-cluster", "server": object.InClusterServer, "namespace": "a"}, m{"server": "https://y", "namespace": "!b"}},
	}})
	t.Run("on a managed spoke it is stored as it was sent", func(t *testing.T) {
		checkPlan(t, spoke, e, nil, "", []view{{
			Op: Create, Labels: m{"a": "b"}, Annotations: m{object.SourceUIDKey: "p-1", object.PrincipalUIDKey: "hub-1"},
			SourceLabels: []string{"a"}, Created: 4, Revision: 4,
			Spec: m{
				"sourceNamespaces": []any{"x"}, "roles": []any{m{"name": "admins"}}, "sourceRepos": []any{"*"},
				"destinations": []any{m{"name": "in-cluster", "server": object.InClusterServer, "namespace": "a"}, m{"server": "https://y", "namespace": "!b"}},
			},
		}}, "")
	})
	t.Run("on the hub it is for the agent's namespace and cluster only", func(t *testing.T) {
		checkPlan(t, hub, e, nil, "", []view{{
			Op: Create, Labels: m{"a": "b"}, Annotations: m{object.SourceUIDKey: "p-1"}, SourceLabels: []string{"a"}, Created: 4, Revision: 4,
			Spec: m{
				"sourceNamespaces": []any{"edge-1"}, "sourceRepos": []any{"*"},
				"destinations": []any{m{"name": "edge-1", "namespace": "a"}, m{"name": "edge-1", "namespace": "!b"}},
			},
		}}, "")
	})
}

// FuzzPlan feeds what a peer may send, valid or not, to both sides, against what
// may be there. A plan never panics, and what it does to a store it does once.
func FuzzPlan(f *testing.F) {
	add := func(collection, situation uint8, data any) { f.Add(collection, situation, object.Encode(data)) }
	operation := m{"sync": m{"revision": "HEAD"}, "info": []any{m{"name": object.CommandInfo, "value": "c-1"}, m{"name": object.AfterInfo, "value": "9"}}}
	add(0, 0, m{"labels": m{"a": "b"}, "annotations": m{"c": "d"}, "spec": m{"destination": m{"name": "edge-1"}}})
	add(0, 1, m{"spec": m{"destination": nil, "source": m{"helm": m{"valuesObject": m{"x": nil}}}}})
	add(0, 2, m{"leaving": []any{object.CascadeFinalizer, 1}, "spec": m{}})
	add(1, 0, m{"spec": m{"destinations": []any{m{"name": "x"}, 4}, "sourceNamespaces": []any{"*"}}})
	add(2, 1, m{"status": m{"conditions": []any{m{"type": object.ErrorCondition}, 3}, "operationState": m{"operation": operation, "phase": "Succeeded"}}, "refreshed": "r-1"})
	add(3, 1, m{"operation": operation, "refresh": m{"type": "hard", "id": "r-1"}})
	add(3, 1, m{"operation": operation, "terminate": m{"command": "c-1"}, "hydrate": m{"type": "hard", "id": "h-1"}})
	add(3, 9, m{"operation": operation, "terminate": m{"startedAt": now}, "refresh": m{"type": "hard", "id": "r-1"}})
	add(2, 5, m{"status": m{"operationState": m{"phase": "Terminating"}}, "operation": m{"info": []any{m{"name": object.SpokeInfo, "value": "edge-1"}}}})
	add(3, 3, m{"operation": m{"info": []any{nil, m{"name": object.CommandInfo, "value": 7}}}})
	add(4, 0, m{"labels": m{"a": "b"}, "spec": m{"destination": m{"name": "x"}}, "status": m{"conditions": []any{m{"type": object.ErrorCondition}}, "operationState": m{"startedAt": now}}})
	add(4, 4, m{"spec": m{"project": "p"}, "status": m{"operationState": m{"phase": "Error", "message": operations.FailedMessage, "finishedAt": now}}})
	add(0, 4, m{"annotations": m{object.MismatchPolicyKey: copies.Recreate}, "spec": m{}})
	for situation := range uint8(16) {
		add(5, situation, m{"items": m{"A": "2", "B": "1"}})
		add(6, situation, m{"labels": m{object.SecretTypeKey: object.TemplateType}, "data": m{"url": "eQ=="}})
	}
	f.Add(uint8(0), uint8(4), []byte("{\"spec\":{\"a\":1e400,\"b\":-0,\"c\":1.0}}"))
	f.Add(uint8(0), uint8(0), []byte("{\"spec\":{},\"labels\":{\"-\":\"\\u0000\"}} trailing"))
	// In this order the seeds name them.
	fuzzed := []stream.Collection{
		stream.AppProjects, stream.Applications, stream.Commands, stream.Statuses, stream.Children, stream.Trust, stream.Repositories,
	}
	everyKind := []stream.Kind{stream.Application, stream.AppProject, stream.Secret, stream.ConfigMap}
	f.Fuzz(func(t *testing.T, collection, situation uint8, data []byte) {
		c := fuzzed[int(collection)%len(fuzzed)]
		mode := stream.Managed
		if situation&1 != 0 && c.Source(stream.Autonomous) != 0 {
			mode = stream.Autonomous
		}
		side := stream.Hub
		if c.Source(mode) == stream.Hub {
			side = stream.Spoke
		}
		r := ruleSet(t, side, mode)
		r.Children, r.HistoryID = true, "h-1"
		e := objecttest.Apply(c, "source-1", 9, nil)
		e.Data = data
		e.Version.Hash = stream.HashOf(data)
		if situation&2 != 0 {
			e = objecttest.Removal(c)
		}
		if c == stream.Trust {
			e.Key.Name = object.GPGKeysConfigMap
		}
		store := memory.New(memory.Config{Kinds: everyKind, NewUID: func() string { return "uid-1" }})
		w := &fuzzWriter{t: t, store: store, rules: r}
		w.key, _ = r.Local(e.Key)
		switch situation >> 2 & 3 {
		case 1: // ours
			owner := stream.Applications
			if !slices.Contains([]stream.Collection{stream.Commands, stream.Statuses}, c) {
				owner = c
			}
			before := objecttest.Apply(owner, "source-1", 3, m{
				"labels": m{"l": "1", object.SecretTypeKey: object.RepositoryType}, "annotations": m{"n": "1"}, "spec": m{"destination": m{"name": "edge-1"}}, "status": m{"a": "b"},
				"data": m{"url": "eA=="}, "items": m{"A": "1"},
			})
			before.Key.Name = e.Key.Name
			w.run(before)
		case 2: // someone else's
			w.seed(objecttest.Object(t, w.key, m{"uid": "", "resourceVersion": "", "finalizers": []any{object.CascadeFinalizer}}, m{"spec": m{}, "operation": m{}}))
		case 3: // being deleted, with a finalizer that stays
			w.seed(objecttest.Object(t, w.key, m{"uid": "", "resourceVersion": "", "finalizers": []any{"example.org/f"}}, m{"spec": m{}}))
			if err := store.Delete(t.Context(), w.key, backends.Preconditions{}); err != nil {
				t.Fatal(err)
			}
		}
		first := w.run(e)
		before := w.current()
		second := w.run(e)
		if after := w.current(); !bytes.Equal(after.Raw, before.Raw) || after.ResourceVersion != before.ResourceVersion {
			t.Errorf("the plan is not idempotent (-first +second)\n%s", cmp.Diff(string(before.Raw), string(after.Raw)))
		}
		if first == "" && second != "" {
			t.Errorf("taken once, the event is refused: %s", second)
		}
		if before.Key != (stream.ResourceKey{}) {
			o, err := object.Parse(before)
			if err != nil {
				t.Fatal(err)
			}
			r.Stored(c, o, nil)
			for _, c := range stream.Collections() {
				r.Content(c, o, hard("r-1"))
			}
			r.PlanHubUpdate(o, LinkState{NewID: func() string { return "c-2" }, Present: true, Gone: true, HistoryBroken: "x"})
		}
	})
}

// fuzzWriter carries out plans as a worker does.
type fuzzWriter struct {
	t     *testing.T
	store *memory.Store
	rules Rules
	key   stream.ResourceKey
}

func (w *fuzzWriter) seed(o object.Object) {
	w.t.Helper()
	delete(o.Ensure("metadata"), "uid")
	delete(o.Ensure("metadata"), "resourceVersion")
	if _, err := w.store.Create(w.t.Context(), w.key, object.Encode(o.Fields)); err != nil {
		w.t.Fatal(err)
	}
}

// current is what the store holds; zero when nothing.
func (w *fuzzWriter) current() backends.Object {
	w.t.Helper()
	o, err := w.store.Read(w.t.Context(), w.key)
	if err != nil && !errors.Is(err, stream.ErrNotFound) {
		w.t.Fatal(err)
	}
	return o
}

// run returns why the event was refused, by us or by the store.
func (w *fuzzWriter) run(e stream.Event) string {
	w.t.Helper()
	ctx := context.WithoutCancel(w.t.Context())
	at := w.current()
	var parsed *object.Object
	if at.Key != (stream.ResourceKey{}) {
		o, err := object.Parse(at)
		if err != nil {
			w.t.Fatal(err)
		}
		parsed = &o
	}
	var writes []Write
	var refusal *stream.Refusal
	took := heap.Of(func() { writes, refusal = w.rules.Plan(e, w.key, parsed, hard("r-1")) })
	if room := object.Weigh(&at, map[stream.EntryKey]stream.Event{e.Key: e}); took > uint64(room)+256<<10 {
		w.t.Errorf("to plan %d bytes takes %d of heap, and room for %d is taken", len(e.Data), took, room)
	}
	if refusal != nil && len(writes) > 0 && e.Key.Collection != stream.Commands {
		w.t.Error("a refusal together with writes")
	}
	for _, write := range writes {
		var err error
		switch write.Op {
		case Create:
			at, err = w.store.Create(ctx, w.key, write.Raw)
		case Update:
			at, err = w.store.Update(ctx, at, write.Raw)
		case Delete:
			err = w.store.Delete(ctx, w.key, backends.Preconditions{UID: at.UID, ResourceVersion: at.ResourceVersion})
		}
		switch {
		case errors.Is(err, stream.ErrRefused):
			return err.Error() // a label that is no label, a number that is none
		case err != nil:
			w.t.Fatalf("a plan made from what the store holds: %v", err)
		}
	}
	return refusalText(refusal)
}

// What a spoke's controller would rewrite is written as it would have it.
func TestSpecIsNormalized(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	here := m{"name": "in-cluster"}
	tests := map[string]struct{ spec, want m }{
		"settings of tools that say nothing": {
			m{"source": m{"path": "x", "kustomize": m{}, "helm": m{"releaseName": "", "parameters": []any{}}, "directory": m{"recurse": false, "jsonnet": m{}}}},
			m{"destination": here, "source": m{"path": "x"}},
		},
		"settings of tools that say something": {
			m{"sources": []any{m{"kustomize": m{"namePrefix": "a-"}}, m{"helm": m{"valuesObject": m{"a": nil}}}, m{"directory": m{"recurse": true}}}},
			m{"destination": here, "sources": []any{m{"kustomize": m{"namePrefix": "a-"}}, m{"helm": m{"valuesObject": m{"a": nil}}}, m{"directory": m{"recurse": true}}}},
		},
		"a directory with a pattern": {
			m{"source": m{"directory": m{"recurse": false, "include": "*.yaml"}}},
			m{"destination": here, "source": m{"directory": m{"include": "*.yaml"}}},
		},
		"a policy that says nothing": {m{"syncPolicy": m{"syncOptions": []any{}}}, m{"destination": here}},
		"an empty automated is a policy": {
			m{"syncPolicy": m{"automated": m{}}}, m{"destination": here, "syncPolicy": m{"automated": m{}}},
		},
		"no project is the default one": {m{"project": ""}, m{"destination": here, "project": "default"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, mapped(spoke, stream.EntryKey{Collection: stream.Applications}, test.spec)); diff != "" {
				t.Errorf("mapped() (-want +got)\n%s", diff)
			}
		})
	}
}

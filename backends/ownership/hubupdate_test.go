package ownership

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
)

func TestTend(t *testing.T) {
	managed, autonomous := ruleSet(t, stream.Hub, stream.Managed), ruleSet(t, stream.Hub, stream.Autonomous)
	const at = "2026-02-03T04:05:06Z"
	clock, err := time.Parse(time.RFC3339, at)
	if err != nil {
		t.Fatal(err)
	}
	spec := m{"destination": m{"name": "edge-1"}}
	invented := func(message string, operation m) m {
		return m{"operation": operation, "phase": "Running", "message": message, "startedAt": at}
	}
	waiting := func() m { return invented("waiting for agent edge-1", operation("c-1", "")) }
	sent := func() m { return invented("sent to agent edge-1", operation("c-1", "6")) }
	born := func() m {
		o := operation("", "")
		operations.AddInfo(o, object.SpokeInfo, "edge-1")
		return o
	}
	bySet := func(o m) m { o["initiatedBy"] = m{"username": "applicationset-controller"}; return o }
	condition := func(message string) m {
		return m{"type": object.ErrorCondition, "message": message, "lastTransitionTime": at}
	}
	invalid := &stream.Refusal{Kind: stream.RefusalInvalid, Message: "too large"}
	away := &stream.Refusal{Kind: stream.RefusalUnavailable, Message: "does not answer"}
	const refusedMessage = "agent edge-1 did not apply it: too large"
	mirror := m{object.SourceUIDKey: "spoke-app", object.RecordKey: "{}"}
	deleting := func(finalizers ...any) m { return m{"deletionTimestamp": now, "finalizers": finalizers} }

	tests := map[string]struct {
		rules Rules
		meta  m
		rest  m
		s     LinkState
		want  *view // nil: nothing is needed
	}{
		"nothing to do": {managed, nil, m{"spec": spec}, LinkState{Present: true}, nil},

		"a new operation gets an id and is shown as waiting": {managed, nil, m{"spec": spec, "operation": operation("", "")}, LinkState{},
			&view{Operation: operation("c-1", ""), Status: m{"operationState": waiting()}}},
		"a new operation keeps the info it has": {managed, nil, m{"spec": spec, "operation": m{"sync": m{}, "info": []any{m{"name": "Reason", "value": "x"}}}}, LinkState{},
			&view{
				Operation: m{"sync": m{}, "info": []any{m{"name": "Reason", "value": "x"}, m{"name": object.CommandInfo, "value": "c-1"}}},
				Status: m{"operationState": invented("waiting for agent edge-1",
					m{"sync": m{}, "info": []any{m{"name": "Reason", "value": "x"}, m{"name": object.CommandInfo, "value": "c-1"}}})},
			}},
		"a new operation hides the state of the last": {managed, nil, m{
			"spec": spec, "operation": operation("", ""),
			"status": m{"health": m{}, "operationState": state("Succeeded", "", operation("c-0", "5"))},
		}, LinkState{}, &view{Operation: operation("c-1", ""), Status: m{"health": m{}, "operationState": waiting()}}},
		"a new operation is not sent in the write that gives it its id": {managed, nil, m{"spec": spec, "operation": operation("", "")}, LinkState{Present: true},
			&view{Operation: operation("c-1", ""), Status: m{"operationState": waiting()}}},
		"it waits while the spoke is away or does not hold the Application": {managed, nil,
			m{"spec": spec, "operation": operation("c-1", ""), "status": m{"operationState": waiting()}}, LinkState{}, nil},
		"it is sent when the spoke holds the Application": {managed, nil,
			m{"spec": spec, "operation": operation("c-1", ""), "status": m{"operationState": waiting()}}, LinkState{Present: true, VerifiedFrom: 7},
			&view{Operation: operation("c-1", "7"), Status: m{"operationState": invented("sent to agent edge-1", operation("c-1", "7"))}}},
		"it is not sent before its history is checked": {managed, nil,
			m{"spec": spec, "operation": operation("c-1", ""), "status": m{"operationState": waiting()}}, LinkState{Present: true}, nil},
		"nor from a state of before that which was checked": {managed, nil,
			m{"spec": spec, "operation": operation("c-1", ""), "status": m{"operationState": waiting()}}, LinkState{Present: true, VerifiedFrom: 8}, nil},
		"terminated before it was sent": {managed, nil, m{
			"spec": spec, "operation": operation("c-1", ""), "status": m{"operationState": state("Terminating", "waiting for agent edge-1", operation("c-1", ""))},
		}, LinkState{Present: true}, &view{Status: m{"operationState": func() m {
			s := state("Error", "not run by agent edge-1: terminated before it was sent", operation("c-1", ""))
			s["finishedAt"] = at
			return s
		}()}}},
		"an Application that is deleted ends the command that waits": {managed, deleting(object.CascadeFinalizer), m{
			"spec": spec, "operation": operation("c-1", ""), "status": m{"operationState": waiting()},
		}, LinkState{Present: true}, &view{Finalizers: []string{object.CascadeFinalizer}, Status: m{"operationState": m{
			"operation": operation("c-1", ""), "phase": "Error", "message": "not run by agent edge-1: the Application is being deleted",
			"startedAt": at, "finishedAt": at,
		}}}},
		"so does one that is deleted without cascade and kept by others": {managed, deleting("foreign"), m{
			"spec": spec, "operation": operation("c-1", ""), "status": m{"operationState": waiting()},
		}, LinkState{}, &view{Finalizers: []string{"foreign"}, Status: m{"operationState": m{
			"operation": operation("c-1", ""), "phase": "Error", "message": "not run by agent edge-1: the Application is being deleted",
			"startedAt": at, "finishedAt": at,
		}}}},
		"a command that was sent outlives the begin of a deletion": {managed, deleting(object.CascadeFinalizer), m{
			"spec": spec, "operation": operation("c-1", "6"), "status": m{"operationState": sent()},
		}, LinkState{Present: true}, nil},
		"a command that was sent and is terminating waits for the spoke": {managed, nil, m{
			"spec": spec, "operation": operation("c-1", "6"), "status": m{"operationState": state("Terminating", "sent to agent edge-1", operation("c-1", "6"))},
		}, LinkState{Away: time.Hour}, nil},
		"it was never started there": {managed, nil, m{
			"spec": spec, "operation": operation("c-1", "6"), "status": m{"operationState": state("Terminating", "sent to agent edge-1", operation("c-1", "6"))},
		}, LinkState{Present: true, Failure: &stream.Refusal{Kind: stream.RefusalInvalid, Message: "terminated before it was started"}}, &view{Status: m{"operationState": func() m {
			s := state("Error", "not run by agent edge-1: terminated before it was started", operation("c-1", "6"))
			s["finishedAt"] = at
			return s
		}()}}},
		"RollingSync wrote it anew while it is terminating": {managed, nil, m{
			"spec": spec, "operation": operation("", ""), "status": m{"operationState": state("Terminating", "", operation("c-1", "6"))},
		}, LinkState{Present: true}, nil},
		"history breaks while it waits: it ends, to be seen": {managed, nil,
			m{"spec": spec, "operation": operation("c-1", ""), "status": m{"operationState": waiting()}}, LinkState{Present: true, HistoryBroken: "the hub was restored"},
			&view{Status: m{"operationState": m{
				"operation": operation("c-1", ""), "phase": "Error", "message": "not run by agent edge-1: the hub was restored", "startedAt": at, "finishedAt": at,
			}}}},
		"history breaks before it got an id: it gets one, to end next": {managed, nil,
			m{"spec": spec, "operation": operation("", "")}, LinkState{Present: true, HistoryBroken: "the hub was restored"},
			&view{Operation: operation("c-1", ""), Status: m{"operationState": waiting()}}},
		"history breaks after it was sent: the spoke answers": {managed, nil,
			m{"spec": spec, "operation": operation("c-1", "6"), "status": m{"operationState": sent()}}, LinkState{Present: true, HistoryBroken: "the hub was restored"}, nil},
		"an operation that was born on the spoke is no command": {managed, nil, m{"spec": spec, "operation": born()}, LinkState{Present: true}, nil},
		"it stays while its spoke is away for a moment":         {managed, nil, m{"spec": spec, "operation": born()}, LinkState{Away: AwayTime - 1}, nil},
		"it leaves the hub when its spoke is away for longer, its state stays": {managed, nil, m{
			"spec": spec, "operation": born(), "status": m{"operationState": state("Running", "", operation("", ""))},
		}, LinkState{Away: AwayTime}, &view{Status: m{"operationState": state("Running", "", operation("", ""))}}},
		"RollingSync wrote over it: a new command": {managed, nil, m{
			"spec": spec, "operation": operation("", ""), "status": m{"operationState": state("Running", "", operation("", ""))},
		}, LinkState{}, &view{Operation: operation("c-1", ""), Status: m{"operationState": waiting()}}},
		"a deletion of what is not the agent's is left alone, but for the report": {managed, deleting(object.PostDeleteFinalizer),
			m{"spec": m{"destination": m{"name": "edge-2"}}}, LinkState{Present: true}, &view{Finalizers: []string{object.PostDeleteFinalizer}, Status: m{
				"conditions": []any{condition("not sent: the destination is not agent edge-1, to whose namespace the Application belongs; set destination.name to edge-1")},
			}}},
		"it was sent": {managed, nil, m{"spec": spec, "operation": operation("c-1", "6"), "status": m{"operationState": sent()}}, LinkState{Present: true}, nil},
		"it was sent, and the spoke says that it runs": {managed, nil, m{
			"spec": spec, "operation": operation("c-1", "6"), "status": m{"operationState": state("Running", "", operation("c-1", "6"))},
		}, LinkState{Present: true}, nil},
		"RollingSync wrote it anew while it waits: it is sent all the same": {managed, nil,
			m{"spec": spec, "operation": operation("", ""), "status": m{"operationState": waiting()}}, LinkState{Present: true, VerifiedFrom: 7},
			&view{Operation: operation("", ""), Status: m{"operationState": invented("sent to agent edge-1", operation("c-1", "7"))}}},
		"RollingSync wrote it anew while it waits, and the agent is away": {managed, nil,
			m{"spec": spec, "operation": operation("", ""), "status": m{"operationState": waiting()}}, LinkState{}, nil},
		"RollingSync wrote it anew after it was sent: it stays sent": {managed, nil,
			m{"spec": spec, "operation": operation("", ""), "status": m{"operationState": sent()}}, LinkState{Present: true}, nil},
		"RollingSync wrote it anew while it runs": {managed, nil, m{
			"spec": spec, "operation": operation("", ""), "status": m{"operationState": state("Running", "2 of 3", operation("c-1", "6"))},
		}, LinkState{Present: true}, nil},
		"RollingSync patched an operation that had ended: nothing is left to be run": {managed, nil, m{
			"spec": spec, "operation": m{"info": []any{m{"name": "Reason", "value": "x"}}}, "status": m{"operationState": state("Succeeded", "", operation("c-1", "6"))},
		}, LinkState{Present: true}, &view{Status: m{"operationState": state("Succeeded", "", operation("c-1", "6"))}}},
		"an operation of an ApplicationSet starts when the Application was made": {managed, m{"creationTimestamp": now},
			m{"spec": spec, "operation": bySet(operation("", ""))}, LinkState{},
			&view{Operation: bySet(operation("c-1", "")), Status: m{"operationState": m{
				"operation": bySet(operation("c-1", "")), "phase": "Running", "message": "waiting for agent edge-1", "startedAt": now,
			}}}},
		"someone cleared the state after it was sent: it is shown again": {managed, nil,
			m{"spec": spec, "operation": operation("c-1", "6")}, LinkState{Present: true},
			&view{Operation: operation("c-1", "6"), Status: m{"operationState": sent()}}},
		"the spoke will never run it: it ends, to be seen": {managed, nil,
			m{"spec": spec, "operation": operation("c-1", "6"), "status": m{"operationState": sent()}}, LinkState{Present: true, Failure: invalid},
			&view{Status: m{"operationState": m{
				"operation": operation("c-1", "6"), "phase": "Error", "message": "not run by agent edge-1: too large", "startedAt": at, "finishedAt": at,
			}}}},
		"a failure does not end a command that only waits": {managed, nil,
			m{"spec": spec, "operation": operation("c-1", ""), "status": m{"operationState": waiting()}}, LinkState{Failure: invalid}, nil},
		"ignore-sync: no command": {managed, m{"labels": m{object.IgnoreSyncKey: "true"}}, m{"spec": spec, "operation": operation("", "")}, LinkState{}, nil},
		"an operation on a mirror of an autonomous agent": {autonomous, m{"annotations": mirror},
			m{"spec": m{}, "operation": operation("", "")}, LinkState{},
			&view{Operation: operation("c-1", ""), Status: m{"operationState": waiting()}}},
		"it is sent to the original that the mirror shows": {autonomous, m{"annotations": mirror},
			m{"spec": m{}, "operation": operation("c-1", ""), "status": m{"operationState": waiting()}}, LinkState{Present: true, VerifiedFrom: 1},
			&view{Operation: operation("c-1", "spoke-app"), Status: m{"operationState": invented("sent to agent edge-1", operation("c-1", "spoke-app"))}}},
		"an operation on an object of the hub in the agent's namespace": {autonomous, nil, m{"spec": m{}, "operation": operation("", "")}, LinkState{}, nil},

		"a refusal becomes a condition beside the others": {managed, nil,
			m{"spec": spec, "status": m{"conditions": []any{m{"type": "SyncError"}}}}, LinkState{Answers: true, Refusal: invalid},
			&view{Status: m{"conditions": []any{m{"type": "SyncError"}, condition(refusedMessage)}}}},
		"a refusal that is shown":                              {managed, nil, m{"spec": spec, "status": m{"conditions": []any{condition(refusedMessage)}}}, LinkState{Answers: true, Refusal: invalid}, nil},
		"a refusal of a connection before another principal's": {managed, nil, m{"spec": spec}, LinkState{Refusal: invalid}, nil},
		"what the spoke answered stays until it takes it":      {managed, nil, m{"spec": spec, "status": m{"conditions": []any{condition(refusedMessage)}}}, LinkState{Answers: true}, nil},
		"it was taken after all":                               {managed, nil, m{"spec": spec, "status": m{"conditions": []any{condition(refusedMessage)}}}, LinkState{Answers: true, Agreed: true}, &view{Status: m{}}},
		"what another agent answered goes":                     {managed, nil, m{"spec": spec, "status": m{"conditions": []any{condition("agent edge-2 did not apply it: too large")}}}, LinkState{}, &view{Status: m{}}},
		"a refusal that passes by itself":                      {managed, nil, m{"spec": spec}, LinkState{Refusal: away}, nil},
		"another refusal replaces the message":                 {managed, nil, m{"spec": spec, "status": m{"conditions": []any{condition("old"), m{"type": "SyncError"}}}}, LinkState{Answers: true, Refusal: invalid}, &view{Status: m{"conditions": []any{m{"type": "SyncError"}, condition(refusedMessage)}}}},
		"it was taken: the condition goes":                     {managed, nil, m{"spec": spec, "status": m{"conditions": []any{condition("old")}}}, LinkState{}, &view{Status: m{}}},
		"a destination that is not the agent": {managed, nil, m{"spec": m{"destination": m{"name": "edge-2"}}}, LinkState{},
			&view{Status: m{"conditions": []any{condition("not sent: the destination is not agent edge-1, to whose namespace the Application belongs; set destination.name to edge-1")}}}},
		"a destination that is not the agent: no command": {managed, nil, m{
			"spec": m{"destination": m{"name": "edge-2"}}, "operation": operation("", ""),
			"status": m{"conditions": []any{condition("not sent: the destination is not agent edge-1, to whose namespace the Application belongs; set destination.name to edge-1")}},
		}, LinkState{}, nil},
		"ignore-sync hides the condition": {managed, m{"labels": m{object.IgnoreSyncKey: "true"}}, m{"spec": m{}, "status": m{"conditions": []any{condition("old")}}}, LinkState{}, &view{Status: m{}}},
		"condition and operation in one write": {managed, nil, m{"spec": spec, "operation": operation("", "")}, LinkState{Answers: true, Refusal: invalid},
			&view{Operation: operation("c-1", ""), Status: m{"operationState": waiting(), "conditions": []any{condition(refusedMessage)}}}},

		"the spoke is done with a deletion: Argo CD's finalizers go, others stay": {managed,
			deleting("foreign", object.CascadeFinalizer, object.CascadeFinalizer+"/background", object.PostDeleteFinalizer+"/cleanup", object.PreDeleteFinalizer), m{"spec": spec}, LinkState{Gone: true},
			&view{Finalizers: []string{"foreign"}}},
		"the spoke is not done with a deletion": {managed, deleting(object.CascadeFinalizer), m{"spec": spec}, LinkState{Present: true}, nil},
		"gone, and no deletion":                 {managed, m{"finalizers": []any{object.CascadeFinalizer}}, m{"spec": spec}, LinkState{Gone: true}, nil},
		"a deletion without cascade does not wait for hooks, which run on the spoke only": {managed,
			deleting("foreign", object.PostDeleteFinalizer), m{"spec": spec}, LinkState{Present: true}, &view{Finalizers: []string{"foreign"}}},
		"gone, and only foreign finalizers":       {managed, deleting("foreign"), m{"spec": spec}, LinkState{Gone: true}, nil},
		"a deleted mirror goes at once":           {autonomous, m{"annotations": mirror, "deletionTimestamp": now, "finalizers": []any{object.CascadeFinalizer, "foreign"}}, m{"spec": m{}}, LinkState{}, &view{Finalizers: []string{"foreign"}}},
		"a deleted object of the hub stays alone": {autonomous, deleting(object.CascadeFinalizer), m{"spec": m{}}, LinkState{}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := test.s
			s.Now, s.NewID = clock, func() string { return "c-1" }
			o := objecttest.Object(t, appKey(test.rules), test.meta, test.rest)
			before := string(object.Encode(o.Fields))
			raw, needed := test.rules.PlanHubUpdate(o, s)
			if needed != (test.want != nil) {
				t.Fatalf("Tend() = %s, %t", raw, needed)
			}
			if string(object.Encode(o.Fields)) != before {
				t.Error("Tend() changed the object that it was given")
			}
			if !needed {
				return
			}
			want := *test.want
			want.Op, want.Spec = Update, test.rest["spec"]
			want.Annotations, _ = object.Clone(test.meta["annotations"]).(m)
			delete(want.Annotations, object.RecordKey)
			want.Labels, _ = test.meta["labels"].(m)
			want.Spec, want.Status, want.Operation = normal(t, want.Spec), normal(t, want.Status), normal(t, want.Operation)
			if diff := cmp.Diff(want, viewOf(t, o.Key, Write{Op: Update, Raw: raw}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Tend() (-want +got)\n%s", diff)
			}
		})
	}

	t.Run("it comes to an end", func(t *testing.T) {
		o := objecttest.Object(t, appKey(managed), nil, m{"spec": spec, "operation": operation("", "")})
		s := LinkState{Now: clock, NewID: func() string { return "c-1" }, Present: true, VerifiedFrom: 1, Refusal: invalid}
		writes := 0
		for {
			raw, needed := managed.PlanHubUpdate(o, s)
			if !needed {
				break
			}
			if writes++; writes > 2 {
				t.Fatalf("Tend() still asks for a write: %s", raw)
			}
			o = stored(t, o.Key, []Write{{Op: Update, Raw: raw}}, nil)
		}
		if after := operations.Info(o.Child("operation"), object.AfterInfo); after == "" {
			t.Errorf("the command is not free to be sent: %s", object.Encode(o.Fields))
		}
	})
	t.Run("a spoke needs no upkeep, nor does a project", func(t *testing.T) {
		spoke := ruleSet(t, stream.Spoke, stream.Managed)
		for _, c := range []struct {
			rules Rules
			key   stream.ResourceKey
		}{{spoke, appKey(spoke)}, {managed, projectKey(managed, "p")}} {
			if raw, needed := c.rules.PlanHubUpdate(objecttest.Object(t, c.key, deleting(object.CascadeFinalizer), m{"operation": m{}}), LinkState{Gone: true}); needed {
				t.Errorf("Tend(%s) = %s", c.key, raw)
			}
		}
	})
}

// RollingSync writes an operation as it wants it at each look, and looks whenever we
// wrote. A command is sent all the same, and then there is nothing more to write.
func TestTendComesToAnEndBesideRollingSync(t *testing.T) {
	r := ruleSet(t, stream.Hub, stream.Managed)
	o := objecttest.Object(t, appKey(r), nil, m{"spec": m{"destination": m{"name": "edge-1"}}})
	s := LinkState{Now: time.Unix(0, 0), Present: true, VerifiedFrom: 1, NewID: func() string { return "c-1" }}
	for range 4 {
		o.Fields["operation"] = m{"sync": m{"revision": "HEAD"}, "initiatedBy": m{"username": "applicationset-controller", "automated": true}}
		raw, needed := r.PlanHubUpdate(o, s)
		if !needed {
			if !operations.Sent(o) {
				t.Errorf("nothing is left to do, and nothing was sent: %s", object.Encode(o.Fields))
			}
			return
		}
		fields, err := object.Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		o = object.Object{Key: o.Key, Fields: fields}
	}
	t.Errorf("there is no end to it: %s", object.Encode(o.Fields))
}

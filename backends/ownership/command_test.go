package ownership

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
)

// operation returns an operation with the id and the after given, if any.
func operation(id, after string) m {
	var list []any
	if id != "" {
		list = append(list, m{"name": object.CommandInfo, "value": id})
	}
	if after != "" {
		list = append(list, m{"name": object.AfterInfo, "value": after})
	}
	o := m{"sync": m{"revision": "HEAD"}}
	if list != nil {
		o["info"] = list
	}
	return o
}

func state(phase, message string, operation m) m {
	s := m{"phase": phase, "operation": operation, "startedAt": now}
	if message != "" {
		s["message"] = message
	}
	if operations.Completed(m{"phase": phase, "finishedAt": now}) {
		s["finishedAt"] = now
	}
	return s
}

func TestPlanOfAStatus(t *testing.T) {
	hub := ruleSet(t, stream.Hub, stream.Managed)
	toAgent := m{"spec": m{"destination": m{"name": "edge-1"}}}
	healthy := m{"health": m{"status": "Healthy"}}
	pending := m{"operation": operation("c-1", "6"), "status": m{"operationState": state("Running", "sent to agent edge-1", operation("c-1", "6"))}}
	ours := m{"type": object.ErrorCondition, "message": "x"}
	status := func(uid string, data m) stream.Event { return objecttest.Apply(stream.Statuses, uid, 3, data) }
	update := func(status, operation any, annotations m) []view {
		return []view{{Op: Update, Spec: toAgent["spec"], Status: status, Operation: operation, Annotations: annotations}}
	}
	failed := state("Error", "not run by agent edge-1: too large", operation("c-1", "6"))
	// noted is failed once the spoke had shown an operation that started then.
	noted := func(before string) m {
		o := operation("c-1", "6")
		operations.AddInfo(o, object.BeforeInfo, before)
		return state("Error", "not run by agent edge-1: too large", o)
	}
	ended := func(at string) m {
		s := state("Succeeded", "", operation("", ""))
		s["startedAt"] = at
		return s
	}
	startedAt := func(at string) m {
		s := state("Running", "", operation("", ""))
		s["startedAt"] = at
		return s
	}
	running := m{"operationState": state("Running", "", operation("", ""))}
	born := func() m {
		o := operation("", "")
		operations.AddInfo(o, object.SpokeInfo, "edge-1")
		return o
	}
	bySet := func() m {
		o := operation("c-1", "6")
		o["initiatedBy"] = m{"username": "applicationset-controller"}
		return o
	}
	retrying := state("Running", "", operation("c-1", "6"))
	retrying["finishedAt"] = now
	tests := map[string]struct {
		event       stream.Event
		annotations m
		rest        m
		refresh     string
		want        []view
		refusal     string
	}{
		"the first":                   {status("uid-1", m{"status": healthy}), nil, nil, "", update(healthy, nil, nil), ""},
		"the same":                    {status("uid-1", m{"status": healthy}), nil, m{"status": healthy}, "", nil, ""},
		"a copy has none at first":    {status("uid-1", m{"status": m{}}), nil, nil, "", nil, ""},
		"of another object":           {status("uid-0", m{"status": healthy}), nil, nil, "", nil, ""},
		"fields that went are gone":   {status("uid-1", m{"status": healthy}), nil, m{"status": m{"sync": m{}}}, "", update(healthy, nil, nil), ""},
		"our condition survives":      {status("uid-1", m{"status": m{"conditions": []any{m{"type": "SyncError"}}}}), nil, m{"status": m{"conditions": []any{ours}}}, "", update(m{"conditions": []any{m{"type": "SyncError"}, ours}}, nil, nil), ""},
		"our condition is ours alone": {status("uid-1", m{"status": m{"conditions": []any{ours, m{"type": "SyncError"}}}}), nil, nil, "", update(m{"conditions": []any{m{"type": "SyncError"}}}, nil, nil), ""},
		"our condition alone, and no change": {status("uid-1", m{"status": healthy}), nil,
			m{"status": m{"health": m{"status": "Healthy"}, "conditions": []any{ours}}}, "", nil, ""},

		"an operation that was born on the spoke is shown, and marked": {status("uid-1", m{"operation": operation("", ""), "status": m{"operationState": state("Running", "", operation("", ""))}}), nil, nil, "",
			update(m{"operationState": state("Running", "", operation("", ""))}, born(), nil), ""},
		"one that has not begun": {status("uid-1", m{"operation": operation("", ""), "status": m{}}), nil, nil, "", update(nil, born(), nil), ""},
		"one that is shown":      {status("uid-1", m{"operation": operation("", ""), "status": running}), nil, m{"operation": born(), "status": running}, "", nil, ""},
		"one that is gone from the spoke goes from the hub": {status("uid-1", m{"status": m{"operationState": state("Succeeded", "", operation("", ""))}}), nil, m{"operation": born(), "status": running}, "",
			update(m{"operationState": state("Succeeded", "", operation("", ""))}, nil, nil), ""},
		"another one takes its place": {status("uid-1", m{"operation": m{"retry": m{}}, "status": m{}}), nil, m{"operation": born(), "status": running}, "",
			update(m{}, m{"retry": m{}, "info": born()["info"]}, nil), ""},
		"it does not take the place of a command that waits": {status("uid-1", m{"operation": operation("", ""), "status": running}), nil, pending, "", nil, ""},
		"it does not take the place of an operation that has no id yet": {status("uid-1", m{"operation": operation("", ""), "status": running}), nil,
			m{"operation": operation("", ""), "status": m{}}, "", nil, ""},
		"its Running from before does not undo its termination": {status("uid-1", m{"operation": operation("", ""), "status": running}), nil,
			m{"operation": born(), "status": m{"operationState": state("Terminating", "", operation("", ""))}}, "", nil, ""},
		"its termination is not that of a later one": {status("uid-1", m{"operation": operation("", ""), "status": m{"operationState": startedAt("2026-01-01T00:00:01Z")}}), nil,
			m{"operation": born(), "status": m{"operationState": state("Terminating", "", operation("", ""))}}, "",
			update(m{"operationState": startedAt("2026-01-01T00:00:01Z")}, born(), nil), ""},
		"it ended before it was terminated": {status("uid-1", m{"status": m{"operationState": state("Succeeded", "", operation("", ""))}}), nil,
			m{"operation": born(), "status": m{"operationState": state("Terminating", "", operation("", ""))}}, "",
			update(m{"operationState": state("Succeeded", "", operation("", ""))}, nil, nil), ""},
		"the end of a command that was never run is not hidden by what began before it": {status("uid-1", m{"operation": operation("", ""), "status": m{"operationState": startedAt("2025-12-31T23:59:59Z")}}), nil,
			m{"operation": born(), "status": m{"operationState": noted("2025-12-31T23:59:59Z")}}, "", update(m{"operationState": noted("2025-12-31T23:59:59Z")}, nil, nil), ""},
		"the command ended before it was terminated": {status("uid-1", m{"status": m{"operationState": state("Succeeded", "", operation("c-1", "6"))}}), nil,
			m{"operation": operation("c-1", "6"), "status": m{"operationState": state("Terminating", "", operation("c-1", "6"))}}, "",
			update(m{"operationState": state("Succeeded", "", operation("c-1", "6"))}, nil, nil), ""},
		"what else the spoke shows does not undo a termination": {status("uid-1", m{"status": m{"health": m{}, "operationState": state("Succeeded", "", operation("c-0", "6"))}}), nil,
			m{"operation": operation("c-1", "6"), "status": m{"operationState": state("Terminating", "", operation("c-1", "6"))}}, "",
			update(m{"health": m{}, "operationState": state("Terminating", "", operation("c-1", "6"))}, operation("c-1", "6"), nil), ""},
		"RollingSync's command has ended, and the spoke has not looked since": {status("uid-1", m{"status": m{"reconciledAt": "2025-12-31T23:59:59Z", "operationState": state("Succeeded", "", bySet())}}), nil,
			m{"operation": bySet(), "status": m{"operationState": state("Running", "", bySet())}}, "",
			update(m{"reconciledAt": "2025-12-31T23:59:59Z", "operationState": state("Running", "", bySet())}, bySet(), nil), ""},
		"RollingSync's command has ended, and the spoke has looked since": {status("uid-1", m{"status": m{"reconciledAt": now, "operationState": state("Failed", "", bySet())}}), nil,
			m{"operation": bySet(), "status": m{"operationState": state("Running", "", bySet())}}, "",
			update(m{"reconciledAt": now, "operationState": state("Failed", "", bySet())}, nil, nil), ""},
		"there is no status any more: what was born there is gone": {objecttest.Removal(stream.Statuses), nil, m{"operation": born(), "status": running}, "", update(running, nil, nil), ""},
		"there is no status any more: a command stays":             {objecttest.Removal(stream.Statuses), nil, pending, "", nil, ""},
		"a refresh that was made harder meanwhile":                 {status("uid-1", m{"status": healthy, "refreshed": "r-1"}), m{object.RefreshKey: "normal"}, nil, "r-1", update(healthy, nil, m{object.RefreshKey: "normal"}), ""},
		"an operation of the spoke's own": {status("uid-1", m{"status": m{"operationState": state("Running", "", operation("", ""))}}), nil, nil, "",
			update(m{"operationState": state("Running", "", operation("", ""))}, nil, nil), ""},
		"an older operation does not hide the command that is pending": {status("uid-1", m{"status": m{"health": m{}, "operationState": state("Succeeded", "old", operation("", ""))}}), nil, pending, "",
			update(m{"health": m{}, "operationState": state("Running", "sent to agent edge-1", operation("c-1", "6"))}, operation("c-1", "6"), nil), ""},
		"an earlier command does not end the one that is pending": {status("uid-1", m{"status": m{"operationState": state("Succeeded", "old", operation("c-0", "5"))}}), nil, pending, "", nil, ""},
		"no operation on the spoke yet":                           {status("uid-1", m{"status": m{}}), nil, pending, "", nil, ""},
		"an operation without an id keeps what is shown": {status("uid-1", m{"status": m{"operationState": state("Succeeded", "old", operation("c-0", "5"))}}), nil,
			m{"operation": operation("", "")}, "", nil, ""},
		"the command runs": {status("uid-1", m{"status": m{"operationState": state("Running", "3 of 5", operation("c-1", "6"))}}), nil, pending, "",
			update(m{"operationState": state("Running", "3 of 5", operation("c-1", "6"))}, operation("c-1", "6"), nil), ""},
		"the command will be retried: running with finishedAt is not completed": {status("uid-1", m{"status": m{"operationState": retrying}}), nil, pending, "",
			update(m{"operationState": retrying}, operation("c-1", "6"), nil), ""},
		"the command is terminating": {status("uid-1", m{"status": m{"operationState": state("Terminating", "", operation("c-1", "6"))}}), nil, pending, "",
			update(m{"operationState": state("Terminating", "", operation("c-1", "6"))}, operation("c-1", "6"), nil), ""},
		"the command succeeded: both change in one write": {status("uid-1", m{"status": m{"operationState": state("Succeeded", "", operation("c-1", "6"))}}), nil, pending, "",
			update(m{"operationState": state("Succeeded", "", operation("c-1", "6"))}, nil, nil), ""},
		"the command failed": {status("uid-1", m{"status": m{"operationState": state("Failed", "", operation("c-1", "6"))}}), nil, pending, "",
			update(m{"operationState": state("Failed", "", operation("c-1", "6"))}, nil, nil), ""},
		"the command met an error": {status("uid-1", m{"status": m{"operationState": state("Error", "", operation("c-1", "6"))}}), nil, pending, "",
			update(m{"operationState": state("Error", "", operation("c-1", "6"))}, nil, nil), ""},

		"the command ended unseen, and another operation ran after it": {status("uid-1", m{"overtaken": "c-1", "status": m{"operationState": state("Running", "self-heal", operation("", ""))}}), nil, pending, "",
			update(m{"operationState": state("Running", "self-heal", operation("", ""))}, nil, nil), ""},
		"a Running from before does not undo a termination": {status("uid-1", m{"status": m{"operationState": state("Running", "", operation("c-1", "6"))}}), nil,
			m{"operation": operation("c-1", "6"), "status": m{"operationState": state("Terminating", "", operation("c-1", "6"))}}, "", nil, ""},
		"a status of an Application that went to another cluster": {status("uid-1", m{"status": healthy}), nil, m{"spec": m{"destination": m{"name": "edge-2"}}}, "", nil, ""},
		"an earlier command ended unseen":                         {status("uid-1", m{"overtaken": "c-0", "status": m{"operationState": state("Running", "self-heal", operation("", ""))}}), nil, pending, "", nil, ""},
		"the end of a command that was never run stays to be seen": {status("uid-1", m{"status": m{"health": m{}}}), nil,
			m{"status": m{"operationState": failed}}, "", update(m{"health": m{}, "operationState": noted(operations.NeverStarted)}, nil, nil), ""},
		"it outlives what ran before": {status("uid-1", m{"status": m{"operationState": ended("2025-12-31T23:59:59Z")}}), nil,
			m{"status": m{"operationState": failed}}, "", update(m{"operationState": noted("2025-12-31T23:59:59Z")}, nil, nil), ""},
		"it outlives what ran before on a spoke whose clock is ahead": {status("uid-1", m{"status": m{"operationState": ended("2036-01-01T00:00:00Z")}}), nil,
			m{"status": m{"operationState": noted("2036-01-01T00:00:00Z")}}, "", nil, ""},
		"it gives way to what runs later": {status("uid-1", m{"status": m{"operationState": ended("2026-01-01T00:00:01Z")}}), nil,
			m{"status": m{"operationState": noted(operations.NeverStarted)}}, "", update(m{"operationState": ended("2026-01-01T00:00:01Z")}, nil, nil), ""},
		"it gives way to what runs later on a spoke whose clock is behind": {status("uid-1", m{"status": m{"operationState": ended("2016-01-01T00:00:01Z")}}), nil,
			m{"status": m{"operationState": noted("2016-01-01T00:00:00Z")}}, "", update(m{"operationState": ended("2016-01-01T00:00:01Z")}, nil, nil), ""},
		"a refresh that was consumed": {status("uid-1", m{"status": healthy, "refreshed": "r-1"}), m{object.RefreshKey: "hard", "note": "x"}, nil, "r-1",
			update(healthy, nil, m{"note": "x"}), ""},
		"an older refresh was consumed": {status("uid-1", m{"status": healthy, "refreshed": "r-0"}), m{object.RefreshKey: "hard"}, nil, "r-1",
			update(healthy, nil, m{object.RefreshKey: "hard"}), ""},
		"a refresh nobody here asked for": {status("uid-1", m{"status": healthy, "refreshed": "r-0"}), m{object.RefreshKey: "hard"}, nil, "",
			update(healthy, nil, m{object.RefreshKey: "hard"}), ""},
		"not JSON":           {raw2(stream.Statuses, `{`), nil, nil, "", nil, "invalid: the status is not a JSON object"},
		"no status":          {raw2(stream.Statuses, `{}`), nil, nil, "", nil, "invalid: the event carries no status"},
		"a status of a list": {raw2(stream.Statuses, `{"status":[]}`), nil, nil, "", nil, "invalid: the event carries no status"},
		"odd conditions": {raw2(stream.Statuses, `{"status":{"conditions":[null,3,{"type":5}],"operationState":[]}}`), nil, pending, "",
			update(m{"conditions": []any{nil, 3, m{"type": 5}}, "operationState": state("Running", "sent to agent edge-1", operation("c-1", "6"))}, operation("c-1", "6"), nil), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			current := func(t *testing.T) *object.Object {
				meta := m{}
				if test.annotations != nil {
					meta["annotations"] = test.annotations
				}
				rest := maps.Clone(toAgent)
				maps.Copy(rest, test.rest)
				o := objecttest.Object(t, appKey(hub), meta, rest)
				return &o
			}
			checkPlan(t, hub, test.event, current, test.refresh, test.want, test.refusal)
		})
	}
	t.Run("there is no object to show it on", func(t *testing.T) {
		checkPlan(t, hub, status("uid-1", m{"status": healthy}), nil, "", nil, "")
	})
}

// raw2 is an event of uid-1 with data as it is.
func raw2(c stream.Collection, data string) stream.Event {
	e := objecttest.Apply(c, "uid-1", 9, nil)
	e.Data = []byte(data)
	e.Version.Hash = stream.HashOf(e.Data)
	return e
}

func TestPlanOfACommand(t *testing.T) {
	spoke, autonomous := ruleSet(t, stream.Spoke, stream.Managed), ruleSet(t, stream.Spoke, stream.Autonomous)
	made := objecttest.Apply(stream.Applications, "uid-1", 9, m{"spec": m{}})
	command := func(data m) stream.Event { return objecttest.Apply(stream.Commands, "uid-1", 12, data) }
	spec := m{"destination": m{"name": "in-cluster"}}
	update := func(operation any, status any, annotations m) []view {
		all := m{object.SourceUIDKey: "uid-1", object.PrincipalUIDKey: "hub-1"}
		for key, value := range annotations {
			all[key] = value
		}
		return []view{{Op: Update, Annotations: all, Spec: spec, Operation: operation, Status: status, Created: 9, Revision: 9}}
	}
	taken := func(ids ...string) func(*object.Object) {
		return func(o *object.Object) { o.SetAnnotation(object.CommandsKey, string(object.Encode(ids))) }
	}
	var many []string
	for i := range operations.MaxTakenCommands {
		many = append(many, fmt.Sprint("c-", i))
	}
	running := func(o *object.Object) { o.Ensure("operation")["sync"] = m{"revision": "spoke-born"} }
	ended := func(id, after string) m {
		return m{"operation": operation(id, after), "terminate": m{"command": id}}
	}
	// in puts an operation with an id into the object, as far as the controller is.
	in := func(phase, id string, change func(*object.Object)) func(*object.Object) {
		return func(o *object.Object) {
			change(o)
			if phase != "" {
				o.Ensure("status")["operationState"] = normal(t, state(phase, "", operation(id, "")))
			}
			if !operations.Completed(m{"phase": phase, "finishedAt": now}) {
				o.Fields["operation"] = normal(t, operation(id, ""))
			}
		}
	}
	const never = "invalid: terminated before it was started"
	tests := map[string]struct {
		event   stream.Event
		change  func(*object.Object)
		want    []view
		refusal string
	}{
		"a sync: operation, no operationState, and the id, in one write": {command(m{"operation": operation("c-1", "10")}), func(o *object.Object) {
			o.Ensure("status")["operationState"] = state("Succeeded", "old", operation("", ""))
			o.Ensure("status")["health"] = "h"
		}, update(operation("c-1", "10"), m{"health": "h"}, m{object.CommandsKey: `["c-1"]`}), ""},
		"it was taken before":                                           {command(m{"operation": operation("c-1", "10")}), taken("c-0", "c-1"), nil, ""},
		"it was taken before, and another one since":                    {command(m{"operation": operation("c-1", "10")}), taken("c-1", "c-2"), update(nil, nil, m{object.CommandsKey: `["c-2","c-1"]`}), ""},
		"it was taken before and still runs":                            {command(m{"operation": operation("c-1", "10")}), func(o *object.Object) { taken("c-1")(o); running(o) }, nil, ""},
		"the next one":                                                  {command(m{"operation": operation("c-2", "10")}), taken("c-1"), update(operation("c-2", "10"), nil, m{object.CommandsKey: `["c-1","c-2"]`}), ""},
		"only the last ids are kept":                                    {command(m{"operation": operation("c-new", "10")}), taken(many...), update(operation("c-new", "10"), nil, m{object.CommandsKey: string(object.Encode(append(many[1:], "c-new")))}), ""},
		"another operation is in progress":                              {command(m{"operation": operation("c-1", "10")}), running, nil, "unavailable: another operation is in progress on the spoke"},
		"the copy was made after it was sent":                           {command(m{"operation": operation("c-1", "8")}), nil, nil, "invalid: the Application was created again on the spoke after the command was sent; whether it ran before is not known, so it is not run again"},
		"the copy was made just as it was sent":                         {command(m{"operation": operation("c-1", "9")}), nil, update(operation("c-1", "9"), nil, m{object.CommandsKey: `["c-1"]`}), ""},
		"it does not say when it was sent":                              {command(m{"operation": operation("c-1", "")}), nil, nil, "invalid: the Application was created again on the spoke after the command was sent; whether it ran before is not known, so it is not run again"},
		"no id":                                                         {command(m{"operation": operation("", "")}), nil, nil, "invalid: the operation carries no command id"},
		"a damaged list of ids is an empty one":                         {command(m{"operation": operation("c-1", "10")}), func(o *object.Object) { o.SetAnnotation(object.CommandsKey, "}{") }, update(operation("c-1", "10"), nil, m{object.CommandsKey: `["c-1"]`}), ""},
		"it was taken before, and somebody removed the list":            {command(m{"operation": operation("c-1", "10")}), in("Running", "c-1", func(*object.Object) {}), nil, ""},
		"it was taken before, has ended, and somebody removed the list": {command(m{"operation": operation("c-1", "10")}), in("Failed", "c-1", func(*object.Object) {}), nil, ""},

		"the end of what runs": {command(ended("c-1", "10")), in("Running", "c-1", taken("c-1")),
			update(operation("c-1", ""), m{"operationState": state("Terminating", "", operation("c-1", ""))}, m{object.CommandsKey: `["c-1"]`}), ""},
		"the end of what will be retried": {command(ended("c-1", "10")), func(o *object.Object) {
			in("Running", "c-1", taken("c-1"))(o)
			o.Child("status", "operationState")["finishedAt"] = now
		}, update(operation("c-1", ""), m{"operationState": func() m {
			s := state("Terminating", "", operation("c-1", ""))
			s["finishedAt"] = now
			return s
		}()}, m{object.CommandsKey: `["c-1"]`}), ""},
		"the end of what runs, written anew by RollingSync on the spoke": {command(ended("c-1", "10")), func(o *object.Object) {
			in("Running", "c-1", taken("c-1"))(o)
			o.Fields["operation"] = normal(t, operation("", ""))
		}, update(operation("", ""), m{"operationState": state("Terminating", "", operation("c-1", ""))}, m{object.CommandsKey: `["c-1"]`}), ""},
		"the end of what is terminating":        {command(ended("c-1", "10")), in("Terminating", "c-1", taken("c-1")), nil, ""},
		"the end of what has ended":             {command(ended("c-1", "10")), in("Succeeded", "c-1", taken("c-1")), nil, ""},
		"the end of what has not begun":         {command(ended("c-1", "10")), in("", "c-1", taken("c-1")), nil, "unavailable: the operation that is to end has not begun on the spoke"},
		"the end of what ended unseen":          {command(ended("c-1", "10")), in("Running", "", taken("c-1")), nil, ""},
		"the end of what this spoke never took": {command(ended("c-1", "10")), taken("c-0"), update(nil, nil, m{object.CommandsKey: `["c-0","!c-1"]`}), never},
		"the end of what waits here for another": {command(ended("c-1", "10")), func(o *object.Object) { taken("c-0")(o); running(o) },
			update(m{"sync": m{"revision": "spoke-born"}}, nil, m{object.CommandsKey: `["c-0","!c-1"]`}), never},
		"what ended before it was taken is never started": {command(m{"operation": operation("c-1", "10")}), taken("c-0", "!c-1"), nil, never},
		"its end, told again":                             {command(ended("c-1", "10")), taken("c-0", "!c-1"), nil, never},
		"what may have run before is not ended as if it had not": {command(ended("c-1", "8")), nil, nil,
			"invalid: the Application was created again on the spoke after the command was sent; whether it ran before is not known, so it is not run again"},
		"the end of what was born here": {command(m{"terminate": m{"startedAt": now}}), in("Running", "", taken("c-0")),
			update(operation("", ""), m{"operationState": state("Terminating", "", operation("", ""))}, m{object.CommandsKey: `["c-0"]`}), ""},
		"the end of what was born here before":                   {command(m{"terminate": m{"startedAt": "2025-12-31T23:59:59Z"}}), in("Running", "", taken("c-0")), nil, ""},
		"the end of what was born here is not that of a command": {command(m{"terminate": m{"startedAt": now}}), in("Running", "c-0", taken("c-0")), nil, ""},
		"the end of a command is not that of what was born here": {command(m{"terminate": m{"command": "c-0"}}), in("Running", "", taken("c-0")), nil, ""},
		"the end of nothing is not that of what has no start":    {command(m{"terminate": m{}}), func(o *object.Object) { running(o); o.Ensure("status", "operationState") }, nil, ""},

		"hydrate": {command(m{"hydrate": m{"type": "hard", "id": "h-1"}}), func(o *object.Object) { o.Ensure("spec", "sourceHydrator") },
			[]view{{Op: Update, Annotations: m{object.SourceUIDKey: "uid-1", object.PrincipalUIDKey: "hub-1", object.HydrateKey: "hard", object.HydratedKey: "h-1"},
				Spec: m{"destination": m{"name": "in-cluster"}, "sourceHydrator": m{}}, Created: 9, Revision: 9}}, ""},
		"hydrate what has no dry source": {command(m{"hydrate": m{"type": "hard", "id": "h-1"}}), nil, update(nil, nil, m{object.HydratedKey: "h-1"}), ""},
		"refresh and hydrate, one of them asked for before": {command(m{"refresh": m{"type": "hard", "id": "r-1"}, "hydrate": m{"type": "hard", "id": "h-1"}}),
			func(o *object.Object) { o.SetAnnotation(object.HydratedKey, "h-1") }, update(nil, nil, m{object.RefreshKey: "hard", object.RefreshedKey: "r-1", object.HydratedKey: "h-1"}), ""},
		"a refresh does not wait with the operation": {command(m{"operation": operation("c-1", "10"), "refresh": m{"type": "hard", "id": "r-1"}}), running,
			update(m{"sync": m{"revision": "spoke-born"}}, nil, m{object.RefreshKey: "hard", object.RefreshedKey: "r-1"}), "unavailable: another operation is in progress on the spoke"},
		"a refresh":                              {command(m{"refresh": m{"type": "hard", "id": "r-1"}}), nil, update(nil, nil, m{object.RefreshKey: "hard", object.RefreshedKey: "r-1"}), ""},
		"a refresh it was asked for before":      {command(m{"refresh": m{"type": "hard", "id": "r-1"}}), func(o *object.Object) { o.SetAnnotation(object.RefreshedKey, "r-1") }, nil, ""},
		"a refresh asked for again":              {command(m{"refresh": m{"type": "normal", "id": "r-2"}}), func(o *object.Object) { o.SetAnnotation(object.RefreshedKey, "r-1") }, update(nil, nil, m{object.RefreshKey: "normal", object.RefreshedKey: "r-2"}), ""},
		"both":                                   {command(m{"operation": operation("c-1", "10"), "refresh": m{"type": "hard", "id": "r-1"}}), nil, update(operation("c-1", "10"), nil, m{object.CommandsKey: `["c-1"]`, object.RefreshKey: "hard", object.RefreshedKey: "r-1"}), ""},
		"for an earlier object of that name":     {objecttest.Apply(stream.Commands, "uid-0", 12, m{"operation": operation("c-1", "10")}), nil, nil, "unavailable: the Application that the command is for is not on the spoke"},
		"not JSON":                               {raw2(stream.Commands, `x`), nil, nil, "invalid: the command is not a JSON object"},
		"nothing in it":                          {raw2(stream.Commands, `{"operation":7,"refresh":[]}`), nil, nil, ""},
		"an id of another type is none":          {raw2(stream.Commands, `{"operation":{"info":[null,{"name":"argomesh.io/command","value":7}]}}`), nil, nil, "invalid: the operation carries no command id"},
		"a copy of another hub is not commanded": {command(m{"operation": operation("c-1", "10")}), func(o *object.Object) { o.SetAnnotation(object.PrincipalUIDKey, "hub-2") }, nil, "unavailable: the Application that the command is for is not on the spoke"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkPlan(t, spoke, test.event, copied(spoke, made, test.change), "", test.want, test.refusal)
		})
	}
	t.Run("there is no Application", func(t *testing.T) {
		checkPlan(t, spoke, command(m{"operation": operation("c-1", "10")}), nil, "", nil,
			"unavailable: the Application that the command is for is not on the spoke")
	})
	t.Run("an original", func(t *testing.T) {
		original := func(t *testing.T) *object.Object { o := objecttest.Object(t, appKey(autonomous), nil, nil); return &o }
		checkPlan(t, autonomous, command(m{"operation": operation("c-1", "uid-1")}), original, "",
			[]view{{Op: Update, Annotations: m{object.CommandsKey: `["c-1"]`}, Operation: operation("c-1", "uid-1")}}, "")
	})
	t.Run("the command was sent to an earlier original of that name", func(t *testing.T) {
		original := func(t *testing.T) *object.Object { o := objecttest.Object(t, appKey(autonomous), nil, nil); return &o }
		checkPlan(t, autonomous, command(m{"operation": operation("c-1", "uid-0")}), original, "", nil,
			"invalid: the Application was created again on the spoke after the command was sent; whether it ran before is not known, so it is not run again")
	})
	t.Run("a copy taken over from another hub runs the commands of this one", func(t *testing.T) {
		theirs := copied(spoke, objecttest.Apply(stream.Applications, "theirs", 5000, m{"spec": m{}}), func(o *object.Object) {
			o.SetAnnotation(object.PrincipalUIDKey, "hub-2")
		})(t)
		heir := spoke
		heir.FormerHubs, heir.Inherits = []string{"hub-2"}, true
		writes, _ := heir.Plan(made, theirs.Key, theirs, operations.Requests{})
		o := stored(t, theirs.Key, writes, nil)
		writes, refusal := heir.Plan(command(m{"operation": operation("c-1", "10")}), o.Key, &o, operations.Requests{})
		if diff := cmp.Diff([]Op{Update}, ops(writes), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("Plan(), refused %q (-want +got)\n%s", refusalText(refusal), diff)
		}
	})
}

func ops(writes []Write) []Op {
	var out []Op
	for _, w := range writes {
		out = append(out, w.Op)
	}
	return out
}

// TestTakenCommandIsHeld checks when a spoke no longer holds a command that it
// took: the hub sends it again.
func TestTakenCommandIsHeld(t *testing.T) {
	r := ruleSet(t, stream.Spoke, stream.Autonomous)
	sync := objecttest.Apply(stream.Commands, "uid-1", 12, m{"operation": operation("c-1", "10")})
	end := objecttest.Apply(stream.Commands, "uid-1", 12, m{"operation": operation("c-1", "10"), "terminate": m{"command": "c-1"}})
	born := objecttest.Apply(stream.Commands, "uid-1", 12, m{"terminate": m{"startedAt": now}})
	odd := raw2(stream.Commands, "{")
	asks := objecttest.Apply(stream.Commands, "uid-1", 12, m{"refresh": m{"type": "hard", "id": "r-1"}})
	tests := map[string]struct {
		event stream.Event
		phase string
		id    string
		held  bool
		shows m // annotations
	}{
		"a sync that runs":                         {sync, "Running", "c-1", true, nil},
		"a sync that has ended":                    {sync, "Failed", "c-1", true, nil},
		"a sync that ended unseen":                 {sync, "Running", "", true, m{object.CommandsKey: `["c-0","c-1"]`}},
		"a sync that never started":                {sync, "", "", true, m{object.CommandsKey: `["!c-1"]`}},
		"a sync of which nothing is to be seen":    {sync, "Failed", "c-0", false, m{object.CommandsKey: `["c-0"]`}},
		"an end that is under way":                 {end, "Terminating", "c-1", true, nil},
		"an end that is reached":                   {end, "Failed", "c-1", true, nil},
		"an end of what was followed by another":   {end, "Running", "", true, m{object.CommandsKey: `["c-1"]`}},
		"an end that the controller has undone":    {end, "Running", "c-1", false, nil},
		"an end of what was born here":             {born, "Terminating", "", true, nil},
		"one that the controller has undone":       {born, "Running", "", false, nil},
		"a refresh":                                {asks, "", "", true, m{object.RefreshedKey: "r-1"}},
		"a refresh of which nothing is to be seen": {asks, "", "", false, m{object.RefreshedKey: "r-0"}},
		"what does not decode":                     {odd, "Running", "", true, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := objecttest.Object(t, appKey(r), m{"annotations": test.shows}, m{
				"operation": operation(test.id, ""), "status": m{"operationState": state(test.phase, "", operation(test.id, ""))},
			})
			want := stream.Version{}
			if test.held {
				want = test.event.Version
			}
			if got := operations.TakenOf(test.event, o.UID()).Stored(o); got != want {
				t.Errorf("held() = %v, want %v", got, want)
			}
		})
	}
}

func TestRequestsOfAnObject(t *testing.T) {
	r := ruleSet(t, stream.Hub, stream.Managed)
	known := operations.Requests{operations.Refresh: {Type: "normal", ID: "r-1"}, operations.Hydrate: {Type: "hard", ID: "h-1"}}
	tests := map[string]struct {
		annotations m
		want        operations.Requests
	}{
		"none is left":               {nil, operations.Requests{}},
		"one is left":                {m{object.HydrateKey: "hard"}, operations.Requests{operations.Hydrate: {Type: "hard", ID: "h-1"}}},
		"both are known":             {m{object.RefreshKey: "normal", object.HydrateKey: "hard"}, known},
		"one is harder now":          {m{object.RefreshKey: "hard", object.HydrateKey: "hard"}, operations.Requests{operations.Refresh: {Type: "hard", ID: "new"}, operations.Hydrate: {Type: "hard", ID: "h-1"}}},
		"an empty one is no request": {m{object.RefreshKey: ""}, operations.Requests{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := objecttest.Object(t, appKey(r), m{"annotations": test.annotations}, nil)
			if diff := cmp.Diff(test.want, known.Of(o, func() string { return "new" })); diff != "" {
				t.Errorf("of() (-want +got)\n%s", diff)
			}
		})
	}
}

package ownership

import (
	"testing"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/statuses"
	"github.com/argomesh/argomesh/stream"
)

// TestWhatMayWait takes statuses of an Application, one after the other.
func TestWhatMayWait(t *testing.T) {
	r := ruleSet(t, stream.Spoke, stream.Managed)
	const before, finished, after = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z", "2026-01-01T00:10:00Z"
	form := func(meta m, status m) statuses.StatusDigest {
		annotations := m{object.SourceUIDKey: "hub-app", object.PrincipalUIDKey: "hub-1", object.RecordKey: "{}"}
		for key, value := range meta {
			annotations[key] = value
		}
		o := objecttest.Object(t, appKey(r), m{"annotations": annotations}, m{"status": status})
		before := string(object.Encode(o.Fields))
		content, ok := r.Content(stream.Statuses, o, operations.Requests{})
		if !ok {
			t.Fatal("there is no status")
		}
		p := r.StatusDigest(stream.Statuses, o, content)
		if string(object.Encode(o.Fields)) != before {
			t.Error("pulse() changed the object that it was given")
		}
		return p
	}
	healthy := func(reconciledAt string) m {
		return m{"health": m{"status": "Healthy"}, "reconciledAt": reconciledAt}
	}
	operated := func(reconciledAt, finishedAt string) m {
		state := m{"phase": "Succeeded", "startedAt": before, "finishedAt": finishedAt}
		if finishedAt == "" {
			state["phase"] = "Running"
			delete(state, "finishedAt")
		}
		return m{"reconciledAt": reconciledAt, "operationState": state}
	}
	tests := map[string]struct {
		last, next statuses.StatusDigest
		want       bool
	}{
		"a reconciliation that changed nothing":          {form(nil, healthy(before)), form(nil, healthy(after)), true},
		"an observation, as Argo CD 2 notes it":          {form(nil, m{"observedAt": before, "reconciledAt": before}), form(nil, m{"observedAt": after, "reconciledAt": before}), true},
		"a clock that went back":                         {form(nil, healthy(after)), form(nil, healthy(before)), true},
		"the first reconciliation":                       {form(nil, m{}), form(nil, m{"reconciledAt": before}), false},
		"another health":                                 {form(nil, healthy(before)), form(nil, m{"health": m{"status": "Degraded"}, "reconciledAt": after}), false},
		"another field of the same meaning":              {form(nil, m{"sync": m{"reconciledAt": before}}), form(nil, m{"sync": m{"reconciledAt": after}}), false},
		"the first reconciliation after an operation":    {form(nil, operated(before, finished)), form(nil, operated(after, finished)), false},
		"one in the very second of the end":              {form(nil, operated(before, finished)), form(nil, operated(finished, finished)), false},
		"one that began before the end":                  {form(nil, operated(before, finished)), form(nil, operated("2026-01-01T00:04:59Z", finished)), true},
		"the second one after an operation":              {form(nil, operated(finished, finished)), form(nil, operated(after, finished)), true},
		"one during an operation":                        {form(nil, operated(before, "")), form(nil, operated(after, "")), true},
		"the end of an operation":                        {form(nil, operated(before, "")), form(nil, operated(before, finished)), false},
		"a refresh that was consumed":                    {form(m{object.RefreshedKey: "r-1", object.RefreshKey: "normal"}, healthy(before)), form(m{object.RefreshedKey: "r-1"}, healthy(after)), false},
		"a later refresh that was consumed":              {form(m{object.RefreshedKey: "r-1"}, healthy(before)), form(m{object.RefreshedKey: "r-2"}, healthy(after)), false},
		"the status of another object of that name":      {form(nil, healthy(before)), form(m{object.SourceUIDKey: "hub-app-2"}, healthy(after)), false},
		"a command of which nothing is left to be seen":  {form(nil, healthy(before)), form(m{object.CommandsKey: `["c-1"]`}, healthy(after)), false},
		"a reconciliation of a status that says nothing": {form(nil, m{"reconciledAt": before}), form(nil, m{"reconciledAt": after}), true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := statuses.MayWait(test.last, test.next); got != test.want {
				t.Errorf("mayWait() = %t", got)
			}
		})
	}
}

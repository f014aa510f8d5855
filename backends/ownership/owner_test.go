package ownership

import (
	"testing"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// TestOtherCopies: what another agent or another hub has written is neither written nor
// removed, and who has is named; what earlier releases wrote without the agent's name,
// and what an earlier hub of the agent wrote once this one inherits it, is ours.
func TestOtherCopies(t *testing.T) {
	spoke, hub := ruleSet(t, stream.Spoke, stream.Managed), ruleSet(t, stream.Hub, stream.Autonomous)
	former, heir := spoke, spoke
	former.FormerHubs = []string{"hub-2"}
	heir.FormerHubs, heir.Inherits = former.FormerHubs, true
	neighbour, err := identity.ParseAgentName("edge-2")
	if err != nil {
		t.Fatal(err)
	}
	secret := m{"labels": m{object.SecretTypeKey: object.RepositoryType}, "data": m{"url": "eA=="}}
	type kind struct {
		c    stream.Collection
		data m
	}
	kinds := map[string]kind{
		"Application": {stream.Applications, m{"spec": m{"project": "p"}}},
		"AppProject":  {stream.AppProjects, m{"spec": m{}}},
		"Secret":      {stream.Repositories, secret},
	}
	by := func(r Rules, agent identity.AgentName, hubUID string) Rules {
		r.Agent, r.HubUID = agent, hubUID
		return r
	}
	tests := map[string]struct {
		rules   Rules
		writer  Rules // who made the copy
		unnamed bool  // by a release that did not name agents on spokes
		refused string
		held    bool // it is told to the source, which may ask for its end
		kept    bool // and then it stays
	}{
		"our own":                      {rules: spoke, writer: spoke, held: true},
		"without the name of an agent": {rules: spoke, writer: by(spoke, neighbour, "hub-1"), unnamed: true, held: true},
		"another agent's": {rules: spoke, writer: by(spoke, neighbour, "hub-1"), kept: true,
			refused: " of that name on the spoke is a copy of agent edge-2"},
		"another hub's": {rules: spoke, writer: by(spoke, spoke.Agent, "hub-2"), kept: true,
			refused: " of that name on the spoke is a copy of hub hub-2, which alone writes and removes it"},
		"another hub's, without the name of an agent": {rules: spoke, writer: by(spoke, spoke.Agent, "hub-2"), unnamed: true, kept: true,
			refused: " of that name on the spoke is a copy of hub hub-2, which alone writes and removes it"},
		"an earlier hub's, before somebody accepts": {rules: former, writer: by(spoke, spoke.Agent, "hub-2"), held: true, kept: true,
			refused: " of that name on the spoke is a copy of hub hub-2, which the agent had before; " +
				"it becomes this hub's once the deletions held for the broken history are accepted"},
		"an earlier hub's, of another agent": {rules: heir, writer: by(spoke, neighbour, "hub-2"), kept: true,
			refused: " of that name on the spoke is a copy of hub hub-2, which alone writes and removes it"},
		"an earlier hub's, inherited": {rules: heir, writer: by(spoke, spoke.Agent, "hub-2"), held: true},
		"on the hub, another hub's that is that of a spoke": {rules: hub, writer: by(spoke, hub.Agent, "hub-2"), kept: true,
			refused: " of that name on the hub is a copy of hub hub-2, which alone writes and removes it"},
		"on the hub, another agent's": {rules: hub, writer: by(hub, neighbour, ""), kept: true,
			refused: " of that name on the hub is a copy of agent edge-2"},
	}
	for name, test := range tests {
		for kindName, k := range kinds {
			if test.rules.Side == stream.Hub && k.c == stream.Repositories {
				continue // none of an autonomous agent
			}
			t.Run(name+" "+kindName, func(t *testing.T) {
				current := copyOf(t, test.writer, objecttest.Apply(k.c, "theirs", 5, k.data), nil)
				e := objecttest.Apply(k.c, "ours", 9, k.data)
				key, _ := test.rules.Local(e.Key)
				current.Key = key
				current.Ensure("metadata")["name"], current.Ensure("metadata")["namespace"] = key.Name, key.Namespace
				if test.unnamed {
					rec, _ := record.Of(current)
					rec.Agent = ""
					current.SetAnnotation(object.RecordKey, string(object.Encode(rec)))
				}
				writes, refusal := test.rules.Plan(e, key, &current, operations.Requests{})
				want := test.refused
				if want != "" {
					want = "not-owned: the " + kindName + want
				}
				if refusalText(refusal) != want || (len(writes) == 0) != (want != "") {
					t.Errorf("Plan() = %d writes, %q, want %q", len(writes), refusalText(refusal), want)
				}
				if got := test.rules.Stored(k.c, current, nil); got.Absent() == test.held {
					t.Errorf("Held() = %v, want something: %t", got, test.held)
				}
				if writes, _ := test.rules.Plan(objecttest.Removal(k.c), key, &current, operations.Requests{}); (len(writes) == 0) != test.kept {
					t.Errorf("asked for its end, Plan() = %d writes, want it to stay: %t", len(writes), test.kept)
				}
				if k.c != stream.Applications || test.rules.Side == stream.Hub {
					return
				}
				leaving := objecttest.Apply(k.c, "ours", 15, m{"leaving": []any{object.CascadeFinalizer}, "spec": m{}})
				if writes, _ := test.rules.Plan(leaving, key, &current, operations.Requests{}); (len(writes) == 0) != test.kept {
					t.Errorf("asked for its end with workloads, Plan() = %d writes, want it to stay: %t", len(writes), test.kept)
				}
			})
		}
	}
}

// TestOrphanOfAnotherHub: what a spoke's agent wrote where there is a hub as well is no mirror
// of that hub, though it names an agent of the same name.
func TestOrphanOfAnotherHub(t *testing.T) {
	o := copyOf(t, ruleSet(t, stream.Spoke, stream.Managed), objecttest.Apply(stream.Applications, "theirs", 5, m{"spec": m{}}), nil)
	o.Ensure("metadata")["deletionTimestamp"] = now
	o.SetFinalizers([]string{object.CascadeFinalizer})
	if writes, _ := ruleSet(t, stream.Hub, stream.Managed).Orphan(o); len(writes) != 0 {
		t.Errorf("orphan() = %d writes", len(writes))
	}
}

package mirror

import (
	"testing"

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
	secret := m{"labels": m{secretTypeKey: typeRepository}, "data": m{"url": "eA=="}}
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
				"it becomes this hub's once somebody accepts what is held back for the break of the history"},
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
				current := copyOf(t, test.writer, makeEvent(k.c, "theirs", 5, k.data), nil)
				e := makeEvent(k.c, "ours", 9, k.data)
				key, _ := test.rules.Local(e.Key)
				current.key = key
				current.ensure("metadata")["name"], current.ensure("metadata")["namespace"] = key.Name, key.Namespace
				if test.unnamed {
					rec, _ := recordOf(current)
					rec.Agent = ""
					current.setAnnotation(recordKey, string(encode(rec)))
				}
				writes, refusal := test.rules.Plan(e, key, &current, Requests{})
				want := test.refused
				if want != "" {
					want = "not-owned: the " + kindName + want
				}
				if refusalText(refusal) != want || (len(writes) == 0) != (want != "") {
					t.Errorf("Plan() = %d writes, %q, want %q", len(writes), refusalText(refusal), want)
				}
				if got := test.rules.Held(k.c, current, nil); got.Absent() == test.held {
					t.Errorf("Held() = %v, want something: %t", got, test.held)
				}
				if writes, _ := test.rules.Plan(removal(k.c), key, &current, Requests{}); (len(writes) == 0) != test.kept {
					t.Errorf("asked for its end, Plan() = %d writes, want it to stay: %t", len(writes), test.kept)
				}
				if k.c != stream.Applications || test.rules.Side == stream.Hub {
					return
				}
				leaving := makeEvent(k.c, "ours", 15, m{"leaving": []any{cascadeFinalizer}, "spec": m{}})
				if writes, _ := test.rules.Plan(leaving, key, &current, Requests{}); (len(writes) == 0) != test.kept {
					t.Errorf("asked for its end with workloads, Plan() = %d writes, want it to stay: %t", len(writes), test.kept)
				}
			})
		}
	}
}

// TestStraysOfAnotherHub: what a spoke's agent wrote where there is a hub as well is
// no mirror of that hub, though it names an agent of the same name.
func TestStraysOfAnotherHub(t *testing.T) {
	r := ruleSet(t, stream.Spoke, stream.Managed)
	o := copyOf(t, r, makeEvent(stream.Applications, "theirs", 5, m{"spec": m{}}), nil)
	strays := Strays{
		Owner:      func(string) identity.AgentName { return identity.AgentName{} },
		Registered: func(identity.AgentName) bool { return true },
	}
	if writes, _ := strays.plan(o); len(writes) != 0 {
		t.Errorf("plan() = %d writes", len(writes))
	}
	o.ensure("metadata")["deletionTimestamp"] = now
	o.setFinalizers([]string{cascadeFinalizer})
	if writes, _ := ruleSet(t, stream.Hub, stream.Managed).orphan(o); len(writes) != 0 {
		t.Errorf("orphan() = %d writes", len(writes))
	}
}

package fleet_test

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
)

func TestCheckHistory(t *testing.T) {
	const hub, here = "hub-1", "cluster-1"
	kept := &v1alpha1.AgentHistory{ID: "h", Tokens: []string{"t5", "t4", "t3"}, ClusterUID: here}
	tests := map[string]struct {
		kept     *v1alpha1.AgentHistory
		shown    fleet.Shown
		revision uint64
		want     string // a part of what is said; empty when the history continues
	}{
		"a first contact": {
			shown: fleet.Shown{ClusterUID: here}, revision: 100,
		},
		"a spoke that was cut off before the hub began a history": {
			shown: fleet.Shown{Hub: hub, Revision: 90, ClusterUID: here}, revision: 100,
		},
		"the newest token": {
			kept: kept, shown: fleet.Shown{hub, "t5", 90, here}, revision: 100,
		},
		"the token before, since the newest did not arrive": {
			kept: kept, shown: fleet.Shown{hub, "t4", 90, here}, revision: 100,
		},
		"the oldest token that is kept": {
			kept: kept, shown: fleet.Shown{hub, "t3", 90, here}, revision: 100,
		},
		"a hub on which nothing happened": {
			kept: kept, shown: fleet.Shown{hub, "t5", 100, here}, revision: 100,
		},
		"a spoke that knows a token and no revision": {
			kept: kept, shown: fleet.Shown{Hub: hub, Token: "t5", ClusterUID: here}, revision: 100,
		},

		"a hub restored to a lower revision": {
			kept: kept, shown: fleet.Shown{hub, "t5", 101, here}, revision: 100,
			want: "the hub is at resourceVersion 100, but the spoke has seen 101 of it",
		},
		"a hub restored to before its first history": {
			shown: fleet.Shown{hub, "t1", 101, here}, revision: 100,
			want: "restored from a backup",
		},
		"a hub restored to before it handed out a token": {
			shown: fleet.Shown{Hub: hub, Revision: 101, ClusterUID: here}, revision: 100,
			want: "restored from a backup",
		},
		"a hub restored with a bumped revision": {
			kept: kept, shown: fleet.Shown{hub, "t6", 101, here}, revision: 1_000_000,
			want: "not in the hub's history",
		},
		"a spoke restored to before the tokens kept": {
			kept: kept, shown: fleet.Shown{hub, "t2", 50, here}, revision: 100,
			want: "not in the hub's history",
		},
		"a history accepted anew, of which the spoke has not heard": {
			kept:  &v1alpha1.AgentHistory{ID: "h2", Tokens: []string{"u1"}, ClusterUID: here},
			shown: fleet.Shown{hub, "t5", 90, here}, revision: 100,
			want: "not in the hub's history",
		},
		"a hub with a new identity": {
			kept: kept, shown: fleet.Shown{"hub-0", "t5", 90, here}, revision: 100,
			want: "the history of hub hub-0, but this is hub hub-1",
		},
		"a spoke of another hub": {
			shown: fleet.Shown{"hub-0", "x", 90, here}, revision: 100,
			want: "the history of hub hub-0, but this is hub hub-1",
		},
		"a spoke that saw another hub, which gave it no token": {
			shown: fleet.Shown{Hub: "hub-0", ClusterUID: here}, revision: 100,
			want: "the history of hub hub-0",
		},
		"an Agent created again": {
			shown: fleet.Shown{hub, "t5", 90, here}, revision: 100,
			want: "deleted and created again",
		},
		"a spoke that was cut off before it stored its first token": {
			kept:  &v1alpha1.AgentHistory{ID: "h", Tokens: []string{"t1"}, ClusterUID: here},
			shown: fleet.Shown{ClusterUID: here}, revision: 100,
		},
		"one that had seen the hub by then": {
			kept:  &v1alpha1.AgentHistory{ID: "h", Tokens: []string{"t1"}, ClusterUID: here},
			shown: fleet.Shown{Hub: hub, Revision: 90, ClusterUID: here}, revision: 100,
		},
		"one behind which the hub was restored": {
			kept:  &v1alpha1.AgentHistory{ID: "h", Tokens: []string{"t1"}, ClusterUID: here},
			shown: fleet.Shown{Hub: hub, Revision: 90, ClusterUID: here}, revision: 80,
			want: "restored from a backup",
		},
		"a spoke without memory": {
			kept: kept, shown: fleet.Shown{ClusterUID: here}, revision: 100,
			want: "remembers none",
		},
		"a spoke that kept the hub, but no token": {
			kept: kept, shown: fleet.Shown{Hub: hub, Revision: 90, ClusterUID: here}, revision: 100,
			want: "remembers none",
		},
		"a rebuilt spoke": {
			kept: kept, shown: fleet.Shown{ClusterUID: "cluster-2"}, revision: 100,
			want: "the spoke is Kubernetes cluster cluster-2, but the agent was on cluster-1",
		},
		"a spoke whose backup was restored into another cluster": {
			kept: kept, shown: fleet.Shown{hub, "t5", 90, "cluster-2"}, revision: 100,
			want: "the spoke is Kubernetes cluster cluster-2",
		},
		"a token of no hub": {
			kept: kept, shown: fleet.Shown{Token: "t5", ClusterUID: here}, revision: 100,
			want: "does not say of which hub",
		},
		"a revision of no hub": {
			shown: fleet.Shown{Revision: 7, ClusterUID: here}, revision: 100,
			want: "does not say of which hub",
		},
		"an empty token is not among those kept": {
			kept:  &v1alpha1.AgentHistory{ID: "h", Tokens: []string{"t1", ""}, ClusterUID: here},
			shown: fleet.Shown{Hub: hub, Revision: 90, ClusterUID: here}, revision: 100,
			want: "remembers none",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := fleet.CheckHistory(hub, tt.kept, tt.shown, tt.revision)
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("CheckHistory() = %q, want something with %q", got, tt.want)
			}
			if tt.want != "" && (got == "" || strings.ContainsAny(got, "\n")) {
				t.Errorf("CheckHistory() = %q, want one sentence", got)
			}
			for _, secret := range []string{"t1", "t2", "t3", "t4", "t5", "t6", "u1"} {
				if strings.Contains(got, secret) {
					t.Errorf("CheckHistory() = %q names a token", got)
				}
			}
		})
	}
}

// A history is checked again and again on a connection: the hub can be restored
// while the agent is connected.
func TestContinuity(t *testing.T) {
	kept := func(id string, tokens ...string) *v1alpha1.AgentHistory {
		return &v1alpha1.AgentHistory{ID: id, Tokens: tokens, ClusterUID: "cluster"}
	}
	at := func(revision uint64, k *v1alpha1.AgentHistory) fleet.Reading {
		return fleet.Reading{Hub: "hub", Stored: k, Revision: revision}
	}
	seen := func(revision uint64, restores int, k *v1alpha1.AgentHistory) fleet.Reading {
		r := at(revision, k)
		r.Restores = restores
		return r
	}
	on := func(connection, shown string) fleet.Connection {
		c := fleet.Connection{ID: connection, Shown: fleet.Shown{ClusterUID: "cluster"}}
		if shown != "" {
			c.Shown.Hub, c.Shown.Token, c.Shown.Revision = "hub", shown, 100
		}
		return c
	}
	with := func(c fleet.Connection, change func(*fleet.Connection)) fleet.Connection {
		change(&c)
		return c
	}
	type step struct {
		now    fleet.Reading
		c      fleet.Connection
		broken bool
	}
	for name, steps := range map[string][]step{
		"tokens come and go":                              {{at(200, kept("h", "t2", "t1")), on("c", "t2"), false}, {at(300, kept("h", "t3", "t2", "t1")), on("c", "t2"), false}, {at(400, kept("h", "t5", "t4", "t3")), on("c", "t2"), false}},
		"the first one begins":                            {{at(200, nil), on("c", ""), false}, {at(300, kept("h", "t1")), on("c", ""), false}, {at(400, kept("h", "t1")), on("c", ""), false}},
		"the revision goes back":                          {{at(200, kept("h", "t1")), on("c", "t1"), false}, {at(199, kept("h", "t1")), on("c", "t1"), true}},
		"it is behind what was sent":                      {{at(200, kept("h", "t1")), on("c", "t1"), false}, {at(210, kept("h", "t1")), with(on("c", "t1"), func(c *fleet.Connection) { c.Sent = 250 }), true}},
		"an object is behind what the spoke has":          {{at(200, kept("h", "t1")), on("c", "t1"), false}, {at(900, kept("h", "t1")), with(on("c", "t1"), func(c *fleet.Connection) { c.Behind = "application argocd/a" }), true}, {at(901, kept("h", "t1")), on("c", "t1"), true}},
		"the token in the hello is forgotten":             {{at(200, kept("h", "t2", "t1")), on("c", "t2"), false}, {at(900, kept("h", "t1")), on("c", "t2"), true}},
		"a token that was read since is forgotten":        {{at(200, kept("h", "t1")), on("c", "t1"), false}, {at(300, kept("h", "t2", "t1")), on("c", "t1"), false}, {at(900, kept("h", "t1")), on("c", "t1"), true}},
		"one that the hello does not know is forgotten":   {{at(200, kept("h", "t2", "t1")), on("c", "t1"), false}, {at(900, kept("h", "t1")), on("c", "t1"), true}},
		"all is forgotten":                                {{at(200, kept("h", "t1")), on("c", "t1"), false}, {at(900, nil), on("c", "t1"), true}},
		"the first one is forgotten before it was stored": {{at(200, nil), on("c", ""), false}, {at(300, kept("h", "t1")), on("c", ""), false}, {at(900, nil), on("c", ""), true}},
		"another one is there":                            {{at(200, kept("h", "t1")), on("c", "t1"), false}, {at(300, kept("other", "t1")), on("c", "t1"), true}},
		"a break stays a break":                           {{at(200, kept("h", "t1")), on("c", "t1"), false}, {at(199, kept("h", "t1")), on("c", "t1"), true}, {at(900, kept("h", "t1")), on("c", "t1"), true}},
		"a break ends when a new one can begin": {
			{at(200, kept("h", "t1")), on("c", "t2"), true},
			{at(210, kept("h", "t1")), with(on("c", "t2"), func(c *fleet.Connection) { c.Begins = 1 }), false},
			{at(220, kept("new", "n1")), with(on("c", "t2"), func(c *fleet.Connection) { c.Begins = 1 }), false},
			{at(230, kept("new", "n1")), with(on("c", "t2"), func(c *fleet.Connection) { c.Begins = 1 }), false},
			{at(240, kept("h", "t1")), with(on("c", "t2"), func(c *fleet.Connection) { c.Begins = 1 }), true},
		},
		"another restore before the new one began": {
			{at(200, kept("h", "t1")), on("c", "t2"), true},
			{at(150, kept("h", "t1")), with(on("c", "t2"), func(c *fleet.Connection) { c.Begins = 1 }), true},
		},
		"the new one is forgotten": {
			{at(200, kept("h", "t1")), on("c", "t2"), true},
			{at(220, kept("new", "n1")), with(on("c", "t2"), func(c *fleet.Connection) { c.Begins = 1 }), false},
			{at(240, kept("h", "t1")), with(on("c", "t2"), func(c *fleet.Connection) { c.Begins = 1 }), true},
		},
		"the new one is taken by the next connection": {
			{at(200, kept("h", "t1")), on("c", "t2"), true},
			{at(220, kept("new", "n1")), on("c-2", "n1"), false},
		},
		"the hub was seen to go back": {
			{at(200, kept("h", "t1")), on("c", "t1"), false},
			{seen(900, 1, kept("h", "t1")), on("c", "t1"), true},
			{seen(901, 1, kept("h", "t1")), on("c", "t1"), true},
		},
		"the hub was seen to go back while the agent was away": {
			{at(200, kept("h", "t1")), on("c", "t1"), false},
			{seen(900, 1, kept("h", "t1")), on("c-2", "t1"), true},
			{seen(901, 1, kept("h", "t1")), on("c-3", "t1"), true},
			{seen(902, 1, kept("h", "t1")), with(on("c-3", "t1"), func(c *fleet.Connection) { c.Begins = 1 }), false},
			{seen(903, 1, kept("new", "n1")), with(on("c-3", "t1"), func(c *fleet.Connection) { c.Begins = 1 }), false},
			{seen(904, 1, kept("new", "n1")), on("c-4", "n1"), false},
			{seen(905, 2, kept("new", "n1")), on("c-4", "n1"), true},
		},
		"the hub was seen to go back before a first contact": {
			{seen(900, 1, nil), on("c", ""), false},
			{seen(901, 1, kept("h", "t1")), on("c", ""), false},
			{seen(902, 2, kept("h", "t1")), on("c", ""), true},
		},
		"the hub was seen to go back once more before a new one began": {
			{seen(900, 1, kept("h", "t1")), on("c", "t1"), true},
			{seen(902, 2, kept("h", "t1")), with(on("c", "t1"), func(c *fleet.Connection) { c.Begins = 1 }), true},
		},
		"the next connection is checked by its own hello": {{at(200, kept("h", "t1")), on("c", "t1"), false}, {at(300, kept("h", "t1")), on("c-2", "t9"), true}},
	} {
		t.Run(name, func(t *testing.T) {
			var c fleet.HistoryVerifier
			for i, s := range steps {
				if got := c.Verify(s.now, s.c); (got != "") != s.broken {
					t.Fatalf("step %d: Verify() = %q, want a break: %t", i, got, s.broken)
				}
			}
		})
	}
}

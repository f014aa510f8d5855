package stale

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/ownership/ownershiptest"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// TestStalePlan is who has a turn, and when.
func TestStalePlan(t *testing.T) {
	noon := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	agent := func(name string) identity.AgentName {
		n, err := identity.ParseAgentName(name)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	since := func(d time.Duration) Absence {
		return Absence{Since: noon.Add(-d), Message: "away for " + d.String()}
	}
	key := func(name identity.AgentName, i int) stream.ResourceKey {
		return stream.ResourceKey{Kind: stream.Application, Namespace: name.String(), Name: fmt.Sprint("app-", i)}
	}
	const each = 2*batch + 1
	listed := map[identity.AgentName]int{}
	list := func(name identity.AgentName) []stream.ResourceKey {
		listed[name]++
		var keys []stream.ResourceKey
		for i := range each {
			keys = append(keys, key(name, i))
		}
		return keys
	}
	p := newPlan()
	turns := func(away bool, now time.Time) (names []string) {
		for {
			name, keys := p.next(away, now, list)
			if len(keys) == 0 {
				return names
			}
			if len(keys) > batch {
				t.Errorf("%d Applications at once", len(keys))
			}
			names = append(names, name.String())
		}
	}
	wants := func(when string, away bool, now time.Time, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, turns(away, now)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", when, diff)
		}
	}

	wants("nothing is known", true, noon)
	old, young, newest := agent("old"), agent("young"), agent("newest")
	p.see(map[identity.AgentName]Absence{young: since(time.Hour), newest: since(time.Minute), old: since(24 * time.Hour)})
	wants("nobody is back", false, noon)
	wants("the newest waits", true, noon, "old", "old", "old", "young", "young", "young", "newest", "newest", "newest")
	p.see(map[identity.AgentName]Absence{young: since(time.Hour), newest: since(time.Minute), old: since(24 * time.Hour)})
	wants("the same is away", true, noon)

	// What could not be written delays no other agent, and comes again.
	p.add(old, key(old, 1))
	p.add(young, key(young, 1))
	name, keys := p.next(true, noon, list)
	if name != old || !slices.Equal(keys, []stream.ResourceKey{key(old, 1)}) {
		t.Fatalf("take() = %s, %v", name, keys)
	}
	p.postpone(old, keys, noon.Add(time.Second))
	wants("one rests", true, noon, "young")
	wants("it has rested", true, noon.Add(time.Second), "old")

	// Who is back is looked at as a whole, and what still waited to be said is not.
	p.add(old, key(old, 1))
	p.postpone(old, []stream.ResourceKey{key(old, 2)}, noon.Add(time.Hour))
	p.see(map[identity.AgentName]Absence{newest: {Since: noon.Add(-time.Minute), Message: "suspended"}})
	p.add(identity.AgentName{}, key(agent("gone"), 1))
	wants("something else is to be said", true, noon, "newest", "newest", "newest")
	back := turns(false, noon)
	slices.Sort(back)
	if diff := cmp.Diff([]string{"", "old", "old", "old", "young", "young", "young"}, back); diff != "" {
		t.Errorf("who is back (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"old": 2, "young": 2, "newest": 2}, func() map[string]int {
		out := map[string]int{}
		for name, n := range listed {
			out[name.String()] = n
		}
		return out
	}()); diff != "" {
		t.Errorf("how often all of an agent's were listed (-want +got)\n%s", diff)
	}
	if len(p.agents) != 0 {
		t.Errorf("%d agents are kept of which nothing is to be looked at", len(p.agents))
	}
}

// TestStalePlanOfALargeFleet is an outage of 5,000 spokes with 1,000 Applications each: who
// is away for the longest is told to the end before the next, and of those that wait nothing
// is kept but that they do.
func TestStalePlanOfALargeFleet(t *testing.T) {
	const agents, each, batches = 5000, 1000, 600 // ten minutes
	noon := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	p, away := newPlan(), map[identity.AgentName]Absence{}
	for i := range agents {
		name, err := identity.ParseAgentName(fmt.Sprintf("edge-%04d", i))
		if err != nil {
			t.Fatal(err)
		}
		away[name] = Absence{Since: noon.Add(time.Duration(i) * time.Millisecond), Message: "away"}
	}
	p.see(away)
	turns, kept := map[string]int{}, 0
	for range batches {
		name, keys := p.next(true, noon, func(name identity.AgentName) []stream.ResourceKey {
			keys := make([]stream.ResourceKey, each)
			for i := range keys {
				keys[i] = stream.ResourceKey{Kind: stream.Application, Namespace: name.String(), Name: fmt.Sprint(i)}
			}
			return keys
		})
		turns[name.String()] += len(keys)
		waiting := 0
		for _, s := range p.agents {
			waiting += len(s.keys)
		}
		kept = max(kept, waiting)
	}
	want := map[string]int{}
	for i := range batches * batch / each {
		want[fmt.Sprintf("edge-%04d", i)] = each
	}
	if diff := cmp.Diff(want, turns); diff != "" {
		t.Errorf("who had a turn (-want +got)\n%s", diff)
	}
	if kept > each {
		t.Errorf("%d Applications are kept", kept)
	}
}

// TestStaleIsOutsideOfHashes is what a side says that it holds, with the condition and
// without.
func TestStaleIsOutsideOfHashes(t *testing.T) {
	absence := Absence{Since: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), Message: "agent edge-1 is away"}
	managed, autonomous := ownershiptest.Rules(t, stream.Hub, stream.Managed), ownershiptest.Rules(t, stream.Hub, stream.Autonomous)
	for name, tt := range map[string]struct {
		rules       ownership.Rules
		collections []stream.Collection
		change      func(map[string]any)
		says        bool
	}{
		"managed": {managed, []stream.Collection{stream.Applications, stream.Statuses}, func(map[string]any) {}, true},
		"autonomous": {autonomous, []stream.Collection{stream.Applications, stream.Statuses}, func(o map[string]any) {
			annotate(o, map[string]any{object.SourceUIDKey: "u-1", object.RecordKey: `{"agent":"edge-1"}`})
		}, true},
		"a child": {managed, []stream.Collection{stream.Children}, func(o map[string]any) {
			annotate(o, map[string]any{object.SourceUIDKey: "u-1", object.RecordKey: `{"agent":"edge-1","child":true}`})
		}, true},
		"not the spoke's": {autonomous, nil, func(map[string]any) {}, false},
		"for another":     {managed, nil, func(o map[string]any) { o["spec"] = map[string]any{"destination": map[string]any{"name": "edge-2"}} }, false},
		"not synced": {managed, nil, func(o map[string]any) {
			o["metadata"].(map[string]any)["labels"] = map[string]any{object.IgnoreSyncKey: "true"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			content := map[string]any{
				"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
				"metadata": map[string]any{"namespace": "edge-1", "name": "shop", "uid": "h-1", "resourceVersion": "7"},
				"spec":     map[string]any{"destination": map[string]any{"name": "edge-1"}},
				"status":   map[string]any{"health": map[string]any{"status": "Healthy"}, "conditions": []any{map[string]any{"type": "SyncError", "message": "no", "lastTransitionTime": "2026-11-24T11:00:00Z"}}},
			}
			tt.change(content)
			before := backends.Object{
				Key: stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: "shop"},
				UID: "h-1", ResourceVersion: "7", Raw: object.Encode(content),
			}
			next, err := condition(tt.rules.Marks, before, absence)
			if err != nil || (next != nil) != tt.says {
				t.Fatalf("stale() = %s, %v", next, err)
			}
			if !tt.says {
				return
			}
			after := before
			after.Raw = next
			for _, c := range tt.collections {
				if was, is := tt.rules.LocalHash(c, parsed(t, before)), tt.rules.LocalHash(c, parsed(t, after)); was != is {
					t.Errorf("collection %v has another hash", c)
				}
			}
			// Nothing else of it changes: what ApplicationSets, notifications and health look at.
			rest := parsed(t, after)
			list := object.Conditions(rest.Child("status"))
			want := map[string]any{"type": "ArgomeshStaleWarning", "message": "agent edge-1 is away", "lastTransitionTime": "2026-11-24T12:00:00Z"}
			if diff := cmp.Diff([]any{want}, list[1:]); diff != "" {
				t.Errorf("conditions (-want +got)\n%s", diff)
			}
			object.SetConditions(rest.Child("status"), list[:1])
			if diff := cmp.Diff(parsed(t, before).Fields, rest.Fields); diff != "" {
				t.Errorf("the rest (-want +got)\n%s", diff)
			}
			// It stays as it is, and goes.
			if again, err := condition(tt.rules.Marks, after, absence); again != nil || err != nil {
				t.Errorf("said again: %s, %v", again, err)
			}
			gone, err := condition(copies.Marks{}, after, Absence{})
			if err != nil {
				t.Fatal(err)
			}
			after.Raw = gone
			if diff := cmp.Diff(parsed(t, before).Fields, parsed(t, after).Fields); diff != "" {
				t.Errorf("when the agent is back (-want +got)\n%s", diff)
			}
		})
	}
}

func parsed(t *testing.T, o backends.Object) object.Object {
	t.Helper()
	parsed, err := object.Parse(o)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func annotate(o, annotations map[string]any) {
	o["metadata"].(map[string]any)["annotations"] = annotations
}

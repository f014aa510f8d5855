package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
)

// Every Application of the link is one entry, and that entry is this Application
// again; what is outside is neither.
func TestNamespacesOfALink(t *testing.T) {
	pairs := []mapping.Pair{{Hub: "edge-1"}, {Spoke: "team", Hub: "edge-1-team"}}
	for name, test := range map[string]struct {
		rules   Rules
		entries map[string]string // of this side's namespaces, "-" for outside
		refused map[string]bool   // namespaces on the wire
	}{
		"the hub": {
			rules:   ruleSet(t, stream.Hub, stream.Managed),
			entries: map[string]string{"edge-1": "", "argocd": "-", "team": "-", "edge-2": "-"},
			refused: map[string]bool{"": false, "edge-1": true, "team": true},
		},
		"the hub, with several": {
			rules:   func() Rules { r := ruleSet(t, stream.Hub, stream.Autonomous); r.Pairs = pairs; return r }(),
			entries: map[string]string{"edge-1": "", "edge-1-team": "team", "argocd": "-", "team": "-"},
			refused: map[string]bool{"": false, "team": false, "edge-1-team": true, "other": true},
		},
		"the hub, with none that is not another agent's": {
			rules:   func() Rules { r := ruleSet(t, stream.Hub, stream.Autonomous); r.Pairs = pairs[:0]; return r }(),
			entries: map[string]string{"edge-1": "-"},
			refused: map[string]bool{"": true},
		},
		"the hub, by destination": {
			rules: func() Rules {
				r := ruleSet(t, stream.Hub, stream.Managed)
				r.ByDestination, r.Namespaces = true, []string{"team-*"}
				return r
			}(),
			entries: map[string]string{"argocd": "", "team-a": "team-a", "edge-1": "-"},
			refused: map[string]bool{"": false, "team-a": false, "argocd": true, "edge-1": true},
		},
		"a spoke": {
			rules:   ruleSet(t, stream.Spoke, stream.Managed),
			entries: map[string]string{"argocd": "", "team": "-"},
			refused: map[string]bool{"": false, "argocd": true, "team": true},
		},
		"a spoke with several": {
			rules:   func() Rules { r := ruleSet(t, stream.Spoke, stream.Managed); r.Namespaces = []string{"*"}; return r }(),
			entries: map[string]string{"argocd": "", "team": "team"},
			refused: map[string]bool{"": false, "argocd": true, "team": false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for namespace, want := range test.entries {
				key := stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: "a"}
				entries := test.rules.Keys(key)
				if want == "-" {
					if len(entries) > 0 {
						t.Errorf("%s is %v", key, entries)
					}
					continue
				}
				if len(entries) < 3 {
					t.Fatalf("%s is %v", key, entries)
				}
				for _, entry := range entries {
					if entry.Namespace != want {
						t.Errorf("%s is %s, want namespace %q", key, entry, want)
					}
					if back, ok := test.rules.Local(entry); !ok || back != key {
						t.Errorf("%s is %s, which is %s, %t", key, entry, back, ok)
					}
				}
			}
			for namespace, refused := range test.refused {
				for _, c := range []stream.Collection{stream.Applications, stream.Statuses, stream.Commands} {
					if key, ok := test.rules.Local(stream.EntryKey{Collection: c, Namespace: namespace, Name: "a"}); ok == refused {
						t.Errorf("%s of namespace %q is %s, %t", c, namespace, key, ok)
					}
				}
			}
			// What is in Argo CD's own namespace alone has no other.
			for _, c := range []stream.Collection{stream.AppProjects, stream.Repositories, stream.Trust} {
				if key, ok := test.rules.Local(stream.EntryKey{Collection: c, Namespace: "team-a", Name: object.GPGKeysConfigMap}); ok {
					t.Errorf("%s of namespace team-a is %s", c, key)
				}
			}
		})
	}
}

// A copy of a project admits on the spoke what the hub's admits of the agent.
func TestProjectSources(t *testing.T) {
	by := func(change func(*Rules)) Rules {
		r := ruleSet(t, stream.Hub, stream.Managed)
		change(&r)
		return r
	}
	several := by(func(r *Rules) { r.Pairs = []mapping.Pair{{Hub: "edge-1"}, {Spoke: "team", Hub: "e1-team"}} })
	destination := by(func(r *Rules) { r.ByDestination = true })
	for name, test := range map[string]struct {
		rules   Rules
		sources []any
		matches bool
		want    any
	}{
		"its namespace":               {several, []any{"edge-1"}, true, nil},
		"a further one":               {several, []any{"e1-*"}, true, []any{"team"}},
		"both":                        {several, []any{"*"}, true, []any{"team"}},
		"another agent's":             {several, []any{"edge-2"}, false, nil},
		"by destination, none":        {destination, nil, true, nil},
		"by destination, as it is":    {destination, []any{"team-*"}, true, []any{"team-*"}},
		"by destination, not the hub": {destination, []any{"edge-2"}, true, []any{"edge-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := m{"destinations": []any{m{"name": "edge-1", "namespace": "*"}}}
			if test.sources != nil {
				spec["sourceNamespaces"] = test.sources
			}
			got, matches := appProjects(test.rules).ForSpoke(objecttest.Object(t, projectKey(test.rules, "p"), nil, m{"spec": spec}))
			if matches != test.matches {
				t.Fatalf("it is the agent's: %t", matches)
			}
			if matches {
				if diff := cmp.Diff(test.want, got.(m)["sourceNamespaces"]); diff != "" {
					t.Errorf("sourceNamespaces (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// What the selector does not select is as if it were not there, in whatever state.
func TestSelector(t *testing.T) {
	selector, err := labels.Parse("by=agent")
	if err != nil {
		t.Fatal(err)
	}
	r := ruleSet(t, stream.Hub, stream.Managed)
	r.Selector = selector
	for name, rest := range map[string]m{
		"at rest":            {},
		"with an operation":  {"operation": m{"sync": m{}}},
		"for somebody else":  {"spec": m{"destination": m{"name": "pushed"}}},
		"with our condition": {"status": m{"conditions": []any{m{"type": object.ErrorCondition, "message": "x"}}}},
	} {
		for label, selected := range map[string]bool{"agent": true, "hub": false} {
			t.Run(name+" by "+label, func(t *testing.T) {
				body := m{"spec": m{"destination": m{"name": "edge-1"}}}
				for key, value := range rest {
					body[key] = value
				}
				meta := m{"labels": m{"by": label}, "finalizers": []any{object.CascadeFinalizer}, "deletionTimestamp": "2026-01-01T00:00:00Z"}
				for _, metadata := range []m{{"labels": m{"by": label}}, meta} {
					o := objecttest.Object(t, appKey(r), metadata, body)
					uid := r.SourceUID(o)
					if (uid != "") != selected {
						t.Fatalf("sourceUID() = %q", uid)
					}
					if selected {
						continue
					}
					for _, c := range []stream.Collection{stream.Applications, stream.Commands} {
						if _, sent := r.Content(c, o, hard("1")); sent {
							t.Errorf("%s is sent", c)
						}
					}
					if held := r.Stored(stream.Statuses, o, nil); !held.Absent() {
						t.Errorf("Held() = %v", held)
					}
					if _, needed := r.PlanHubUpdate(o, LinkState{Gone: true, Present: true, Refusal: stream.Invalid("x")}); needed {
						t.Error("it is written")
					}
					e := objecttest.Apply(stream.Statuses, "uid-1", 9, m{"status": m{"health": m{"status": "Healthy"}}})
					if writes, _ := r.Plan(e, o.Key, &o, operations.Requests{}); len(writes) > 0 {
						t.Error("a status is written")
					}
				}
			})
		}
	}
}

package mirror

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/argomesh/argomesh/stream"
)

// TestUses follows which Applications name a project, and when that makes a difference.
func TestUses(t *testing.T) {
	u := newUses()
	for _, step := range []struct {
		app, project string
		going        bool
		news         []string
		web          users
	}{
		{"a", "", false, nil, users{}},
		{"a", "web", false, []string{"web"}, users{"web", 1, 0}},
		{"a", "web", false, nil, users{"web", 1, 0}},
		{"b", "web", true, []string{"web"}, users{"web", 2, 1}},
		{"c", "web", true, nil, users{"web", 3, 2}},
		{"b", "", false, nil, users{"web", 2, 1}},
		{"c", "web", false, []string{"web"}, users{"web", 2, 0}},
		{"c", "other", true, []string{"other"}, users{"web", 1, 0}},
		{"a", "", false, []string{"web"}, users{}},
		{"c", "", false, []string{"other"}, users{}},
	} {
		if diff := cmp.Diff(step.news, u.note(step.app, step.project, step.going), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("note(%s, %s, %t) (-want +got)\n%s", step.app, step.project, step.going, diff)
		}
		if diff := cmp.Diff(step.web, u.of("web"), cmp.AllowUnexported(users{})); diff != "" {
			t.Errorf("after note(%s, %s, %t) (-want +got)\n%s", step.app, step.project, step.going, diff)
		}
	}
	if len(u.byApp)+len(u.byProject) != 0 {
		t.Errorf("%d Applications and %d projects are remembered", len(u.byApp), len(u.byProject))
	}
}

// TestClosed says which projects of the hub are never for a spoke, not even closed.
func TestClosed(t *testing.T) {
	hub := ruleSet(t, stream.Hub, stream.Managed)
	for name, test := range map[string]struct {
		meta m
		want string
	}{
		"any":                                 {m{"labels": m{"team": "a"}}, `{"annotations":{},"labels":{"team":"a"},"spec":{"clusterResourceWhitelist":[],"destinations":[],"sourceRepos":["*"]}}`},
		"the mirror of an autonomous agent's": {m{"annotations": m{sourceUIDKey: "uid-9"}}, ""},
		"one that is not to be mirrored":      {m{"labels": m{ignoreSyncKey: "true"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := makeObject(t, projectKey(hub, "web"), test.meta, m{"spec": m{
				"sourceRepos": []any{"*"}, "destinations": []any{m{"server": "*"}}, "roles": []any{m{"name": "r"}}, "sourceNamespaces": []any{"*"},
				"clusterResourceWhitelist": []any{}, "syncWindows": []any{m{"kind": "deny"}},
			}})
			if diff := cmp.Diff(test.want, string(hub.closed(o).Data)); diff != "" {
				t.Errorf("closed() (-want +got)\n%s", diff)
			}
		})
	}
}

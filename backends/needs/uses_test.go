package needs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestUses follows which Applications name a project, and when that makes a difference.
func TestUses(t *testing.T) {
	u := NewUses()
	for _, step := range []struct {
		app, project string
		going        bool
		news         []string
		web          Users
	}{
		{"a", "", false, nil, Users{}},
		{"a", "web", false, []string{"web"}, Users{"web", 1, 0}},
		{"a", "web", false, nil, Users{"web", 1, 0}},
		{"b", "web", true, []string{"web"}, Users{"web", 2, 1}},
		{"c", "web", true, nil, Users{"web", 3, 2}},
		{"b", "", false, nil, Users{"web", 2, 1}},
		{"c", "web", false, []string{"web"}, Users{"web", 2, 0}},
		{"c", "other", true, []string{"other"}, Users{"web", 1, 0}},
		{"a", "", false, []string{"web"}, Users{}},
		{"c", "", false, []string{"other"}, Users{}},
	} {
		if diff := cmp.Diff(step.news, u.Set(step.app, step.project, step.going), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("note(%s, %s, %t) (-want +got)\n%s", step.app, step.project, step.going, diff)
		}
		if diff := cmp.Diff(step.web, u.Of("web"), cmp.AllowUnexported(Users{})); diff != "" {
			t.Errorf("after note(%s, %s, %t) (-want +got)\n%s", step.app, step.project, step.going, diff)
		}
	}
	if len(u.byApp)+len(u.ByProject) != 0 {
		t.Errorf("%d Applications and %d projects are remembered", len(u.byApp), len(u.ByProject))
	}
}

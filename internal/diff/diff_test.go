package diff_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/internal/diff"
)

func TestFields(t *testing.T) {
	have := map[string]string{"same": "1", "gone": "1", "changed": "1", "empty": ""}
	want := map[string]string{"same": "1", "changed": "2", "new": "1", "nothing": ""}
	var got []string
	for _, f := range diff.Fields(have, want) {
		got = append(got, f.String())
	}
	if d := cmp.Diff([]string{"changed: 1 -> 2", "gone: 1 -> unset", "new: unset -> 1"}, got); d != "" {
		t.Errorf("Fields() (-want +got):\n%s", d)
	}
	if got := diff.Fields(nil, nil); len(got) > 0 {
		t.Errorf("nothing differs from nothing in %v", got)
	}
}

func TestLeaves(t *testing.T) {
	tree := map[string]any{
		"a":    map[string]any{"b": "x", "c": nil},
		"list": []any{"p", map[string]any{"q": int64(1)}},
		"set":  []any{"z", "y"},
		"none": map[string]any{},
		"off":  false,
	}
	leaf := func(path string, node any) (string, bool) {
		if path == "spec.set" {
			return "as a whole", true
		}
		switch node := node.(type) {
		case map[string]any, []any:
			return "not used", false
		case bool:
			return "", node
		}
		return fmt.Sprint(node), true
	}
	want := map[string]string{"spec.a.b": "x", "spec.list[0]": "p", "spec.list[1].q": "1", "spec.set": "as a whole"}
	if d := cmp.Diff(want, diff.Leaves("spec", tree, leaf)); d != "" {
		t.Errorf("Leaves() (-want +got):\n%s", d)
	}
	if got := diff.Leaves("spec", nil, leaf); len(got) > 0 {
		t.Errorf("nothing has leaves %v", got)
	}
}

// What is wanted is checked once, what is not goes if it may, and nothing goes before what
// takes its place is there.
func TestChanges(t *testing.T) {
	type thing struct{ name, value string }
	change := func(have, want thing, there bool) diff.Change[thing] {
		c := diff.Change[thing]{Name: want.name, Have: have, Want: want, Action: diff.Keep}
		switch {
		case want.value == "bad":
			c.Action = diff.Refuse
		case !there:
			c.Action = diff.Create
		case have != want:
			c.Action = diff.Update
		}
		return c
	}
	plan := diff.Changes(
		[]thing{{"keep", "1"}, {"new", "1"}, {"b", "2"}, {"a", "2"}, {"refused", "bad"}},
		[]thing{{"keep", "1"}, {"a", "1"}, {"b", "1"}, {"old", "1"}, {"others", "1"}},
		func(th thing) string { return th.name }, change, func(th thing) bool { return th.name != "others" },
	)
	var got []string
	for _, c := range plan {
		got = append(got, c.Action.String()+" "+c.Name)
	}
	if d := cmp.Diff([]string{"refuse refused", "create new", "update a", "update b", "delete old", "keep keep"}, got); d != "" {
		t.Errorf("Changes() (-want +got):\n%s", d)
	}
	if old := plan[4]; old.Have != (thing{"old", "1"}) || old.Want != (thing{}) {
		t.Errorf("what goes is %+v", old)
	}
	if diff.IsNoOp(plan) || !diff.IsNoOp(plan[5:]) || !diff.IsNoOp[thing](nil) {
		t.Error("a plan is settled when it keeps everything")
	}
}

func TestActionWords(t *testing.T) {
	var got []string
	for a := diff.Refuse; a <= diff.Keep+1; a++ {
		got = append(got, a.String()+" "+a.Participle())
	}
	want := []string{"refuse refused", "create created", "update updated", "delete deleted", "keep unchanged", "action 6 action 6"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("words (-want +got):\n%s", d)
	}
	if got := diff.Action(0).String() + diff.Action(0).Participle(); got != "" {
		t.Errorf("no action is %q", got)
	}
}

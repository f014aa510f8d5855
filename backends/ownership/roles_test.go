package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// TestRulesOfMirroredProjects: a mirror that was written under other rules is not what
// the spoke meant, so that it comes again.
func TestRulesOfMirroredProjects(t *testing.T) {
	r := ruleSet(t, stream.Hub, stream.Autonomous)
	key := stream.EntryKey{Collection: stream.AppProjects, Name: "web"}
	local, _ := r.Local(key)
	data := object.Encode(m{"labels": m{}, "annotations": m{}, "spec": m{"roles": []any{
		m{"name": "reader", "policies": []any{"p, proj:web:reader, applications, get, web/*, allow"}},
		m{"name": "admin", "policies": []any{"p, proj:web:admin, clusters, get, web/*, allow"}},
	}}})
	event := stream.Event{Key: key, Verb: stream.Apply, Data: data, Revision: 5, Version: stream.Version{SourceUID: "spoke-project", Hash: stream.HashOf(data)}}
	write := func(r Rules, current *object.Object) object.Object {
		t.Helper()
		writes, refusal := r.Plan(event, local, current, operations.Requests{})
		if len(writes) != 1 || refusal != nil {
			t.Fatalf("Plan() = %v, %v", writes, refusal)
		}
		fields, err := object.Decode(writes[0].Raw)
		if err != nil {
			t.Fatal(err)
		}
		return object.Object{Key: local, Fields: fields}
	}
	roles := func(o object.Object) int {
		list, _ := o.Child("spec")["roles"].([]any)
		return len(list)
	}
	asked, moved := r, r
	asked.ProjectRoles = true
	moved.Pairs = []mapping.Pair{{Hub: "edge-1-apps"}}

	plain := write(r, nil)
	if rec, _ := record.Of(plain); roles(plain) != 0 || rec.Shaping != "" || rec.Lacks != nil || r.MissingRoles(plain) != nil {
		t.Errorf("unasked: %v", plain.Fields)
	}
	with := write(asked, &plain)
	want := `its mirror edge-1-web is without role "admin": policy "p, proj:web:admin, clusters, get, web/*, allow": the hub mirrors nothing of that resource, but applications, logs and exec`
	if told := asked.MissingRoles(with); roles(with) != 1 || told == nil || told.Message != want {
		t.Errorf("asked for: %v, told %v", with.Fields, told)
	}
	elsewhere := write(moved, &plain)
	if got := elsewhere.Child("spec")["sourceNamespaces"]; cmp.Diff([]any{"edge-1-apps"}, got) != "" {
		t.Errorf("in another namespace: %v", got)
	}
	without := write(r, &with)
	if roles(without) != 0 || r.MissingRoles(without) != nil {
		t.Errorf("asked for no more: %v", without.Fields)
	}
	for name, test := range map[string]struct {
		rules Rules
		o     object.Object
		held  bool
	}{
		"as before": {r, plain, true}, "roles, asked for": {asked, with, true}, "elsewhere, as before": {moved, elsewhere, true}, "no roles any more": {r, without, true},
		"roles are asked for now": {asked, plain, false}, "roles are not asked for any more": {r, with, false}, "the namespaces changed": {moved, plain, false}, "both": {moved, with, false},
	} {
		last := test.rules.ReplyOf(stream.AppProjects, event.Version, test.o)
		for _, reply := range []*Reply{nil, &last} {
			if held := test.rules.Stored(stream.AppProjects, test.o, reply); held.Absent() || (held == event.Version) != test.held {
				t.Errorf("%s: held is %v, want that of the spoke: %t", name, held, test.held)
			}
		}
	}
}

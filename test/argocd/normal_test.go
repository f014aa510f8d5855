package argocd

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo"
	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/stream"
)

// TestNormalForm sets each field of an Application's spec alone, to what says nothing
// and to what says something, and holds the spec that a spoke stores against Argo CD's
// own normal form. Where the two differ, the spoke's controller and the agent undo each
// other for ever.
func TestNormalForm(t *testing.T) {
	several := func(spec map[string]any) map[string]any {
		return map[string]any{"sources": []any{spec["source"]}}
	}
	specs := map[string]map[string]any{
		"nothing":                     {},
		"an empty project":            {"project": ""},
		"helm with empty values":      {"source": map[string]any{"helm": map[string]any{"valuesObject": map[string]any{}}}},
		"jsonnet that says nothing":   {"source": map[string]any{"directory": map[string]any{"jsonnet": map[string]any{"libs": []any{}, "extVars": []any{}, "tlas": []any{}}}}},
		"a pattern beside jsonnet":    {"source": map[string]any{"directory": map[string]any{"include": "*.yaml", "jsonnet": map[string]any{"libs": []any{}}}}},
		"both patterns":               {"source": map[string]any{"directory": map[string]any{"include": "*.yaml", "exclude": "x", "recurse": false}}},
		"a source with nothing to it": {"source": map[string]any{}, "sources": []any{}},
	}
	for _, f := range fieldsOf(reflect.TypeFor[v1alpha1.ApplicationSpec]()) {
		for i, value := range f.values() {
			spec := f.alone(value)
			specs[fmt.Sprintf("%s %d", f.path, i)] = spec
			if f.names[0] == "source" {
				specs[fmt.Sprintf("sources[]%s %d", f.path[len("source"):], i)] = several(spec)
			}
		}
	}
	if len(specs) < 300 {
		t.Fatalf("only %d forms: the walk misses most", len(specs))
	}
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			var original v1alpha1.ApplicationSpec
			typed(t, spec, &original)
			want := argo.NormalizeApplicationSpec(&original)
			want.Destination.Name, want.Destination.Server = "in-cluster", ""

			var stored v1alpha1.ApplicationSpec
			typed(t, storedSpec(t, spec), &stored)
			if stored.Project == "" {
				stored.Project = v1alpha1.DefaultAppProjectName // which no schema lets be absent
			}
			if diff := cmp.Diff(text(t, want), text(t, &stored)); diff != "" {
				t.Errorf("stored on the spoke (-as Argo CD has it +as we have it)\n%s", diff)
			}
			if again := argo.NormalizeApplicationSpec(&stored); text(t, again) != text(t, &stored) {
				t.Errorf("the spoke's controller makes %s of %s", text(t, again), text(t, &stored))
			}
		})
	}
}

// storedSpec is what the agent stores for an Application with that spec.
func storedSpec(t *testing.T, spec map[string]any) any {
	t.Helper()
	rules := ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: stream.Spoke, Mode: stream.Managed, Agent: theAgent(t), Namespace: argocd}}}
	return plannedSpec(t, rules, appKey(argocd), spec)
}

// plannedSpec is what rules store of an Application with that spec.
func plannedSpec(t *testing.T, rules ownership.Rules, key stream.ResourceKey, spec map[string]any) any {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"labels": map[string]any{}, "annotations": map[string]any{}, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	event := stream.Event{
		Key: stream.EntryKey{Collection: stream.Applications, Name: "guestbook"}, Verb: stream.Apply, Data: raw,
		Version: stream.Version{SourceUID: "u", Hash: stream.HashOf(raw)}, Revision: 1,
	}
	writes, refusal := rules.Plan(event, key, nil, operations.Requests{})
	if len(writes) != 1 {
		t.Fatalf("Plan() = %d writes, %v", len(writes), refusal)
	}
	var copied map[string]any
	if err := json.Unmarshal(writes[0].Raw, &copied); err != nil {
		t.Fatal(err)
	}
	return copied["spec"]
}

// typed makes Argo CD's own of a spec, as its controllers read it.
func typed(t *testing.T, spec, into any) {
	t.Helper()
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
}

// text is what Argo CD writes, by which it tells whether it has anything to write.
func text(t *testing.T, spec any) string {
	t.Helper()
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

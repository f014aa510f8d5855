package schema_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"

	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/test/heap"
)

// m is a JSON object.
type m = map[string]any

// definition is a CustomResourceDefinition with one version, of that schema.
func definition(t testing.TB, root m) []byte {
	t.Helper()
	return marshal(t, m{"spec": m{"versions": []any{
		m{"name": "v0", "schema": m{"openAPIV3Schema": m{}}},
		m{"name": "v1alpha1", "schema": m{"openAPIV3Schema": root}},
	}}})
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func unmarshal(t testing.TB, raw []byte) m {
	t.Helper()
	var v m
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func parse(t testing.TB, root m) *schema.Schema {
	t.Helper()
	s, err := schema.Parse(definition(t, root), "v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPrune(t *testing.T) {
	object := func(properties m) m { return m{"type": "object", "properties": properties} }
	text := m{"type": "string"}
	spec := object(m{"spec": object(m{
		"name":  text,
		"list":  m{"type": "array", "items": object(m{"name": text})},
		"named": m{"type": "object", "additionalProperties": object(m{"name": text})},
		"any":   m{"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": m{"known": object(m{"name": text})}},
		"all":   m{"type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": object(m{"known": object(m{"name": text})})},
		"whole": m{"type": "object", "x-kubernetes-embedded-resource": true, "properties": m{"spec": object(m{"name": text})}},
	})})
	for title, tt := range map[string]struct {
		object, want m
		dropped      []dropped
	}{
		"what is known": {m{"spec": m{"name": "a", "list": []any{m{"name": "b"}}}}, m{"spec": m{"name": "a", "list": []any{m{"name": "b"}}}}, nil},
		"type and metadata": {
			m{"apiVersion": "v1", "kind": "K", "metadata": m{"new": "x"}, "status": m{}},
			m{"apiVersion": "v1", "kind": "K", "metadata": m{"new": "x"}},
			[]dropped{{Path: "status", Value: m{}}},
		},
		"false, nothing and null": {
			m{"spec": m{"a": false, "b": "", "c": nil}}, m{"spec": m{}},
			[]dropped{{Path: "spec.a", Value: false}, {Path: "spec.b", Value: ""}, {Path: "spec.c", Value: nil}},
		},
		"a branch is one path": {m{"spec": m{"new": m{"x": "1", "y": []any{"2"}}}}, m{"spec": m{}}, []dropped{{Path: "spec.new", Value: m{"x": "1", "y": []any{"2"}}}}},
		"in a list":            {m{"spec": m{"list": []any{m{"name": "a"}, m{"new": "b"}}}}, m{"spec": m{"list": []any{m{"name": "a"}, m{}}}}, []dropped{{Path: "spec.list[].new", Value: "b"}}},
		"under any name":       {m{"spec": m{"named": m{"x": m{"name": "a", "new": "b"}}}}, m{"spec": m{"named": m{"x": m{"name": "a"}}}}, []dropped{{Path: "spec.named.x.new", Value: "b"}}},
		"what is preserved":    {m{"spec": m{"any": m{"x": m{"y": "z"}}}}, m{"spec": m{"any": m{"x": m{"y": "z"}}}}, nil},
		"named in what is preserved": {
			m{"spec": m{"any": m{"known": m{"name": "a", "new": "b"}}}}, m{"spec": m{"any": m{"known": m{"name": "a"}}}},
			[]dropped{{Path: "spec.any.known.new", Value: "b"}},
		},
		"items of a list that is preserved": {
			m{"spec": m{"all": []any{m{"x": "y", "known": m{"new": "b"}}}}}, m{"spec": m{"all": []any{m{"x": "y", "known": m{}}}}},
			[]dropped{{Path: "spec.all[].known.new", Value: "b"}},
		},
		"an object in an object": {
			m{"spec": m{"whole": m{"kind": "K", "metadata": m{"x": "y"}, "new": "b"}}}, m{"spec": m{"whole": m{"kind": "K", "metadata": m{"x": "y"}}}},
			[]dropped{{Path: "spec.whole.new", Value: "b"}},
		},
		"of another form than the schema says": {
			m{"spec": m{"name": m{"new": "b"}, "list": m{"new": "c"}}}, m{"spec": m{"name": m{}, "list": m{}}},
			[]dropped{{Path: "spec.list.new", Value: "c"}, {Path: "spec.name.new", Value: "b"}},
		},
	} {
		var got []dropped
		for _, d := range parse(t, spec).Prune(tt.object) {
			got = append(got, dropped{d.Path(), d.Value})
		}
		slices.SortFunc(got, func(a, b dropped) int { return strings.Compare(a.Path, b.Path) })
		if diff := cmp.Diff(tt.dropped, got); diff != "" {
			t.Errorf("%s: Prune() (-want +got):\n%s", title, diff)
		}
		if diff := cmp.Diff(tt.want, tt.object); diff != "" {
			t.Errorf("%s: what is left (-want +got):\n%s", title, diff)
		}
	}
}

// dropped is a field that is not kept, with its path.
type dropped struct {
	Path  string
	Value any
}

// A long name is in the path of everything under it, of which there may be as many: they
// take no more than their bytes together, and what is told of each is short.
func TestManyFieldsUnderALongName(t *testing.T) {
	members := func() m {
		all := m{}
		for i := range 50000 {
			all[fmt.Sprint(i)] = json.Number("0")
		}
		return all
	}
	known := parse(t, m{"type": "object", "properties": m{"open": m{"type": "object", "additionalProperties": m{"type": "object"}}}})
	for title, under := range map[string]any{
		"members": members(),
		"objects": []any{members()},
		"items":   slices.Repeat([]any{m{}}, 200000),
		"lists":   slices.Repeat([]any{[]any{}}, 200000),
	} {
		object := m{"open": m{strings.Repeat("é", 200<<10): under}}
		var lost []schema.Dropped
		heap.Bound(t, len(marshal(t, object)), func() { lost = known.Prune(object) })
		if want := title == "members" || title == "objects"; (len(lost) > 0) != want {
			t.Errorf("%s: %d fields are dropped", title, len(lost))
		}
		for _, d := range lost {
			if path := d.Path(); len(path) > 300 || !strings.HasPrefix(path, "open.éé") {
				t.Fatalf("%s: the path of a field has %d bytes: %.20s", title, len(path), path)
			}
		}
	}
}

func TestParse(t *testing.T) {
	for title, crd := range map[string]string{
		"not JSON":     `{`,
		"no version":   `{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{}}}]}}`,
		"no schema":    `{"spec":{"versions":[{"name":"v1alpha1"}]}}`,
		"no structure": `{"spec":{"versions":[{"name":"v1alpha1","schema":{"openAPIV3Schema":{"items":[{}]}}}]}}`,
	} {
		if s, err := schema.Parse([]byte(crd), "v1alpha1"); err == nil {
			t.Errorf("%s: Parse() = %v, want an error", title, s)
		}
	}
	all, err := schema.Parse([]byte(`{"spec":{"preserveUnknownFields":true,"versions":[{"name":"v1alpha1","schema":{"openAPIV3Schema":{}}}]}}`), "v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	if dropped := all.Prune(m{"spec": m{"x": "y"}}); dropped != nil {
		t.Errorf("a definition that preserves unknown fields drops %v", dropped)
	}
}

// The id follows what is kept, and nothing else of a definition.
func TestID(t *testing.T) {
	one := m{"type": "object", "description": "one", "properties": m{"a": m{"type": "string"}, "b": m{"type": "string"}}}
	same := m{"type": "object", "description": "another", "properties": m{"b": m{"type": "string", "maxLength": 3}, "a": m{"type": "string"}}}
	more := m{"type": "object", "properties": m{"a": m{"type": "string"}, "b": m{"type": "string"}, "c": m{"type": "string"}}}
	if a, b := parse(t, one).ID(), parse(t, same).ID(); a != b {
		t.Errorf("schemas that keep the same have the ids %s and %s", a, b)
	}
	if a, b := parse(t, one).ID(), parse(t, more).ID(); a == b {
		t.Errorf("schemas that keep other fields have one id, %s", a)
	}
}

// index is how an API server writes the place of an item.
var index = regexp.MustCompile(`\[\d+\]`)

// FuzzPrune holds Prune against the function with which API servers prune.
func FuzzPrune(f *testing.F) {
	f.Add([]byte{1, 4, 2, 3, 1, 0, 5, 2, 2, 9}, []byte{1, 3, 2, 1, 7, 1, 2, 0, 4, 4})
	f.Add([]byte{3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1}, []byte{2, 2, 2, 2, 1, 1, 1, 1, 3, 3, 3})
	f.Add([]byte{5, 1, 5, 2, 5, 3, 5, 4, 5, 5, 5, 6, 5, 7}, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Fuzz(func(t *testing.T, shape, content []byte) {
		root := (&random{shape}).schema(4)
		root["type"] = "object"
		object, _ := (&random{content}).value(5).(m)
		if object == nil {
			object = m{}
		}
		theirs, want := unmarshal(t, marshal(t, object)), unmarshal(t, marshal(t, object))
		var paths []string
		known := parse(t, root)
		var lost []schema.Dropped
		heap.Bound(t, len(marshal(t, object)), func() { lost = known.Prune(want) })
		for _, d := range lost {
			paths = append(paths, d.Path())
		}
		unknown := pruning.PruneWithOptions(theirs, structuralOf(t, root), true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
		for i, path := range unknown {
			unknown[i] = index.ReplaceAllString(path, "[]")
		}
		if diff := cmp.Diff(theirs, want); diff != "" {
			t.Errorf("an API server keeps (-theirs +ours):\n%s", diff)
		}
		slices.Sort(paths)
		slices.Sort(unknown)
		if !slices.Equal(paths, unknown) {
			t.Errorf("an API server drops %q, and we %q", unknown, paths)
		}
	})
}

func structuralOf(t *testing.T, root m) *structural.Structural {
	t.Helper()
	var props apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(marshal(t, root), &props); err != nil {
		t.Fatal(err)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&props, &internal, nil); err != nil {
		t.Fatal(err)
	}
	s, err := structural.NewStructural(&internal)
	if err != nil {
		t.Skip(err)
	}
	return s
}

// random makes schemas and objects of a few names out of bytes.
type random struct{ rest []byte }

func (r *random) next(n int) int {
	if len(r.rest) == 0 {
		return 0
	}
	b := int(r.rest[0])
	r.rest = r.rest[1:]
	return b % n
}

func (r *random) name() string { return []string{"a", "b", "metadata", "kind"}[r.next(4)] }

func (r *random) schema(depth int) m {
	s := m{}
	if depth == 0 {
		return s
	}
	properties := m{}
	for range r.next(4) {
		properties[r.name()] = r.schema(depth - 1)
	}
	if len(properties) > 0 {
		s["properties"] = properties
	}
	switch r.next(6) {
	case 1:
		s["additionalProperties"] = r.schema(depth - 1)
	case 2:
		s["additionalProperties"] = true
	case 3:
		s["x-kubernetes-preserve-unknown-fields"] = true
	case 4:
		s["x-kubernetes-embedded-resource"] = true
	}
	if r.next(2) == 1 {
		s["items"] = r.schema(depth - 1)
	}
	return s
}

func (r *random) value(depth int) any {
	kind := r.next(4)
	switch {
	case depth == 0 || kind == 0:
		return "x"
	case kind == 1:
		list := []any{}
		for range r.next(3) {
			list = append(list, r.value(depth-1))
		}
		return list
	}
	object := m{}
	for range r.next(5) {
		object[r.name()] = r.value(depth - 1)
	}
	return object
}

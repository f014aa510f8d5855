package argocd

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// field is one field of a spec of Argo CD's, wherever it is nested.
type field struct {
	// path names it as people do: source.helm.parameters[].name.
	path string
	// names are the JSON names on the way to it; "[]" is one element of a list.
	names []string
	typ   reflect.Type
}

// fieldsOf returns the fields of a struct type and of all that it is made of, in order.
// What is Kubernetes' and writes its own JSON, as times do, has none.
func fieldsOf(t reflect.Type) []field { return walk(t, nil) }

func walk(t reflect.Type, names []string) []field {
	for {
		switch {
		case t.Kind() == reflect.Pointer:
			t = t.Elem()
		case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
			t, names = t.Elem(), append(slices.Clone(names), "[]")
		case t.Kind() != reflect.Struct || writesItself(t):
			return nil
		default:
			return walkStruct(t, names)
		}
	}
}

func walkStruct(t reflect.Type, names []string) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
			continue
		case name == "" && f.Anonymous:
			out = append(out, walk(f.Type, names)...)
			continue
		case name == "":
			name = f.Name
		}
		below := append(slices.Clone(names), name)
		out = append(out, field{path: pathOf(below), names: below, typ: f.Type})
		out = append(out, walk(f.Type, below)...)
	}
	return out
}

func writesItself(t reflect.Type) bool {
	if !strings.HasPrefix(t.PkgPath(), "k8s.io/") {
		return false // it writes its fields, in its own way
	}
	marshaler := reflect.TypeFor[json.Marshaler]()
	return t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
}

func pathOf(names []string) string {
	return strings.ReplaceAll(strings.Join(names, "."), ".[]", "[]")
}

// values are what the field may hold, as JSON: what says nothing, and what says
// something.
func (f field) values() []any {
	t := f.typ
	pointer := t.Kind() == reflect.Pointer
	if pointer {
		t = t.Elem()
	}
	switch {
	case strings.HasSuffix(t.String(), "RawExtension"):
		return []any{map[string]any{}, map[string]any{"a": "b"}}
	case strings.HasSuffix(t.String(), "IntOrString"):
		return []any{0, 2}
	case writesItself(t):
		return nil // a time: none is in a spec but of a token
	}
	switch t.Kind() {
	case reflect.String:
		return []any{"", "x"}
	case reflect.Bool:
		return []any{false, true}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return []any{0, 3}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Bool {
			return []any{map[string]any{}, map[string]any{"a": true}}
		}
		return []any{map[string]any{}, map[string]any{"a": "b"}}
	case reflect.Slice:
		elem := t.Elem()
		if elem.Kind() == reflect.Pointer {
			elem = elem.Elem()
		}
		if elem.Kind() == reflect.Struct {
			return []any{[]any{}, []any{map[string]any{}}}
		}
		return []any{[]any{}, []any{"x"}}
	default:
		return []any{map[string]any{}}
	}
}

// alone is a spec, as JSON, in which this field is set and nothing else.
func (f field) alone(value any) map[string]any {
	for i := len(f.names) - 1; i >= 0; i-- {
		if f.names[i] == "[]" {
			value = []any{value}
		} else {
			value = map[string]any{f.names[i]: value}
		}
	}
	spec, _ := value.(map[string]any)
	return spec
}

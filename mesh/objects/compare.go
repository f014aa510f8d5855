package objects

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Field is a field that two objects do not have alike, by its path, such as
// spec.mtls.mode. The values are JSON; empty means that there is none.
type Field struct{ Path, Have, Want string }

// Compare returns the fields in which have is not as want, by path: all of their specs,
// and the labels that want has. Lists of words are sets, as meshes take them, and so
// sorted. What is false or empty is as what is absent, but an empty object: Istio's
// "retries: {}" means none, and without it there are two.
func Compare(have, want *unstructured.Unstructured) []Field {
	a, b := leaves(have), leaves(want)
	labels := have.GetLabels()
	for key, value := range want.GetLabels() {
		path := "metadata.labels." + key
		b[path] = text(value)
		if got, found := labels[key]; found {
			a[path] = text(got)
		}
	}
	paths := maps.Clone(a)
	maps.Copy(paths, b)
	var out []Field
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if a[path] != b[path] {
			out = append(out, Field{Path: path, Have: a[path], Want: b[path]})
		}
	}
	return out
}

// leaves returns the fields of an object's spec as JSON, by path.
func leaves(o *unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	walk(out, "spec", o.Object["spec"])
	return out
}

func walk(out map[string]string, path string, node any) {
	switch node := node.(type) {
	case nil:
	case map[string]any:
		if len(node) == 0 {
			out[path] = "{}"
		}
		for key, child := range node {
			walk(out, path+"."+key, child)
		}
	case []any:
		words := make([]string, 0, len(node))
		for i, item := range node {
			if word, ok := item.(string); ok {
				words = append(words, word)
			} else {
				walk(out, fmt.Sprintf("%s[%d]", path, i), item)
			}
		}
		if len(words) > 0 {
			slices.Sort(words)
			out[path] = text(words)
		}
	case bool:
		if node {
			out[path] = text(node)
		}
	case string:
		if node != "" {
			out[path] = text(node)
		}
	default:
		out[path] = text(node)
	}
}

func text(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value) // unreachable: it came from JSON
	}
	return string(raw)
}

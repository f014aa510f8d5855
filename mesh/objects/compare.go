package objects

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/internal/diff"
)

// Compare returns the fields in which have is not as want, by path: all of their specs,
// and the labels that want has. Lists of words are sets, as meshes take them, and so
// sorted. What is false or empty is as what is absent, but an empty object: Istio's
// "retries: {}" means none, and without it there are two.
func Compare(have, want *unstructured.Unstructured) []diff.Field {
	a, b := leaves(have), leaves(want)
	labels := have.GetLabels()
	for key, value := range want.GetLabels() {
		path := "metadata.labels." + key
		b[path] = text(value)
		if got, found := labels[key]; found {
			a[path] = text(got)
		}
	}
	return diff.Fields(a, b)
}

// leaves returns the fields of an object's spec as JSON, by path.
func leaves(o *unstructured.Unstructured) map[string]string {
	return diff.Leaves("spec", o.Object["spec"], leaf)
}

func leaf(_ string, node any) (value string, ok bool) {
	switch node := node.(type) {
	case map[string]any:
		return "{}", len(node) == 0
	case []any:
		words, ok := wordsOf(node)
		if !ok || len(words) == 0 {
			return "", ok
		}
		slices.Sort(words)
		return text(words), true
	case bool:
		if !node {
			return "", true
		}
	case string:
		if node == "" {
			return "", true
		}
	}
	return text(node), true
}

// wordsOf returns a list of strings; ok is false for another list.
func wordsOf(list []any) (words []string, ok bool) {
	for _, item := range list {
		word, ok := item.(string)
		if !ok {
			return nil, false
		}
		words = append(words, word)
	}
	return words, true
}

func text(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value) // unreachable: it came from JSON
	}
	return string(raw)
}

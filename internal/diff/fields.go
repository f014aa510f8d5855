// Package diff compares what is wanted with what is there, field by field, and orders what
// makes the two alike into a plan. It is pure. What a field is, whose a thing is and how a
// change is carried out is its users'.
package diff

import (
	"fmt"
	"maps"
	"slices"
)

// Field is a field that two things do not have alike.
type Field struct {
	// Path is where it is, such as spec.mtls.mode, or its name.
	Path string
	// Have and Want are its values as text. Empty means that there is none.
	Have, Want string
}

// String returns "path: have -> want".
func (f Field) String() string { return fmt.Sprintf("%s: %s -> %s", f.Path, set(f.Have), set(f.Want)) }

func set(text string) string {
	if text == "" {
		return "unset"
	}
	return text
}

// Fields returns the paths that two things do not have alike, in their order. An empty text
// is as none.
func Fields(have, want map[string]string) []Field {
	paths := maps.Clone(have)
	if paths == nil {
		paths = map[string]string{}
	}
	maps.Copy(paths, want)
	var out []Field
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if have[path] != want[path] {
			out = append(out, Field{Path: path, Have: have[path], Want: want[path]})
		}
	}
	return out
}

// A Leaf is asked for each node of a tree. It returns the text of one that is compared as a
// whole, empty for one that is as if it were not there; ok is false for an object or a list
// whose parts are compared. What is neither is always compared as a whole.
type Leaf func(path string, node any) (text string, ok bool)

// Leaves returns the texts of a tree of JSON values, as package json and Kubernetes'
// unstructured objects have them, by their paths, of which the first is root: parts of
// objects as root.name, and those of lists as root[0]. What is null is not there.
func Leaves(root string, tree any, leaf Leaf) map[string]string {
	out := map[string]string{}
	walk(out, root, tree, leaf)
	return out
}

func walk(out map[string]string, path string, node any, leaf Leaf) {
	if node == nil {
		return
	}
	text, ok := leaf(path, node)
	switch parts := node.(type) {
	case map[string]any:
		if !ok {
			for name, part := range parts {
				walk(out, path+"."+name, part, leaf)
			}
			return
		}
	case []any:
		if !ok {
			for i, part := range parts {
				walk(out, fmt.Sprintf("%s[%d]", path, i), part, leaf)
			}
			return
		}
	}
	if text != "" {
		out[path] = text
	}
}

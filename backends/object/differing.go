package object

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
)

// Differing adds the paths at which two JSON values differ.
func Differing(paths []string, path string, a, b any) []string {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			break
		}
		keys := slices.Sorted(maps.Keys(a))
		for key := range b {
			if _, both := a[key]; !both {
				keys = append(keys, key)
			}
		}
		for _, key := range keys {
			_, inA := a[key]
			_, inB := b[key]
			if inA != inB {
				paths = append(paths, path+pathOf(key))
				continue
			}
			paths = Differing(paths, path+pathOf(key), a[key], b[key])
		}
		return paths
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			break
		}
		for i := range a {
			paths = Differing(paths, fmt.Sprintf("%s[%d]", path, i), a[i], b[i])
		}
		return paths
	}
	if !reflect.DeepEqual(a, b) {
		paths = append(paths, path)
	}
	return paths
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// pathOf is a key as part of a path.
func pathOf(key string) string {
	if plainKey.MatchString(key) {
		return "." + key
	}
	return "[" + key + "]"
}

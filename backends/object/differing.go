package object

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxPath is the longest path that is written, in bytes: keys are of any length.
const maxPath = 256

// Differences collects the paths at which JSON values differ. The zero value counts them and names none.
type Differences struct {
	// Most is how many paths are named.
	Most int
	// Paths are the first of them, in the order in which they were found; a long one is cut.
	Paths []string
	// Number is how many there are.
	Number int
}

// Add adds the paths below path at which two values differ, in the order of their keys.
func (d *Differences) Add(path string, a, b any) { d.walk(&location{text: path}, a, b) }

// location is what holds a value. Paths are written only for what is named: that of each member of an object
// with a long key would be as long as the key.
type location struct {
	in   *location // nil: the value that was given, whose path text is
	text string    // a key, or an index as text
	item bool      // of a list
}

func (d *Differences) walk(at *location, a, b any) {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			d.members(at, a, b)
			return
		}
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) {
			for i := range a {
				d.walk(&location{in: at, text: strconv.Itoa(i), item: true}, a[i], b[i])
			}
			return
		}
	}
	if !reflect.DeepEqual(a, b) {
		d.found(at)
	}
}

func (d *Differences) members(at *location, a, b map[string]any) {
	keys := slices.Collect(maps.Keys(a))
	for key := range b {
		if _, both := a[key]; !both {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		inA, isInA := a[key]
		inB, isInB := b[key]
		member := &location{in: at, text: key}
		if isInA != isInB {
			d.found(member)
		} else {
			d.walk(member, inA, inB)
		}
	}
}

func (d *Differences) found(at *location) {
	if d.Number++; d.Number <= d.Most {
		d.Paths = append(d.Paths, at.path())
	}
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// path is at most maxPath bytes and an ellipsis.
func (l *location) path() string {
	var places []*location
	for at := l; at != nil; at = at.in {
		places = append(places, at)
	}
	var path strings.Builder
	cut := false
	for _, at := range slices.Backward(places) {
		text := at.text
		if room := maxPath - path.Len(); len(text) > room {
			text, cut = strings.ToValidUTF8(text[:max(room, 0)], ""), true
		}
		switch {
		case at.in == nil:
			path.WriteString(text)
		case at.item || !plainKey.MatchString(text):
			path.WriteString("[" + text + "]")
		default:
			path.WriteString("." + text)
		}
		if cut {
			path.WriteString("…")
			break
		}
	}
	return path.String()
}

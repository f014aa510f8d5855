package ownership

import (
	"maps"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

// items are the items of one of the ConfigMaps, by an id that fits into a record: a
// data key, or the hash of a line.
type items map[string]string

func itemsOf(name string, data map[string]any) items {
	out := items{}
	if name != object.KnownHostsConfigMap {
		for key, value := range data {
			if s, ok := value.(string); ok {
				out[key] = s
			}
		}
		return out
	}
	for _, line := range linesOf(data) {
		if id := lineID(line); id != "" {
			out[id] = strings.TrimSpace(line)
		}
	}
	return out
}

// lineID is the id of a line of known hosts; empty for one that says nothing.
func lineID(line string) string {
	line = strings.TrimSpace(line)
	if line == "" || strings.HasPrefix(line, "#") {
		return ""
	}
	return stream.HashOf([]byte(line)).String()[:16]
}

// change takes items away from o, and puts others in. What is not named stays, down
// to comments and the order of lines.
func (i items) change(o object.Object, away []string) {
	data := o.Child("data")
	if o.Key.Name != object.KnownHostsConfigMap {
		for _, id := range away {
			delete(data, id)
		}
		for id, value := range i {
			o.Ensure("data")[id] = value
		}
		return
	}
	gone := map[string]bool{}
	for _, id := range away {
		gone[id] = true
	}
	lines := slices.DeleteFunc(linesOf(data), func(line string) bool { return gone[lineID(line)] })
	there := itemsOf(object.KnownHostsConfigMap, map[string]any{object.KnownHostsKey: strings.Join(lines, "\n")})
	for _, id := range slices.Sorted(maps.Keys(i)) {
		if _, found := there[id]; !found {
			lines = append(lines, i[id])
		}
	}
	text := strings.Join(lines, "\n")
	if text != "" {
		text += "\n"
	}
	if text != object.StringAt(data, object.KnownHostsKey) {
		o.Ensure("data")[object.KnownHostsKey] = text
	}
}

func linesOf(data map[string]any) []string {
	text := strings.TrimSuffix(object.StringAt(data, object.KnownHostsKey), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

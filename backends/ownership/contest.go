package ownership

import (
	"fmt"
	"strings"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// Undone names the fields of a copy that someone had changed since the version of e
// was written, and that were put back in after; empty for none. It names no values.
func (r Rules) Undone(e stream.Event, before *object.Object, after object.Object) string {
	if before == nil || e.Verb != stream.Apply || !link.Contestable(e.Key.Collection) || !r.IsCopy(*before) {
		return ""
	}
	if before.Meta("resourceVersion") == after.Meta("resourceVersion") {
		return "" // nothing was changed: the cache showed it by another definition
	}
	was, _ := record.Of(*before)
	is, _ := record.Of(after)
	if r.Wants(e.Key.Collection, *before) {
		return "" // it was given what it lacked
	}
	if was.Hash != e.Version.Hash.String() || is.Hash != was.Hash ||
		before.Annotation(object.SourceUIDKey) != e.Version.SourceUID || was.Leaving || was.Releasing {
		return "" // another version than the one that was there
	}
	had, hadErr := object.Decode(owned(*before, was))
	has, hasErr := object.Decode(owned(after, is))
	if hadErr != nil || hasErr != nil {
		return "" // owned encodes what decodes
	}
	undone := object.Differences{Most: maxPaths}
	for _, p := range ownedPaths {
		undone.Add(p.path, had[p.field], has[p.field])
	}
	if rest := undone.Number - len(undone.Paths); rest > 0 {
		undone.Paths = append(undone.Paths, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(undone.Paths, ", ")
}

// maxPaths is how many paths are named.
const maxPaths = 5

// ownedPaths are where the fields of what owned returns are in an object, in order.
var ownedPaths = []struct{ field, path string }{
	{"data", "data"}, {"annotations", "metadata.annotations"}, {"cascade", "metadata.finalizers"},
	{"labels", "metadata.labels"}, {"spec", "spec"},
}

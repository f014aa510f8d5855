package appspec

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends/object"
)

// The fields of an operation, and of its sync, by which it does no more than bring what
// the Application's own spec says. Any other one, of a later Argo CD say, may bring
// something else.
var (
	operationFields = []string{"sync", "initiatedBy", "info", "retry"}
	syncFields      = []string{
		"revision", "revisions", "source", "sources", "resources", "prune", "dryRun", "syncStrategy", "syncOptions",
		"autoHealAttemptsCount",
	}
)

// Beyond is what of an operation is not the Application's own, in words; empty for none.
// onlyRevision says that it is a revision and nothing else.
func Beyond(operation map[string]any, o object.Object) (what string, onlyRevision bool) {
	for name := range operation {
		if !slices.Contains(operationFields, name) && IsSet(operation[name]) {
			return fmt.Sprintf("a field %q", name), false
		}
	}
	sync, _ := operation["sync"].(map[string]any)
	if IsSet(sync["manifests"]) {
		return "manifests of its own", false
	}
	for name := range sync {
		if !slices.Contains(syncFields, name) && IsSet(sync[name]) {
			return fmt.Sprintf("a field %q", "sync."+name), false
		}
	}
	own, several := sourcesOf(o.Child("spec"))
	if !sameSources(sync, own, several) {
		return "sources other than those of the Application", false
	}
	revisions, ok := revisionsOf(sync, len(own), several)
	if !ok {
		return "revisions that are not those of the Application's sources", false
	}
	shown := resolved(o, own, several)
	for i, revision := range revisions {
		if revision != "" && !targets(own[i], revision) && (i >= len(shown) || shown[i] != revision) {
			return fmt.Sprintf("revision %q, which the spoke's Argo CD does not show for the Application", revision), true
		}
	}
	return "", false
}

// sourcesOf are the sources from which Argo CD syncs an Application with that spec, and
// whether it takes them for several, as it does a list of one.
func sourcesOf(spec map[string]any) (sources []map[string]any, several bool) {
	if hydrator, ok := spec["sourceHydrator"].(map[string]any); ok {
		dry, _ := hydrator["drySource"].(map[string]any)
		synced, _ := hydrator["syncSource"].(map[string]any)
		repo := object.StringAt(synced, "repoURL")
		if repo == "" {
			repo = object.StringAt(dry, "repoURL")
		}
		return []map[string]any{{"repoURL": repo, "path": object.StringAt(synced, "path"),
			"targetRevision": object.StringAt(synced, "targetBranch")}}, false
	}
	for _, s := range object.ListAt(spec, "sources") {
		source, _ := s.(map[string]any)
		sources = append(sources, source)
	}
	if len(sources) > 0 {
		return sources, true
	}
	source, _ := spec["source"].(map[string]any)
	return []map[string]any{source}, false
}

// sameSources reports whether in, a sync operation or what a status was compared to,
// names these sources, or none.
func sameSources(in map[string]any, own []map[string]any, several bool) bool {
	list := object.ListAt(in, "sources")
	if !several {
		return len(list) == 0 && (in["source"] == nil || SameSource(in["source"], own[0]))
	}
	// Beside a list Argo CD takes no heed of the one; argocd-server writes an empty one.
	if len(list) == 0 {
		return in["source"] == nil
	}
	return IsZero(sourceForm(in["source"])) &&
		slices.EqualFunc(list, own, func(a any, b map[string]any) bool { return SameSource(a, b) })
}

// SameSource reports whether Argo CD takes two sources of an Application, as decoded JSON,
// for the same: what is empty counts for nothing where its types leave it out.
func SameSource(a, b any) bool {
	return bytes.Equal(object.Encode(sourceForm(a)), object.Encode(sourceForm(b)))
}

// verbatim are the fields of a source in which to say nothing is to say something: keys
// that people name, and what Argo CD has pointers to.
var verbatim = []string{"valuesObject", "commonLabels", "commonAnnotations", "options", "map", "array", "string"}

// present are those that count by being there, and are in their normal form otherwise.
var present = []string{"plugin", "target"}

// sourceForm is the form of a source in which two are equal that Argo CD takes for the
// same: its normal form, without what its types leave out when they are written.
func sourceForm(source any) any {
	m, ok := object.Clone(source).(map[string]any)
	if !ok {
		return nil
	}
	normalizeSource(m)
	return shortForm(m)
}

func shortForm(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, value := range v {
			switch {
			case value == nil, name == "count" && string(object.Encode(value)) == "0":
			case slices.Contains(verbatim, name):
				if IsSet(value) || !slices.Contains([]string{"commonLabels", "commonAnnotations", "options"}, name) {
					out[name] = value
				}
			default:
				if short := shortForm(value); IsSet(short) || slices.Contains(present, name) {
					out[name] = short
				}
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = shortForm(value)
		}
		return out
	}
	return v
}

// revisionsOf are the revisions that an operation names for that many sources; false when
// they are not one for each.
func revisionsOf(sync map[string]any, sources int, several bool) ([]string, bool) {
	list := object.ListAt(sync, "revisions")
	switch revision := object.StringAt(sync, "revision"); {
	case !several:
		return []string{revision}, len(list) == 0
	case revision != "" || len(list) != 0 && len(list) != sources:
		return nil, false
	}
	revisions := make([]string, len(list))
	for i, revision := range list {
		revisions[i], _ = revision.(string)
	}
	return revisions, true
}

// targets reports whether a revision is the one that a source names itself.
func targets(source map[string]any, revision string) bool {
	target := object.StringAt(source, "targetRevision")
	if target == "" && object.StringAt(source, "chart") == "" &&
		!strings.HasPrefix(object.StringAt(source, "repoURL"), "oci://") {
		target = "HEAD"
	}
	return target == revision
}

// resolved are the revisions that the spoke's controller shows for these sources; nil
// while it shows others', or none.
func resolved(o object.Object, own []map[string]any, several bool) []string {
	shown, compared := o.Child("status", "sync"), o.Child("status", "sync", "comparedTo")
	// Argo CD writes an empty source beside several, so both are there.
	if compared == nil || several && len(object.ListAt(compared, "sources")) == 0 ||
		!several && compared["source"] == nil ||
		!sameSources(compared, own, several) {
		return nil
	}
	revisions, ok := revisionsOf(shown, len(own), several)
	if !ok || len(revisions) == 0 {
		return nil
	}
	return revisions
}

package ownership

import (
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends/appspec"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/stream"
)

// An API server drops what its definition of a kind does not know, and says nothing:
// the Argo CD of one side may be older than that of the other. What is dropped may
// restrain the rest, as "enabled: false" does with automated sync, so it is not left
// to the API server: what it knows is read from the definition, what it would drop is
// left out here, by rule and told by path, and the write is one that fails where
// something would be dropped all the same. A kind whose definition may not be read is
// written so, too: then nothing is left out.

// automatedPath is where an Application says what happens without a person.
const automatedPath = "spec.syncPolicy.automated"

// prune takes out of a spec what the API server of this side does not keep, and returns
// the paths, sorted. It refuses what must not be stored without them: an Application
// of whose automated sync something would go, be it false, and an AppProject of which
// anything would that is not empty, for all that it has restrains or names what is
// restrained.
func prune(r Rules, kind stream.Kind, spec map[string]any) ([]string, *stream.Refusal) {
	known := r.Schemas[kind]
	if known == nil {
		return nil, nil
	}
	var paths []string
	for _, d := range known.Prune(map[string]any{"spec": spec}) {
		if restrains(kind, d) {
			return nil, stream.Invalid("the API server of the " + r.Side.String() + " does not know " + d.Path() +
				", and without it the rest would allow more; its Argo CD is too old for this " + string(kind))
		}
		paths = withFirst(paths, d.Path())
	}
	return paths, nil
}

// withFirst adds a path to those that come first, of which it keeps as many as are told.
func withFirst(paths []string, path string) []string {
	i, there := slices.BinarySearch(paths, path)
	if there || i == stream.MaxDropped {
		return paths
	}
	paths = slices.Insert(paths, i, path)
	return paths[:min(len(paths), stream.MaxDropped)]
}

func restrains(kind stream.Kind, d schema.Dropped) bool {
	if kind == stream.AppProject {
		return appspec.IsSet(d.Value)
	}
	return within(d.Path(), automatedPath) || within(automatedPath, d.Path())
}

// within reports whether a path is another one, or leads through it.
func within(path, other string) bool {
	return path == other || strings.HasPrefix(path, other+".")
}

// pruneOperation takes out of an operation what is empty and not known to the API server
// of this side. An operation is run as it is given, or not at all.
func pruneOperation(r Rules, operation map[string]any) *stream.Refusal {
	known := r.Schemas[stream.Application]
	if known == nil {
		return nil
	}
	for _, d := range known.Prune(map[string]any{"operation": operation}) {
		if appspec.IsSet(d.Value) {
			return stream.Invalid("the API server of the spoke does not know " + d.Path() +
				"; its Argo CD is too old for this operation")
		}
	}
	return nil
}

// pruneStatus takes out of a status what the API server of this side does not keep.
func pruneStatus(r Rules, status map[string]any) {
	if known := r.Schemas[stream.Application]; known != nil {
		known.Prune(map[string]any{"status": status})
	}
}

// shorten notes on a copy what was left out of it, by the API server and by the policy.
func shorten(r Rules, o object.Object, dropped, missing []string) {
	if len(dropped)+len(missing) == 0 {
		return
	}
	rec, _ := record.Of(o)
	if len(dropped) > 0 {
		rec.Dropped, rec.Schema = dropped, r.Schemas[o.Key.Kind].ID()
	}
	recordMissing(r, &rec, missing)
	stamp(o, rec)
}

// recordMissing notes in the record of a project what the policy left out of it.
func recordMissing(r Rules, rec *record.Record, missing []string) {
	if len(missing) == 0 {
		return
	}
	all := append(slices.Clone(rec.Dropped), missing...)
	slices.Sort(all)
	all = slices.Compact(all)
	rec.Dropped, rec.Bounds = all[:min(len(all), stream.MaxDropped)], r.Policy.ID()
}

package mirror

import (
	"slices"
	"strings"

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

// fit takes out of a spec what the API server of this side does not keep, and returns
// the paths, sorted. It refuses what must not be stored without them: an Application
// of whose automated sync something would go, be it false, and an AppProject of which
// anything would that is not empty, for all that it has restrains or names what is
// restrained.
func (r Rules) fit(kind stream.Kind, spec map[string]any) ([]string, *stream.Refusal) {
	known := r.Schemas[kind]
	if known == nil {
		return nil, nil
	}
	var paths []string
	for _, d := range known.Prune(map[string]any{"spec": spec}) {
		if restrains(kind, d) {
			return nil, invalid("the API server of the " + r.Side.String() + " does not know " + d.Path() +
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
		return isSet(d.Value)
	}
	return within(d.Path(), automatedPath) || within(automatedPath, d.Path())
}

// within reports whether a path is another one, or leads through it.
func within(path, other string) bool {
	return path == other || strings.HasPrefix(path, other+".")
}

// fitOperation takes out of an operation what is empty and not known to the API server
// of this side. An operation is run as it is given, or not at all.
func (r Rules) fitOperation(operation map[string]any) *stream.Refusal {
	known := r.Schemas[stream.Application]
	if known == nil {
		return nil
	}
	for _, d := range known.Prune(map[string]any{"operation": operation}) {
		if isSet(d.Value) {
			return invalid("the API server of the spoke does not know " + d.Path() + "; its Argo CD is too old for this operation")
		}
	}
	return nil
}

// fitStatus takes out of a status what the API server of this side does not keep.
func (r Rules) fitStatus(status map[string]any) {
	if known := r.Schemas[stream.Application]; known != nil {
		known.Prune(map[string]any{"status": status})
	}
}

// shorten notes on a copy what was left out of it, by the API server and by the policy.
func (r Rules) shorten(o object, dropped, missing []string) {
	if len(dropped)+len(missing) == 0 {
		return
	}
	rec, _ := recordOf(o)
	if len(dropped) > 0 {
		rec.Dropped, rec.Schema = dropped, r.Schemas[o.key.Kind].ID()
	}
	r.lack(&rec, missing)
	r.stamp(o, rec)
}

// dropped are the paths that are left out of the copy o, in the collection by which it
// was written.
func (r Rules) dropped(c stream.Collection, o object) []string {
	switch c {
	case stream.Applications, stream.AppProjects, stream.Children:
	default:
		return nil
	}
	if r.sources(c) || r.uidIn(c, o) == "" {
		return nil
	}
	rec, _ := recordOf(o)
	return rec.Dropped[:min(len(rec.Dropped), stream.MaxDropped)]
}

// regains reports whether something was left out of a copy that may fit by now.
func (r Rules) regains(o object, rec record) bool {
	if rec.Bounds != "" && rec.Bounds != r.Policy.id() {
		return true
	}
	known := r.Schemas[o.key.Kind]
	return len(rec.Dropped) > 0 && rec.Schema != "" && known != nil && known.ID() != rec.Schema
}

// wants reports whether a copy is to be sent again for a reason of this side: what was left
// out of it may fit by now, or it does not name this hub.
func (r Rules) wants(c stream.Collection, o object) bool {
	rec, _ := recordOf(o)
	return c != stream.Statuses && r.uidIn(c, o) != "" && (r.regains(o, rec) || r.marksOther(o))
}

// strictly are writes that fail where the API server would drop something.
func strictly(writes []Write) []Write {
	for i := range writes {
		writes[i].Strict = writes[i].Op == Create || writes[i].Op == Update
	}
	return writes
}

package mirror

import "github.com/argomesh/argomesh/stream"

// The values of mismatchPolicyKey: what becomes of the copy of an earlier
// Application when another one of its name, and so with another UID, takes its
// place. With upsert, the default, the copy is overwritten in place; with recreate
// it is released, its workloads left where they are, and made anew, so that
// nothing of the earlier one is left: no history, no status, no keys of others.
const policyRecreate = "recreate"

// recreates reports whether an event must not overwrite current but replace it.
// Only what we wrote ourselves is replaced: an object that was adopted stays where it
// is.
func (r Rules) recreates(e stream.Event, current object, annotations map[string]any) bool {
	rec, _ := recordOf(current)
	return rec.Adopted == "" && current.key.Kind == stream.Application && annotations[mismatchPolicyKey] == policyRecreate &&
		r.isCopy(current) && current.annotation(sourceUIDKey) != e.Version.SourceUID
}

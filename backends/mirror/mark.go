package mirror

import "github.com/argomesh/argomesh/stream"

// A mirror names its hub beside the record (hubKey), so that a policy of the API server can
// tell what of a cluster this hub keeps: two hubs may share one. Nobody compares the mark: it
// says nothing of whose a mirror is, and is in no hash.

// isOwnMirror reports whether o is a mirror of this hub's agent: of what an autonomous one
// has, or of a child application.
func (r Rules) isOwnMirror(o object) bool {
	return r.Side == stream.Hub && (r.isChild(o) || r.Mode == stream.Autonomous && r.isCopy(o))
}

// unmarked reports whether a mirror names no hub, since an earlier release made it. One that
// names another is left to the next write: two hubs that keep mirrors of one name would
// otherwise take the mark from each other without an end.
func (r Rules) unmarked(o object) bool {
	return r.Hub != "" && o.annotation(hubKey) == "" && !o.deleting() && r.isOwnMirror(o)
}

// marksOther reports whether a mirror names another hub: the ConfigMap that identifies this
// one was made anew, or the mirror was another hub's.
func (r Rules) marksOther(o object) bool {
	mark := o.annotation(hubKey)
	return r.Hub != "" && mark != "" && mark != r.Hub && r.isOwnMirror(o)
}

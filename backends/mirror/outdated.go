package mirror

import (
	"fmt"

	"github.com/argomesh/argomesh/stream"
)

// outdated reports whether an event was read at the hub before what the spoke's
// object has, and says so (I2): an earlier process that still writes, or a cache
// that is behind, must not undo what is newer. Revisions of one kind are counted
// together, so an earlier object of the same name has a lower one too.
//
// It refuses for a while only. The source sends the newest it has, and what it
// reads once its cache has caught up is not lower: within one history the
// revision of an object that is there does not go back. In another history
// nothing is compared, and while the history is not known only by overtaken.
func (r Rules) outdated(e stream.Event, current *object) *stream.Refusal {
	if r.Side != stream.Spoke || r.HistoryID == "" || e.Revision == 0 || current == nil || !r.isCopy(*current) || !r.ofThisHub(*current) {
		return nil
	}
	rec, _ := recordOf(*current)
	if rec.History != r.HistoryID || e.Revision >= rec.Revision {
		return nil
	}
	return rec.outdates(e)
}

// outdates is the answer to an event that was read before what the object has.
func (rec record) outdates(e stream.Event) *stream.Refusal {
	return &stream.Refusal{
		Kind: stream.RefusalOutdated,
		Message: fmt.Sprintf("it was read at revision %d of the hub, and the spoke has what was read at revision %d",
			e.Revision, rec.Revision),
	}
}

// overtaken is outdated of a process that does not know the history, about an object that
// has changed since the event came. Another process wrote that: this one was frozen since,
// and has not found out yet that its connection is over. What was there already is no
// reason to refuse, since a restored hub counts its revisions anew.
func (w *writer) overtaken(e stream.Event, current *object) *stream.Refusal {
	r := w.task.rules
	if r.Side != stream.Spoke || r.HistoryID != "" || e.Verb != stream.Apply || e.Key.Collection == stream.Commands || e.Revision == 0 || current == nil ||
		w.current.ResourceVersion == w.task.seen[e.Key] || !r.isCopy(*current) || !r.ofThisHub(*current) {
		return nil
	}
	rec, _ := recordOf(*current)
	if rec.History == "" || rec.Agent != r.Agent.String() || e.Revision >= rec.Revision {
		return nil
	}
	return rec.outdates(e)
}

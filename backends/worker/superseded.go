package worker

import (
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// superseded is outdated of a process that does not know the history, about an object that
// has changed since the event came. Another process wrote that: this one was frozen since,
// and has not found out yet that its connection is over. What was there already is no
// reason to refuse, since a restored hub counts its revisions again.
func (w *writer) superseded(e stream.Event, current *object.Object) *stream.Refusal {
	r := w.task.Rules
	if r.Side != stream.Spoke || r.HistoryID != "" || e.Verb != stream.Apply || e.Key.Collection == stream.Commands ||
		e.Revision == 0 || current == nil ||
		w.current.ResourceVersion == w.task.Seen[e.Key] || !r.IsCopy(*current) || !r.OfThisHub(*current) {
		return nil
	}
	rec, _ := record.Of(*current)
	if rec.History == "" || rec.Agent != r.Agent.String() || e.Revision >= rec.Revision {
		return nil
	}
	return rec.Outdates(e)
}

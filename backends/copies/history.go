package copies

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// Outdated reports whether an event was read at the hub before what the spoke's
// object has, and says so (I2): an earlier process that still writes, or a cache
// that is behind, must not undo what is newer. Revisions of one kind are counted
// together, so an earlier object of the same name has a lower one too.
//
// It refuses for a while only. The source sends the newest it has, and what it
// reads once its cache has caught up is not lower: within one history the
// revision of an object that is there does not go back. In another history
// nothing is compared, and while the history is not known only by worker's superseded.
func (m Marks) Outdated(e stream.Event, current *object.Object) *stream.Refusal {
	if m.Side != stream.Spoke || m.HistoryID == "" || e.Revision == 0 || current == nil || !m.IsCopy(*current) ||
		!m.OfThisHub(*current) {
		return nil
	}
	rec, _ := record.Of(*current)
	if rec.History != m.HistoryID || e.Revision >= rec.Revision {
		return nil
	}
	return rec.Outdates(e)
}

// CreatedAt is the record's Created of o, which is about to be written at that
// revision. Histories, and hubs, count their revisions each by itself: a copy that
// was made in an earlier history is older than all of the present one.
func (m Marks) CreatedAt(o object.Object, old record.Record, revision uint64) uint64 {
	switch {
	case old.Created == 0 || !m.IsCopy(o) || !m.OfThisHub(o):
		return revision
	case old.History != "" && m.HistoryID != "" && old.History != m.HistoryID:
		return 1
	}
	return old.Created
}

// HistoryOf is the record's History of o, which is about to be written: while the
// HistoryOf is not known a copy stays in the one that it was in.
func (m Marks) HistoryOf(o object.Object, old record.Record) string {
	if m.HistoryID == "" && m.IsCopy(o) && m.OfThisHub(o) {
		return old.History
	}
	return m.HistoryID
}

// SentToOther is the agent to which the command of an Application was sent before
// the Application became this one's; empty when it was not.
func (m Marks) SentToOther(o object.Object) string {
	to := operations.Info(operations.Of(o), object.AgentInfo)
	if !m.Divided() || !operations.Sent(o) || to == m.Agent.String() {
		return ""
	}
	return to
}

// SentAt is what a command that becomes free to be sent says of the Application on
// the spoke that it is for, so that another one of the same name does not run it
// again. o is the Application on the hub.
func (m Marks) SentAt(o object.Object) string {
	if m.Mode == stream.Autonomous {
		return m.SourceUID(o)
	}
	// The write is tested on the resourceVersion that it records.
	if m.HistoryID == "" {
		return o.Meta("resourceVersion")
	}
	return o.Meta("resourceVersion") + "@" + m.HistoryID
}

// CopyRecreated reports whether the Application on the spoke may be younger than the
// first sending of the command. The command became free to be sent when the hub
// knew of the copy, so a copy made from a later state of the hub is another one.
// States of different histories have no order, but what was made before the
// present history is older than a command of it. What was made while the history
// was not known may be of the present one; a command that was sent then is of none
// that could be told.
func (m Marks) CopyRecreated(o object.Object, operation map[string]any) bool {
	if m.Mode == stream.Autonomous {
		return operations.Info(operation, object.AfterInfo) != o.UID()
	}
	revision, history, _ := strings.Cut(operations.Info(operation, object.AfterInfo), "@")
	after, err := strconv.ParseUint(revision, 10, 64)
	rec, _ := record.Of(o)
	switch {
	case err != nil, rec.History != history && (history == "" || history != m.HistoryID):
		return true
	case rec.History != history && rec.History != "":
		return false
	}
	return rec.Created > after
}

// OtherThanDeleted says why a copy is not the one that an event wants to be deleted: it is of
// another object than the one that is gone, or of a later state of the hub than that in
// which its deletion was seen.
// An event that does not name what was deleted is about whatever there is.
func (m Marks) OtherThanDeleted(e stream.Event, current *object.Object) *stream.Refusal {
	if e.Deleted == "" || current == nil || !m.IsCopy(*current) {
		return nil
	}
	rec, _ := record.Of(*current)
	switch {
	case current.Annotation(object.SourceUIDKey) != e.Deleted:
		return &stream.Refusal{Kind: stream.RefusalOutdated,
			Message: "the object that was deleted is not the one of which this is a copy"}
	case e.Revision != 0 && m.HistoryID != "" && rec.History == m.HistoryID && rec.Revision > e.Revision:
		return &stream.Refusal{
			Kind: stream.RefusalOutdated,
			Message: fmt.Sprintf("it was deleted at revision %d, and this is a copy of what was read at revision %d", e.Revision,
				rec.Revision),
		}
	}
	return nil
}

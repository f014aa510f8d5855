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
// nothing is compared, and neither is anything while the history is not known.
func (r Rules) outdated(e stream.Event, current *object) *stream.Refusal {
	if r.Side != stream.Spoke || r.HistoryID == "" || e.Revision == 0 || current == nil || !r.isCopy(*current) || !r.ofThisHub(*current) {
		return nil
	}
	rec, _ := recordOf(*current)
	if rec.History != r.HistoryID || e.Revision >= rec.Revision {
		return nil
	}
	return &stream.Refusal{
		Kind: stream.RefusalOutdated,
		Message: fmt.Sprintf("it was read at revision %d of the hub, and the spoke has what was read at revision %d",
			e.Revision, rec.Revision),
	}
}

package link

import (
	"strconv"

	"github.com/argomesh/argomesh/stream"
)

// Content is what a source sends of one entry.
type Content struct {
	Version     stream.Version
	Leaving     bool
	Revision    uint64
	TraceParent string
	Data        []byte
}

// Load returns the newest content of an entry of a source; false when there is
// none.
type Load func(stream.EntryKey) (Content, bool)

// batches fills the window.
func (l *Link) batches(load Load) []stream.Message {
	var out []stream.Message
	var batch stream.Batch
	size := 0
	absent := false // the batch holds a deletion
	cut := func() {
		if len(batch.Events) > 0 {
			if absent {
				batch.Absences = l.absences()
			}
			absent = false
			out = append(out, batch)
			batch, size = stream.Batch{}, 0
		}
	}
	for _, s := range l.sources {
		for s.ready && !s.paused && l.inFlight < l.cfg.Window && (l.inFlight == 0 || l.bytes < l.cfg.WindowBytes) {
			key, e := s.pop()
			if e == nil {
				break
			}
			content, present := load(key)
			if !present {
				content = Content{TraceParent: content.TraceParent}
			}
			s.desire(key, l.sharing(key, content.Version), content.Leaving) // does not queue it again while queued is set
			e.queued = false
			if e.satisfied() || s.leavingOnly && !e.leaving {
				continue
			}
			if l.withholds(s, e) {
				e.withheld = true
				continue
			}
			l.events++
			event := stream.Event{
				ID: l.id + "." + strconv.FormatUint(l.events, 36), Key: key, Verb: stream.Delete,
				TraceParent: content.TraceParent,
			}
			if present {
				event.Verb = stream.Apply
				event.Version, event.Revision, event.Data = content.Version, content.Revision, content.Data
			}
			if size > 0 && size+len(event.Data) > maxBatchBytes || len(batch.Events) == maxBatchEvents {
				cut()
			}
			absent = absent || !present
			s.sent(e, event)
			l.flights[event.ID] = key
			l.inFlight++
			l.bytes += len(event.Data)
			batch.Events = append(batch.Events, event)
			size += len(event.Data)
		}
	}
	cut()
	return out
}

package link

import (
	"fmt"
	"strconv"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// Content is what a source sends of one entry.
type Content struct {
	Version     stream.Version
	Leaving     bool
	Revision    uint64
	TraceParent string
	Data        []byte
	// GiveUp is what the event says of an entry that is not there: see stream.Event.
	GiveUp bool
	// Unproven says that it is not to be sent yet: the caller does not know whether it is
	// still there. It is asked for again after Proven or Judged.
	Unproven bool
}

// Proven says that the content of an entry may be asked for again that was Unproven.
type Proven struct{ Key stream.EntryKey }

func (Proven) input() {}

// Load returns the newest content of an entry of a source; false when there is
// none.
type Load func(stream.EntryKey) (Content, bool)

// batches fills the window.
func (l *Link) batches(now time.Time, load Load) []stream.Message {
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
				content = Content{TraceParent: content.TraceParent, GiveUp: content.GiveUp}
			}
			s.desire(key, l.sharing(key, content.Version), content.Leaving) // does not queue it again while queued is set
			e.queued = false
			if e.satisfied() || s.leavingOnly && !e.leaving && !e.accepted {
				continue
			}
			if content.Unproven || l.withholds(s, key, e) || !present && l.doubts(s, key) {
				e.withheld = true
				continue
			}
			if len(content.Data) > stream.MaxDataBytes {
				s.keep(now, key, e, len(content.Data))
				continue
			}
			l.events++
			event := stream.Event{
				ID: l.id + "." + strconv.FormatUint(l.events, 36), Key: key, Verb: stream.Delete,
				TraceParent: content.TraceParent, GiveUp: content.GiveUp,
			}
			if d, fact := l.fact(s, key, e); fact {
				event.Deleted, event.Revision = d.uid, d.revision
			} else if guarded(s.collection) {
				event.Deleted = e.held().SourceUID
			}
			if present {
				event.Verb, event.Deleted = stream.Apply, ""
				event.Version, event.Revision, event.Data, event.GiveUp = content.Version, content.Revision, content.Data, false
			}
			if size > 0 && size+len(event.Data) > maxBatchBytes || len(batch.Events) == stream.MaxEvents {
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

// keep parks what is too long to be sent as if the sink had refused it: its API server
// would.
func (s *source) keep(now time.Time, key stream.EntryKey, e *entry, bytes int) {
	p := e.pend()
	p.refusal = &stream.Refusal{
		Kind:    stream.RefusalInvalid,
		Message: fmt.Sprintf("the content has %d bytes, and an API server takes %d at most", bytes, stream.MaxDataBytes),
	}
	if p.retry.IsZero() {
		s.park(now, key, e)
	}
	s.settle(key, e)
}

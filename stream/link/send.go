package link

import (
	"fmt"
	"strconv"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// window is what was sent and is not answered.
type window struct {
	events   uint64 // sent, for their ids
	inFlight int
	bytes    int
	flights  map[string]stream.EntryKey // by the id of the event
}

// id is that of the next event on a connection.
func (w *window) id(connection string) string {
	w.events++
	return connection + "." + strconv.FormatUint(w.events, 36)
}

// hasRoom reports whether another event may be sent.
func (w *window) hasRoom(cfg Config) bool {
	return w.inFlight < cfg.Window && (w.inFlight == 0 || w.bytes < cfg.WindowBytes)
}

// fly notes that an event was sent.
func (w *window) fly(event stream.Event) {
	w.flights[event.ID] = event.Key
	w.inFlight++
	w.bytes += len(event.Data)
}

// batches fills the window.
func (l *Link) batches(now time.Time, load Load) []stream.Message {
	b := batcher{absences: l.guard.absences}
	for _, s := range l.ends.sources {
		for s.phase == phaseReady && s.waits != PauseAll && l.window.hasRoom(l.cfg) {
			key, e := s.agenda.pop()
			if e == nil {
				break
			}
			content, present := load(key)
			if !present {
				content = Content{TraceParent: content.TraceParent, GiveUp: content.GiveUp}
			}
			s.desire(key, l.ends.sharing(key, content.Version), content.Leaving) // does not queue it again while queued is set
			e.queued = false
			switch {
			case e.satisfied() || s.waits == PauseChanges && !e.leaving && !e.accepted():
			case content.Unproven || l.guard.withholds(s, key, e) || !present && l.guard.mustVerify(s, key):
				e.withheld = true
			case len(content.Data) > stream.MaxDataBytes:
				s.parkTooLong(now, key, e, len(content.Data))
			default:
				event := l.event(s, key, e, content, present)
				s.sent(e, event)
				l.window.fly(event)
				b.add(event)
			}
		}
	}
	b.cut()
	return b.out
}

// event is what tells the peer of an entry; present says that there is content.
func (l *Link) event(s *source, key stream.EntryKey, e *entry, content Content, present bool) stream.Event {
	event := stream.Event{
		ID: l.window.id(l.conn.id), Key: key, Verb: stream.Delete,
		TraceParent: content.TraceParent, GiveUp: content.GiveUp,
	}
	if present {
		event.Verb, event.GiveUp = stream.Apply, false
		event.Version, event.Revision, event.Data = content.Version, content.Revision, content.Data
		return event
	}
	if d, fact := l.guard.fact(s, key, e); fact {
		event.Deleted, event.Revision = d.uid, d.revision
	} else if s.collection.Desired() {
		event.Deleted = e.stored().SourceUID
	}
	return event
}

// batcher makes batches of events.
type batcher struct {
	absences func() []stream.Absence
	out      []stream.Message
	batch    stream.Batch
	size     int
	absent   bool // the batch holds a deletion
}

func (b *batcher) add(event stream.Event) {
	if b.size > 0 && b.size+len(event.Data) > maxBatchBytes || len(b.batch.Events) == stream.MaxEvents {
		b.cut()
	}
	b.absent = b.absent || event.Verb == stream.Delete
	b.batch.Events = append(b.batch.Events, event)
	b.size += len(event.Data)
}

// cut ends a batch, if there is something in it.
func (b *batcher) cut() {
	if len(b.batch.Events) == 0 {
		return
	}
	if b.absent {
		b.batch.Absences = b.absences()
	}
	b.out = append(b.out, b.batch)
	b.batch, b.size, b.absent = stream.Batch{}, 0, false
}

// parkTooLong parks what is too long to be sent as if the sink had refused it: its API server
// would.
func (s *source) parkTooLong(now time.Time, key stream.EntryKey, e *entry, bytes int) {
	p := e.ensurePending()
	p.refusal = &stream.Refusal{
		Kind:    stream.RefusalInvalid,
		Message: fmt.Sprintf("the content has %d bytes, and an API server takes %d at most", bytes, stream.MaxDataBytes),
	}
	if p.retry.IsZero() {
		s.agenda.park(now, key, e)
	}
	s.enqueue(key, e)
}

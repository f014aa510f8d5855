package worker

import (
	"errors"

	"go.opentelemetry.io/otel/trace"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/stream"
)

// Task is the work on one object, given to a worker.
type Task struct {
	Key     stream.ResourceKey
	Rules   ownership.Rules
	Current *backends.Object // nil for none
	Parsed  *object.Object   // Current, if someone decoded it
	Events  map[stream.EntryKey]stream.Event
	Seen    map[stream.EntryKey]string // resourceVersion of the object when that came; empty for none
	Update  bool
	State   ownership.LinkState
	Verify  bool
	Asked   operations.Requests
	Taken   operations.TakenCommand
	Room    bounds.Room
	// Withdrawn and Detached are closed when the authority of the connection, or the connection,
	// has ended. Nothing more is begun of the events when one of
	// them is closed; of one of them, when its channel in Newer is.
	Withdrawn, Detached <-chan struct{}
	Newer               map[stream.EntryKey]chan struct{} // closed when a newer event of the entry is there
}

// obsolete says why nothing more is to be begun of an event; empty while something is.
// A worker that meets conflicts asks before each attempt: what it was told long ago
// must not come about after what was told since, on this connection or a later one.
func (t Task) obsolete(key stream.EntryKey) string {
	switch {
	case Closed(t.Withdrawn), Closed(t.Detached):
		return "the connection has ended"
	case Closed(t.Newer[key]):
		return "a newer version of the entry came"
	default:
		return ""
	}
}

// Outcome is what became of a task.
type Outcome struct {
	Key     stream.ResourceKey
	Results []Result
	Known   bool             // the API server told what the object is now
	Object  *backends.Object // as far as known; nil when it is gone
	Parsed  *object.Object   // Object, if someone decoded it
	UID     string
	Cause   trace.SpanContext
	Failed  bool // upkeep was needed and not done
	Paid    Paid // what was written
	// Schemas are those by which it was planned.
	Schemas map[stream.Kind]*schema.Schema
}

// Result is what became of one event.
type Result struct {
	Event  stream.Event
	Stored stream.Version
	Reply  *ownership.Reply // nil when there is none to keep
	// Implied says that the object tells by itself what a Reply would: one of before
	// is obsolete.
	Implied bool
	Refusal *stream.Refusal
	Awaits  string // the AppProject for which it was refused; empty for none
	Undone  string // stream.Result's
	// Dropped are the paths that the API server does not keep of what is stored.
	Dropped []string
	Wanted  bool // Rules.Wants of what is stored
}

// Paid is what a worker wrote.
type Paid struct{ Writes, Bytes int }

// wrote counts a write, and its object as the API server answered it; nil for none.
func (p *Paid) wrote(o *backends.Object) {
	p.Writes++
	if o != nil {
		p.Bytes += o.Size()
	}
}

// wroteOther counts a write of an object beside the one that is worked on.
func (p *Paid) wroteOther(w ownership.Write) {
	p.Writes++
	p.Bytes += object.StoredBytes(w.Raw)
}

// failed counts a write that the API server did not make, as far as we know. One that it refused costs what it
// would have cost, since the API server has read it all the same, and the peer can send it again.
func (p *Paid) failed(w ownership.Write, err error) {
	p.Writes++
	if !errors.Is(err, stream.ErrConflict) && !errors.Is(err, stream.ErrNotFound) {
		p.Bytes += object.StoredBytes(w.Raw)
	}
}

// Closed reports whether a channel is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

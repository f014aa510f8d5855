package worker

import (
	"bytes"
	"sync"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// When Argo CD has deleted the workloads of an Application it takes the cascade finalizer
// away, and then goes on with the delete hooks, if there are any: so the last state of a
// copy with hooks is one without cascade finalizer. One that is gone from another state
// was not deleted as it was meant to be. The same holds of one whose AppProject permitted
// none of its resources, since Argo CD deletes only what is permitted.
//
// A deleted copy cannot be read any more. The spoke takes its last state from the watch's
// delete event and keeps it in memory while it runs. It reports that to the hub, which keeps
// the condition. A deletion that happened while the agent was not watching counts as done: else
// a person would have to look at each deletion that ended while an agent was restarted.

// Ends remembers how copies of a spoke ended, if not as they were meant to. Its methods may be
// called concurrently.
type Ends struct {
	cfg   EndsConfig
	mu    sync.Mutex                // guards what follows
	known map[string]stream.Refusal // by the UID of the source's object
}

// EndsConfig holds what Ends need. All of it is required.
type EndsConfig struct {
	Store backends.Store
	// Namespace is that of the spoke's Argo CD.
	Namespace string
	// Lost is told of an end for which there was no room.
	Lost func()
	Log  zerolog.Logger
}

// NewEnds returns Ends that know none.
func NewEnds(cfg EndsConfig) *Ends { return &Ends{cfg: cfg, known: map[string]stream.Refusal{}} }

// maxEnds bounds what is remembered. There are more only if someone takes the finalizers
// of a great many copies away. Of one beyond nothing is told to the hub, and it is counted.
const maxEnds = 1 << 14

// See takes what a watch said of the end of an object. It does not block.
func (e *Ends) See(d backends.Deletion) {
	if d.Last.Key.Kind != stream.Application || !bytes.Contains(d.Last.Raw, []byte("deletionTimestamp")) {
		return
	}
	last, err := object.Parse(d.Last)
	if err != nil {
		return
	}
	end := ownership.Uncascaded(last, projectNamed(e.cfg.Store, e.cfg.Namespace, object.ProjectOf(last.Child("spec"))))
	if end == nil {
		return
	}
	e.cfg.Log.Warn().Stringer("resource", last.Key).Str("reason", end.Message).
		Msg("Application is gone, but its workloads may still be there")
	if !e.add(last.Annotation(object.SourceUIDKey), *end) {
		e.cfg.Lost()
	}
}

// add remembers how the copy of a source's object ended. It reports whether there was
// room.
func (e *Ends) add(uid string, end stream.Refusal) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, known := e.known[uid]; !known && len(e.known) == maxEnds {
		return false
	}
	e.known[uid] = end
	return true
}

// Answer is the answer to a leaving event of whose copy nothing is left; nil when it went
// as it should.
func (e *Ends) Answer(key stream.ResourceKey, event stream.Event) *stream.Refusal {
	if stored, found := e.cfg.Store.Get(key); found {
		if o, err := object.Parse(stored); err == nil && record.Has(o) &&
			o.Annotation(object.SourceUIDKey) == event.Version.SourceUID {
			return &ownership.EndUnknown
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if end, known := e.known[event.Version.SourceUID]; known {
		return &end
	}
	return nil
}

// projectNamed is the AppProject of that name; nil when there is none.
func projectNamed(store backends.Store, namespace, name string) *object.Object {
	stored, found := store.Get(stream.ResourceKey{Kind: stream.AppProject, Namespace: namespace, Name: name})
	if !found {
		return nil
	}
	project, err := object.Parse(stored)
	if err != nil {
		return nil
	}
	return &project
}

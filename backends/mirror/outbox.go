package mirror

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/statuses"
	"github.com/argomesh/argomesh/backends/worker"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// outbox has what is about to be sent: its content, the traces that it belongs to, and the
// statuses that may wait.
type outbox struct {
	*shared
	// contentCache is content of what is about to be sent, and cachedBytes the size of its data.
	contentCache  map[stream.EntryKey]cachedContent
	cachedBytes   int
	sentTraces    map[stream.EntryKey]string // trace parents of what is sent
	appliedTraces map[stream.ResourceKey]effect
	// statusDigests are what was last told of statuses, delayed the entries of which a newer
	// one is held back, until delayEnd.
	statusDigests map[stream.EntryKey]statuses.StatusDigest
	delayed       []stream.EntryKey
	delayEnd      time.Time
}

// traceCause starts the trace of a change, or goes on with the one that made it.
func (ou *outbox) traceCause(entry stream.EntryKey, key stream.ResourceKey) {
	var parent trace.SpanContext
	if e, ok := ou.appliedTraces[key]; ok && time.Since(e.at) < traceTime {
		parent = e.context.WithRemote(true)
	}
	_, span := ou.env.cfg.Tracer.Start(worker.Carrying(parent), "mirror.observe", trace.WithAttributes(
		attribute.String("argomesh.resource", entry.String()), attribute.Stringer("argomesh.agent", ou.rules.Agent)))
	span.End()
	if text := worker.TraceParent(span.SpanContext()); text != "" {
		ou.sentTraces[entry] = text
	}
}

// cachedContent is the content of an entry that is about to be sent, so that it is not made
// twice.
type cachedContent struct {
	object  string // resourceVersion of the object it is of
	content link.Content
}

// What is kept of content between the look at an object and its being sent. More
// is made again.
const (
	maxCached      = 1024
	maxCachedBytes = 4 << 20
)

// put keeps the content of an entry that changed, if there is room.
func (ou *outbox) put(entry stream.EntryKey, current *object.Object, content link.Content) {
	ou.drop(entry)
	if ou.session == nil || current == nil || content.Data == nil ||
		len(ou.contentCache) == maxCached || ou.cachedBytes+len(content.Data) > maxCachedBytes {
		return
	}
	ou.contentCache[entry] = cachedContent{object: current.Meta("resourceVersion"), content: content}
	ou.cachedBytes += len(content.Data)
}

func (ou *outbox) drop(entry stream.EntryKey) {
	if m, ok := ou.contentCache[entry]; ok {
		ou.cachedBytes -= len(m.content.Data)
		delete(ou.contentCache, entry)
	}
}

// dropAll forgets all content.
func (ou *outbox) dropAll() {
	clear(ou.contentCache)
	ou.cachedBytes = 0
}

// get returns what is kept of an entry, once, unless its object has changed.
func (ou *outbox) get(entry stream.EntryKey, key stream.ResourceKey) (link.Content, bool) {
	m, kept := ou.contentCache[entry]
	if !kept {
		return link.Content{}, false
	}
	ou.drop(entry)
	o, ok := ou.view.Newest(key)
	return m.content, ok && o.ResourceVersion == m.object
}

// effect remembers which trace last changed an object.
type effect struct {
	context trace.SpanContext
	at      time.Time
}

// delay reports whether content, which is of current, may wait, and then sees to it that the entry is
// looked at again in time. What is told then is decided from the state of that
// moment. All that is held back leaves at once, in few batches.
func (ou *outbox) delay(entry stream.EntryKey, current *object.Object, content link.Content) bool {
	told := ou.link.Desired(entry)
	switch {
	case !statuses.CarriesStatus(entry.Collection) || ou.env.cfg.StatusDelay < 0:
		return false
	case content.Version.Absent():
		delete(ou.statusDigests, entry)
		return false
	}
	last, known := ou.statusDigests[entry]
	if known && told == content.Version {
		return false
	}
	next := ou.rules.StatusDigest(entry.Collection, *current, content)
	if !known || last.Content != told.Hash || !statuses.MayWait(last, next) {
		next.Delayed = last.Delayed
		ou.statusDigests[entry] = next
		return false
	}
	if statuses.Thinned(last, next) {
		ou.env.cfg.Metrics.Delayed.Inc()
		return true
	}
	if !last.Delayed {
		if len(ou.delayed) == 0 {
			ou.delayEnd = time.Now().Add(ou.env.cfg.StatusDelay)
			ou.scheduleLook(ou.delayEnd)
		}
		ou.delayed = append(ou.delayed, entry)
		last.Delayed = true
		ou.statusDigests[entry] = last
	}
	ou.env.cfg.Metrics.Delayed.Inc()
	return true
}

// updateStatusDigest notes what the link takes by itself of an entry: it may be newer than what
// it was told of.
func (ou *outbox) updateStatusDigest(entry stream.EntryKey, current *object.Object, content link.Content) {
	if last, known := ou.statusDigests[entry]; known && ou.link.Desired(entry) != content.Version {
		next := ou.rules.StatusDigest(entry.Collection, *current, content)
		next.Delayed = last.Delayed
		ou.statusDigests[entry] = next
	}
}

// flushDelayed tells what was held back for long enough.
func (ou *outbox) flushDelayed() {
	switch {
	case len(ou.delayed) == 0:
		return
	case time.Now().Before(ou.delayEnd):
		ou.scheduleLook(ou.delayEnd)
		return
	}
	entries := ou.delayed
	ou.delayed = nil
	for _, entry := range entries {
		delete(ou.statusDigests, entry) // without one nothing is held back
		if key, ok := ou.rules.Local(entry); ok {
			ou.observe(key)
		}
	}
}

// traceTime is how long after a change was applied an observation of the same
// object counts as its consequence in a trace.
const traceTime = 2 * time.Minute

package mirror

import (
	"maps"
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// statusDelay is how long a change of a status may wait that moves timestamps
// alone, if it is told at all: of one Application that is once in thinTime.
const statusDelay = 10 * time.Second

// pulse is what was last told of an entry that carries a status. Argo CD writes
// the whole status of each Application at every reconciliation, most of the time
// to say no more than when that was.
type pulse struct {
	content stream.Hash
	// rest is the hash of the source UID, and of the content less the timestamps of
	// reconciliation.
	rest stream.Hash
	// reconciled says that the status is that of a reconciliation later than the
	// end of the last operation.
	reconciled bool
	// at is when that reconciliation was, in seconds; zero when it does not say.
	at int64
	// waits says that the entry is among the quiet ones.
	waits bool
}

// carriesStatus reports whether the entries of c hold an Application's status.
func carriesStatus(c stream.Collection) bool {
	return c == stream.Statuses || c == stream.Children
}

// pulse is that of o, of which content is what is sent in c, a collection that
// carries a status.
func (r Rules) pulse(c stream.Collection, o object, content link.Content) pulse {
	status := maps.Clone(o.child("status"))
	operation, _ := status["operationState"].(map[string]any)
	reconciledAt := stringAt(status, "reconciledAt")
	delete(status, "reconciledAt")
	delete(status, "observedAt") // its predecessor, which Argo CD 3 still carries along
	timeless := object{key: o.key, fields: maps.Clone(o.fields)}
	timeless.fields["status"] = status
	rest, _ := r.Content(c, timeless, Requests{})
	at := int64(0)
	if t, says := reconciledTime(o); says {
		at = t.Unix()
	}
	return pulse{
		at:      at,
		content: content.Version.Hash,
		rest:    stream.HashOf(append(rest.Version.Hash[:], rest.Version.SourceUID...)),
		// Times are RFC 3339 in UTC, as Kubernetes writes them.
		reconciled: reconciledAt != "" && reconciledAt >= stringAt(operation, "finishedAt"),
	}
}

// mayWait reports whether nobody on the hub waits for next, when it was told of
// last: it moves the time of the last reconciliation and nothing else. Two do wait
// for that time: the CLI and the notifications controller, after the end of an
// operation, for a reconciliation that is not earlier (Argo CD 3.5,
// checkAppWaitConditions), and RollingSync for one later than the operation that
// it started. The first reconciliation after an operation satisfies both, and does
// not wait. That a refresh was consumed is told beside the status, and so is not a
// change of time alone.
func mayWait(last, next pulse) bool {
	return last.rest == next.rest && (last.reconciled || !next.reconciled)
}

// thinned reports whether next, which may wait, need not be told at all: within so short a
// time the sink would not write it, see thins.
func thinned(last, next pulse) bool {
	apart := time.Duration(next.at-last.at) * time.Second
	return last.at != 0 && next.at != 0 && apart.Abs() < thinTime
}

// holdBack reports whether content, which is of current, may wait, and then sees to it that the entry is
// looked at again in time. What is told then is decided from the state of that
// moment. All that is held back leaves at once, in few batches.
func (l *loop) holdBack(entry stream.EntryKey, current *object, content link.Content) bool {
	told := l.link.Desired(entry)
	switch {
	case !carriesStatus(entry.Collection) || l.m.cfg.StatusDelay < 0:
		return false
	case content.Version.Absent():
		delete(l.pulses, entry)
		return false
	}
	last, known := l.pulses[entry]
	if known && told == content.Version {
		return false
	}
	next := l.rules.pulse(entry.Collection, *current, content)
	if !known || last.content != told.Hash || !mayWait(last, next) {
		next.waits = last.waits
		l.pulses[entry] = next
		return false
	}
	if thinned(last, next) {
		l.m.cfg.Metrics.delayed.Inc()
		return true
	}
	if !last.waits {
		if len(l.quiet) == 0 {
			l.quietEnd = time.Now().Add(l.m.cfg.StatusDelay)
			l.lookAt(l.quietEnd)
		}
		l.quiet = append(l.quiet, entry)
		last.waits = true
		l.pulses[entry] = last
	}
	l.m.cfg.Metrics.delayed.Inc()
	return true
}

// told notes what the link takes by itself of an entry: it may be newer than what
// it was told of.
func (l *loop) told(entry stream.EntryKey, current *object, content link.Content) {
	if last, known := l.pulses[entry]; known && l.link.Desired(entry) != content.Version {
		next := l.rules.pulse(entry.Collection, *current, content)
		next.waits = last.waits
		l.pulses[entry] = next
	}
}

// speak tells what was held back for long enough.
func (l *loop) speak() {
	switch {
	case len(l.quiet) == 0:
		return
	case time.Now().Before(l.quietEnd):
		l.lookAt(l.quietEnd)
		return
	}
	entries := l.quiet
	l.quiet = nil
	for _, entry := range entries {
		delete(l.pulses, entry) // without one nothing is held back
		if key, ok := l.rules.Local(entry); ok {
			l.observe(key)
		}
	}
}

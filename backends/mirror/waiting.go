package mirror

import (
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// waiting is a command that waits for the spoke.
//
// What the caches show of it may be from a backup of the hub, made before the command
// was sent: nothing in the object tells, and the caches of objects and of the history
// are not in step. So the command is sent once a judgement that began after it was seen
// says that the history goes on.
type waiting struct {
	uid string
	// since is the resourceVersion at which it was seen first, and revision that of the
	// newest state. Within one history the latter only grows; a restore takes it back.
	since, revision uint64
	// after is the number of the newest judgement that had begun when it was seen.
	after uint64
}

// wait notes whether a command of an object waits.
func (l *loop) wait(key stream.ResourceKey, o object, waits bool) {
	before, known := l.waiting[key]
	if !waits {
		delete(l.waiting, key)
		delete(l.stale, key)
		return
	}
	w := waiting{uid: o.uid(), since: o.revision(), revision: o.revision(), after: l.judgements}
	if known && before.uid == w.uid && w.revision >= before.revision {
		w.since, w.after = before.since, before.after
	} else if l.session != nil && l.judges() {
		l.step(link.Doubted{})
	}
	l.waiting[key] = w
}

// waits reports whether a command of an object waits.
func (l *loop) waits(key stream.ResourceKey) bool {
	_, ok := l.waiting[key]
	return ok
}

// judges reports whether commands wait for judgements. The originals of an autonomous
// agent know by themselves what was meant for them.
func (l *loop) judges() bool { return l.m.cfg.History != nil && l.rules.Mode == stream.Managed }

// vouched is the resourceVersion from which on the states of an object whose command
// waits are of the present history; zero while that is not known.
func (l *loop) vouched(key stream.ResourceKey) uint64 {
	w, ok := l.waiting[key]
	switch {
	case !ok:
		return 0
	case !l.judges():
		return 1
	case l.past.answered > w.after:
		return w.since
	}
	return 0
}

package link

import (
	"maps"
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// Retry says that a sink may take now what it refused of an entry. The peer tries it
// again soon, if it still waits to.
type Retry struct{ Key stream.EntryKey }

func (Retry) input() {}

// Shortened tells that the peer says something new of what its API server does not
// keep of an entry of ours: see Link.Dropped.
type Shortened struct{ Key stream.EntryKey }

func (Shortened) action() {}

// dropped are the paths that the peer's API server does not keep of what it holds of
// the entries of a source.
type dropped struct {
	told map[stream.EntryKey][]string // on this connection
	// before is what was told on an earlier one, and not yet again on this one.
	before map[stream.EntryKey][]string
	// complete says that all was told on this connection.
	complete bool
}

func newDropped() dropped { return dropped{told: map[stream.EntryKey][]string{}} }

// disconnect lets the peer tell all again.
func (d *dropped) disconnect() {
	if d.before == nil {
		d.before = map[stream.EntryKey][]string{}
	}
	maps.Copy(d.before, d.told)
	d.told, d.complete = map[stream.EntryKey][]string{}, false
}

// finish says that what was not told again is no longer so. A sink says what it drops
// before its first heartbeat.
func (d *dropped) finish() { d.before, d.complete = nil, true }

// tell notes what is dropped of an entry, and reports whether that is new.
func (d *dropped) tell(key stream.EntryKey, paths []string) bool {
	old, _ := d.get(key)
	delete(d.before, key)
	if len(paths) == 0 {
		delete(d.told, key)
	} else {
		d.told[key] = paths
	}
	return !slices.Equal(old, paths)
}

// get returns what is dropped of an entry; known is false while that is not known,
// since the peer may yet tell.
func (d *dropped) get(key stream.EntryKey) (paths []string, known bool) {
	if paths, ok := d.told[key]; ok {
		return paths, true
	}
	if paths, ok := d.before[key]; ok {
		return paths, true
	}
	return nil, d.complete
}

// Dropped returns the paths that the peer's API server does not keep of what it holds
// of an entry of our source, as it said last. known is false while it has not said.
func (l *Link) Dropped(key stream.EntryKey) (paths []string, known bool) {
	if s := l.source(key.Collection); s != nil {
		return s.dropped.get(key)
	}
	return nil, false
}

// AllDropped returns the paths that either side's API server does not keep, of all
// entries of which there are some.
func (l *Link) AllDropped() map[stream.EntryKey][]string {
	all := map[stream.EntryKey][]string{}
	for _, s := range l.sources {
		maps.Copy(all, s.dropped.before)
		maps.Copy(all, s.dropped.told)
	}
	for _, s := range l.sinks {
		maps.Copy(all, s.dropped)
	}
	return all
}

// shorten notes what a result says of what is dropped.
func (s *source) shorten(r stream.Result) []Action {
	e := s.entries.get(r.Key)
	if e == nil || e.desired.Absent() || r.Held.Absent() {
		r.Dropped = nil // a peer can invent entries
	}
	if !s.dropped.tell(r.Key, r.Dropped) || e == nil {
		return nil
	}
	return []Action{Shortened{Key: r.Key}}
}

// hasten lets an entry that was refused be due soon.
func (s *source) hasten(now time.Time, key stream.EntryKey, e *entry) {
	p := e.pending
	if p == nil || p.refusal == nil || p.retry.IsZero() {
		return
	}
	waits := p.retry
	p.attempts = 0
	s.park(now, key, e)
	if waits.Before(p.retry) {
		s.parkUntil(waits, key, e) // the peer says so again and again
	}
}

// drop notes what our API server does not keep of an entry, and reports whether that
// is new.
func (s *sink) drop(key stream.EntryKey, paths []string) bool {
	if slices.Equal(s.dropped[key], paths) {
		return false
	}
	if len(paths) == 0 {
		delete(s.dropped, key)
	} else {
		s.dropped[key] = paths
	}
	return true
}

// shortened returns the entries of which our API server does not keep all, to be told
// when a connection begins.
func (s *sink) shortened() []stream.Result {
	keys := slices.SortedFunc(maps.Keys(s.dropped), byName)
	results := make([]stream.Result, 0, len(keys))
	for _, key := range keys {
		results = append(results, s.result(key))
	}
	return results
}

// result reports an entry unasked.
func (s *sink) result(key stream.EntryKey) stream.Result {
	return stream.Result{Key: key, Held: s.held.get(key), Dropped: s.dropped[key]}
}

// retry tells the peer that what was refused of an entry may be taken now.
func (l *Link) retry(s *sink, key stream.EntryKey) {
	if l.connected && len(l.results) < maxUnsent {
		r := s.result(key)
		r.Retry = true
		l.results = append(l.results, r)
	}
}

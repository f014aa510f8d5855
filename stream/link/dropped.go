package link

import (
	"maps"
	"slices"

	"github.com/argomesh/argomesh/stream"
)

// dropped are the paths that the peer's API server does not keep of what it holds of
// the entries of a source.
type dropped struct {
	reported map[stream.EntryKey][]string // on this connection
	// before is what was told on an earlier one, and not yet again on this one.
	before map[stream.EntryKey][]string
	// complete says that all was told on this connection.
	complete bool
}

func newDropped() dropped { return dropped{reported: map[stream.EntryKey][]string{}} }

// disconnect lets the peer tell all again.
func (d *dropped) disconnect() {
	if d.before == nil {
		d.before = map[stream.EntryKey][]string{}
	}
	maps.Copy(d.before, d.reported)
	d.reported, d.complete = map[stream.EntryKey][]string{}, false
}

// finish says that what was not told again is no longer so. A sink says what it drops
// before its first heartbeat.
func (d *dropped) finish() { d.before, d.complete = nil, true }

// report notes what is dropped of an entry, and reports whether that is new.
func (d *dropped) report(key stream.EntryKey, paths []string) bool {
	old, _ := d.get(key)
	delete(d.before, key)
	if len(paths) == 0 {
		delete(d.reported, key)
	} else {
		d.reported[key] = paths
	}
	return !slices.Equal(old, paths)
}

// get returns what is dropped of an entry; known is false while that is not known,
// since the peer may yet tell.
func (d *dropped) get(key stream.EntryKey) (paths []string, known bool) {
	if paths, ok := d.reported[key]; ok {
		return paths, true
	}
	if paths, ok := d.before[key]; ok {
		return paths, true
	}
	return nil, d.complete
}

// shorten notes what a result says of what is dropped.
func (s *source) shorten(r stream.Result) []Action {
	e := s.entries.get(r.Key)
	if e == nil || e.desired.Absent() || r.Held.Absent() {
		r.Dropped = nil // a peer can invent entries
	}
	if !s.dropped.report(r.Key, r.Dropped) || e == nil {
		return nil
	}
	return []Action{Shortened{Key: r.Key}}
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
	return stream.Result{Key: key, Held: s.stored.get(key), Dropped: s.dropped[key]}
}

package mirror

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// contests are what was put back of the entries of this side's sinks. Both sides count:
// the source sends more seldom, and shows it; on the hub of an autonomous agent only the
// sink's people look.
type contests map[stream.EntryKey]contest

type contest struct {
	link.Undoings
	paths string
}

// note counts what was put back. It reports whether it has become contested with that.
func (c contests) note(key stream.EntryKey, paths string, now time.Time) bool {
	one := c[key]
	was := one.Spent() && !one.Over(now)
	one.Note(now)
	one.paths = paths
	c[key] = one
	return one.Spent() && !was
}

// refusal says what is contested about an entry; nil for nothing. side is that of the
// sink.
func (c contests) refusal(key stream.EntryKey, side stream.Side) *stream.Refusal {
	one, ok := c[key]
	if !ok || !one.Spent() {
		return nil
	}
	refusal := link.ContestedBy(side, link.Undone(one.paths))
	return &refusal
}

// putBack notes what was put back of an entry.
func (l *loop) putBack(entry stream.EntryKey, paths string) {
	now := time.Now()
	l.m.cfg.Metrics.undone(entry.Collection)
	if l.contests.note(entry, paths, now) {
		l.m.log.Warn().Stringer("resource", entry).Str("paths", paths).
			Msg("somebody changes back again and again what is applied; it is applied once a minute from now on, if that goes on")
	}
	l.lookAt(now.Add(link.ContestMemory))
}

// calm forgets what was not changed back for long enough.
func (l *loop) calm() {
	now := time.Now()
	for entry, one := range l.contests {
		if !one.Over(now) {
			l.lookAt(now.Add(link.ContestMemory)) // at the latest by then
			continue
		}
		delete(l.contests, entry)
		if key, ok := l.rules.Local(entry); ok {
			l.observe(key)
		}
	}
}

// contested says what is contested about an Application, on whichever side its sink is.
func (l *loop) contested(entry stream.EntryKey) *stream.Refusal {
	if l.rules.sources(entry.Collection) {
		return l.link.Contest(entry)
	}
	return l.contests.refusal(entry, l.rules.Side)
}

// fights reports whether something is contested of which this side is the sink.
func (l *loop) fights() bool {
	for _, one := range l.contests {
		if one.Spent() {
			return true
		}
	}
	return false
}

// undone names the fields of a copy that somebody had changed since the version of e
// was written, and that were put back in after; empty for none. It names no values.
func (r Rules) undone(e stream.Event, before *object, after object) string {
	if before == nil || e.Verb != stream.Apply || !link.Contestable(e.Key.Collection) || !r.isCopy(*before) {
		return ""
	}
	if before.meta("resourceVersion") == after.meta("resourceVersion") {
		return "" // nothing was changed: the cache showed it by another definition
	}
	was, _ := recordOf(*before)
	is, _ := recordOf(after)
	if r.wants(e.Key.Collection, *before) {
		return "" // it was given what it lacked
	}
	if was.Hash != e.Version.Hash.String() || is.Hash != was.Hash || before.annotation(sourceUIDKey) != e.Version.SourceUID || was.Leaving || was.Releasing {
		return "" // another version than the one that was there
	}
	had, hadErr := decode(owned(*before, was))
	has, hasErr := decode(owned(after, is))
	if hadErr != nil || hasErr != nil {
		return "" // owned encodes what decodes
	}
	var paths []string
	for field, prefix := range ownedPaths {
		paths = differing(paths, prefix, had[field], has[field])
	}
	slices.Sort(paths)
	if rest := len(paths) - maxPaths; rest > 0 {
		paths = append(paths[:maxPaths], fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(paths, ", ")
}

// maxPaths is how many paths are named.
const maxPaths = 5

// ownedPaths are where the fields of what owned returns are in an object.
var ownedPaths = map[string]string{
	"labels": "metadata.labels", "annotations": "metadata.annotations", "spec": "spec", "data": "data", "cascade": "metadata.finalizers",
}

// differing adds the paths at which two JSON values differ.
func differing(paths []string, path string, a, b any) []string {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			break
		}
		keys := slices.Sorted(maps.Keys(a))
		for key := range b {
			if _, both := a[key]; !both {
				keys = append(keys, key)
			}
		}
		for _, key := range keys {
			_, inA := a[key]
			_, inB := b[key]
			if inA != inB {
				paths = append(paths, path+pathOf(key))
				continue
			}
			paths = differing(paths, path+pathOf(key), a[key], b[key])
		}
		return paths
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			break
		}
		for i := range a {
			paths = differing(paths, fmt.Sprintf("%s[%d]", path, i), a[i], b[i])
		}
		return paths
	}
	if !reflect.DeepEqual(a, b) {
		paths = append(paths, path)
	}
	return paths
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// pathOf is a key as part of a path.
func pathOf(key string) string {
	if plainKey.MatchString(key) {
		return "." + key
	}
	return "[" + key + "]"
}

// Package view is what one side of a link knows of its objects: what the cache of its store
// shows, or what its own writes returned while the cache is behind them.
package view

import (
	"bytes"
	"maps"
	"time"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/stream"
)

// CatchUpTime is how long the cache may take to show what a write returned, before the API
// server itself is asked.
const CatchUpTime = 5 * time.Second

// View belongs to one goroutine; New makes one.
type View struct {
	store backends.Store
	log   zerolog.Logger
	// schemas are what the API server keeps of each kind, as far as that is known.
	schemas      map[stream.Kind]*schema.Schema
	pendingReads map[stream.ResourceKey]pendingRead
}

// pendingRead is what a write returned, while the cache does not yet show it, or shows that
// revision of it by an older definition.
type pendingRead struct {
	object *backends.Object // nil: gone
	uid    string
	since  time.Time
	// schemas are those by which it was planned, and shown says that the cache has that
	// revision.
	schemas map[stream.Kind]*schema.Schema
	shown   bool
}

// New returns the View of a store, of which no write is known.
func New(store backends.Store, log zerolog.Logger) *View {
	return &View{store: store, log: log, pendingReads: map[stream.ResourceKey]pendingRead{}}
}

// Learn takes what the API server keeps of each kind from now on.
func (v *View) Learn(schemas map[stream.Kind]*schema.Schema) { v.schemas = schemas }

// Schemas are those that Learn was told last.
func (v *View) Schemas() map[stream.Kind]*schema.Schema { return v.schemas }

// Len is how many objects the cache is behind.
func (v *View) Len() int { return len(v.pendingReads) }

// Shrink gives back the memory of a burst. It is called when Len is zero.
func (v *View) Shrink() { v.pendingReads = map[stream.ResourceKey]pendingRead{} }

// Wrote takes what the API server has of an object, nil for gone, before the cache shows it:
// what a write returned, which was planned by those schemas. uid is that of the object that
// was there.
func (v *View) Wrote(key stream.ResourceKey, o *backends.Object, uid string, schemas map[stream.Kind]*schema.Schema,
	now time.Time) {
	v.pendingReads[key] = pendingRead{object: o, uid: uid, since: now, schemas: schemas}
}

// Current is Newest decoded; nil when there is none.
func (v *View) Current(key stream.ResourceKey) *object.Object { return v.CurrentReusing(key, nil) }

// CurrentReusing is Current without decoding what last shows already.
func (v *View) CurrentReusing(key stream.ResourceKey, last *object.Object) *object.Object {
	o, ok := v.Newest(key)
	switch {
	case !ok:
		return nil
	case last != nil && last.Shows(o):
		return last
	}
	parsed, err := object.Parse(o)
	if err != nil {
		v.log.Error().Err(err).Stringer("resource", key).Msg("object of the store is not JSON")
		return nil
	}
	return &parsed
}

// Newest is the newest known state of an object: the cache's, or what a write of ours
// returned if the cache is behind it.
func (v *View) Newest(key stream.ResourceKey) (backends.Object, bool) {
	cached, ok := v.store.Get(key)
	a, written := v.pendingReads[key]
	switch {
	case !written:
		return cached, ok
	case a.object == nil && ok && cached.UID == a.uid:
		return backends.Object{}, false // the cache has not seen it go
	case a.object != nil && !a.shown &&
		(!ok || object.Revision(cached.ResourceVersion) < object.Revision(a.object.ResourceVersion)):
		return *a.object, true
	case ok && a.replaces(cached, v.schemas):
		a.shown = true
		v.pendingReads[key] = a
		return *a.object, true
	}
	delete(v.pendingReads, key)
	return cached, ok
}

// replaces reports whether the cache shows that revision by another definition than the one
// by which it was written and answered: for a while after a definition has changed, an API
// server's watches go on by the one before. That no other revision is there says that
// no one has changed it.
func (a pendingRead) replaces(cached backends.Object, known map[stream.Kind]*schema.Schema) bool {
	return a.object != nil && cached.UID == a.object.UID && cached.ResourceVersion == a.object.ResourceVersion &&
		!bytes.Equal(cached.Raw, a.object.Raw) && maps.Equal(a.schemas, known)
}

// Late returns the objects whose writes the cache did not show within CatchUpTime, each once in
// that time, and when to ask again; zero for never.
func (v *View) Late(now time.Time) (keys []stream.ResourceKey, next time.Time) {
	ask := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for key, a := range v.pendingReads {
		if a.shown {
			continue
		}
		if now.Sub(a.since) < CatchUpTime {
			ask(a.since.Add(CatchUpTime))
			continue
		}
		a.since = now
		ask(a.since.Add(CatchUpTime))
		v.pendingReads[key] = a
		if _, _ = v.Newest(key); v.pendingReads[key].since.IsZero() || v.pendingReads[key].shown {
			continue // it has caught up
		}
		keys = append(keys, key)
	}
	return keys, next
}

// HasUncached reports whether there is an object that only a write of ours has shown.
func (v *View) HasUncached() bool {
	for key, a := range v.pendingReads {
		if a.object == nil {
			continue
		}
		if cached, ok := v.store.Get(key); !ok || cached.UID != a.object.UID {
			return true
		}
	}
	return false
}

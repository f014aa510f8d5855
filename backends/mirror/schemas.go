package mirror

import (
	"cmp"
	"maps"
	"slices"

	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// Schemas are what the API server of one side says of Applications and AppProjects.
type Schemas interface {
	// SchemasAsked is closed once the API server has shown its schemas, or said that it
	// does not.
	SchemasAsked() <-chan struct{}
	// Schema returns the schema of a kind; nil while it is not known.
	Schema(kind stream.Kind) *schema.Schema
	// SubscribeSchemas calls changed whenever Schema may say something new, until cancel
	// is called. changed does not block.
	SubscribeSchemas(changed func()) (cancel func())
}

// schemas are those that are known at the moment.
func (m *Mirror) schemas() map[stream.Kind]*schema.Schema {
	known := map[stream.Kind]*schema.Schema{}
	if m.cfg.Schemas == nil {
		return known
	}
	for _, kind := range []stream.Kind{stream.Application, stream.AppProject} {
		if s := m.cfg.Schemas.Schema(kind); s != nil {
			known[kind] = s
		}
	}
	return known
}

// learn takes new schemas: what was left out of copies may fit now, and so may what
// was refused.
func (l *loop) learn() {
	known := l.m.schemas()
	if maps.Equal(known, l.rules.Schemas) {
		return
	}
	l.rules.Schemas = known
	l.observeStore()
	var again []stream.EntryKey
	for key, r := range l.refused {
		if r.refusal.Kind == stream.RefusalInvalid {
			again = append(again, key)
		}
	}
	slices.SortFunc(again, func(a, b stream.EntryKey) int { return cmp.Compare(a.String(), b.String()) })
	for _, key := range again {
		l.step(link.Retry{Key: key})
	}
}

// shortened looks again at what of an entry the spoke does not keep.
func (l *loop) shortened(entry stream.EntryKey) {
	paths, _ := l.link.Dropped(entry)
	if len(paths) > 0 {
		l.m.log.Warn().Stringer("resource", entry).Strs("paths", paths).
			Msg("an entry was applied without these fields: the peer's api server does not know them, since its Argo CD is older, or the policy of its owner does not admit them")
	}
	if key, ok := l.rules.Local(entry); ok {
		l.observe(key)
	}
}

// droppedOf returns what is left out of the copy of a hub's Application, which is on
// the spoke or, of an autonomous agent, the object itself.
func (l *loop) droppedOf(entry stream.EntryKey, current object) (paths []string, known bool) {
	if l.rules.sources(entry.Collection) {
		paths, known = l.link.Dropped(entry)
		return paths, known && l.ours()
	}
	return l.rules.dropped(entry.Collection, current), true
}

// noteWarning remembers whether an object of the hub says what of it was left out.
func (l *loop) noteWarning(key stream.ResourceKey, current object) {
	shows := l.rules.Side == stream.Hub && slices.ContainsFunc(conditions(current.child("status")), func(c any) bool {
		return isCondition(c, warningCondition)
	})
	if shows {
		l.warned[key] = true
	} else {
		delete(l.warned, key)
	}
}

package mirror

import (
	"maps"

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
	l.know(known)
	l.observeStore()
	for _, key := range l.answers.refused.OfKind(stream.RefusalInvalid) {
		l.step(link.Retry{Key: key})
	}
}

// know takes what the API server keeps of each kind.
func (l *loop) know(schemas map[stream.Kind]*schema.Schema) {
	l.rules.Schemas = schemas
	l.view.Learn(schemas)
}

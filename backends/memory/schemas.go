package memory

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/stream"
)

// schemas are those of a server. Its mu guards them.
type schemas struct {
	of          map[stream.Kind]*schema.Schema
	subscribers []*schemaSubscriber
}

type schemaSubscriber struct{ changed func() }

// prune takes from content what the server does not keep of a kind. A strict write
// fails instead.
func (s *schemas) prune(kind stream.Kind, content map[string]any, strict bool) error {
	known := s.of[kind]
	if known == nil {
		return nil
	}
	if dropped := known.Prune(content); strict && len(dropped) > 0 {
		return refuse("strict decoding error: unknown field %q", dropped[0].Path())
	}
	return nil
}

// known is an object as far as the schemas know it, and whether that is less.
func (s *schemas) known(o backends.Object) (known backends.Object, less bool) {
	if s.of[o.Key.Kind] == nil {
		return o, false
	}
	content, _, err := decode(o.Key, o.Raw)
	if err != nil || s.prune(o.Key.Kind, content, false) != nil {
		return o, false
	}
	raw, err := json.Marshal(content)
	if err != nil || bytes.Equal(raw, o.Raw) {
		return o, false
	}
	o.Raw = raw
	return o, true
}

// ShowBy has the cache learn objects of a kind by another schema than the server's, until it
// is nil: watches that an API server opened before a definition changed go on for a while to
// show by the one before. It needs Config.Lag.
func (s *Store) ShowBy(kind stream.Kind, older *schema.Schema) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.shows = schemas{of: map[stream.Kind]*schema.Schema{kind: older}}
}

// Schema returns the schema of a kind; nil when the server keeps all of it.
func (s *Store) Schema(kind stream.Kind) *schema.Schema {
	s.server.mu.RLock()
	defer s.server.mu.RUnlock()
	return s.server.schemas.of[kind]
}

// SchemasAsked is closed with Synced.
func (s *Store) SchemasAsked() <-chan struct{} { return s.synced }

// SubscribeSchemas calls changed after each SetSchema until cancel is called.
func (s *Store) SubscribeSchemas(changed func()) (cancel func()) {
	sub := &schemaSubscriber{changed}
	all := &s.server.schemas
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	all.subscribers = append(all.subscribers, sub)
	return func() {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		all.subscribers = slices.DeleteFunc(slices.Clone(all.subscribers),
			func(other *schemaSubscriber) bool { return other == sub })
	}
}

// SetSchema replaces the schema of a kind, as an upgrade of its definition does. As
// with an API server, objects keep their resourceVersions and show what the schema
// knows, and all clients list again; unlike there, what it does not know is gone for
// good.
func (s *Store) SetSchema(kind stream.Kind, next *schema.Schema) {
	srv := s.server
	srv.mu.Lock()
	of := map[stream.Kind]*schema.Schema{kind: next}
	for other, known := range srv.schemas.of {
		if other != kind {
			of[other] = known
		}
	}
	srv.schemas.of = of
	for _, o := range srv.objects.all() {
		if known, less := srv.schemas.known(o); o.Key.Kind == kind && less {
			srv.objects.set(known)
			srv.record(Accepted{Op: OpSchema, Object: known})
		}
	}
	news := srv.publish(srv.list())
	subscribers := slices.Clone(srv.schemas.subscribers)
	srv.mu.Unlock()
	for _, sub := range subscribers {
		sub.changed()
	}
	news.notify()
}

package sim

import (
	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/stream"
)

// What an older Argo CD knows of its kinds, of what is written in a history. What it does
// not know of an Application is whether automated sync is enabled, and the hydrator; of an
// AppProject the integrity of its sources.
const (
	olderApplication = `{"spec":{"versions":[{"name":"v1alpha1","schema":{"openAPIV3Schema":{"properties":{
		"spec":{"properties":{"project":{},"destination":{"x-kubernetes-preserve-unknown-fields":true},
			"source":{"x-kubernetes-preserve-unknown-fields":true},
			"syncPolicy":{"properties":{"syncOptions":{"items":{}},"automated":{"properties":{"prune":{},"selfHeal":{}}}}}}},
		"operation":{"x-kubernetes-preserve-unknown-fields":true},
		"status":{"x-kubernetes-preserve-unknown-fields":true}}}}}]}}`
	olderProject = `{"spec":{"versions":[{"name":"v1alpha1","schema":{"openAPIV3Schema":{"properties":{
		"spec":{"properties":{"description":{},"sourceRepos":{"items":{}},"sourceNamespaces":{"items":{}},
			"destinations":{"items":{"x-kubernetes-preserve-unknown-fields":true}},
			"roles":{"items":{"x-kubernetes-preserve-unknown-fields":true}}}},
		"status":{"x-kubernetes-preserve-unknown-fields":true}}}}}]}}`
)

// newerKind is a kind of which all is known.
const newerKind = `{"spec":{"versions":[{"name":"v1alpha1","schema":{"openAPIV3Schema":{"x-kubernetes-preserve-unknown-fields":true}}}]}}`

// newerSchemas are those of an Argo CD that is as new as what people write.
func newerSchemas() map[stream.Kind]*schema.Schema {
	return schemasOf(map[stream.Kind]string{stream.Application: newerKind, stream.AppProject: newerKind})
}

// olderSchemas are those of an Argo CD that is older.
func olderSchemas() map[stream.Kind]*schema.Schema {
	return schemasOf(map[stream.Kind]string{stream.Application: olderApplication, stream.AppProject: olderProject})
}

func schemasOf(definitions map[stream.Kind]string) map[stream.Kind]*schema.Schema {
	schemas := map[stream.Kind]*schema.Schema{}
	for kind, definition := range definitions {
		s, err := schema.Parse([]byte(definition), "v1alpha1")
		if err != nil {
			panic(err) // it is above
		}
		schemas[kind] = s
	}
	return schemas
}

// setSchema makes the Argo CD of a site older or newer.
func (w *Fleet) setSchema(s *site, older bool) {
	s.mu.Lock()
	server := s.server
	s.older = older
	s.mu.Unlock()
	known := newerSchemas()
	if older {
		known = olderSchemas()
	}
	w.journal.add(Entry{Place: s.place, Note: Upgraded, Older: older})
	for _, kind := range []stream.Kind{stream.Application, stream.AppProject} {
		server.SetSchema(kind, known[kind])
	}
}

// bringBack makes the definitions of a site's kinds what they were at a backup, which has
// them too, or those of an older Argo CD, for which the backup is a newer one's.
func (w *Fleet) bringBack(s *site, older bool) {
	s.mu.Lock()
	changes := s.older != older
	s.mu.Unlock()
	if changes {
		w.setSchema(s, older)
	}
}

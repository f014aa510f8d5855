package worker

import (
	"bytes"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// needed says for what copies on the spoke need an AppProject.
func needed(store backends.Store, r ownership.Rules, project string) ownership.ProjectNeed {
	needed := ownership.ForNothing
	for _, namespace := range r.LocalNamespaces() {
		for _, stored := range store.List(stream.Application, namespace) {
			if !bytes.Contains(stored.Raw, []byte(project)) && project != object.DefaultProjectName ||
				len(r.Keys(stored.Key)) == 0 {
				continue
			}
			o, err := object.Parse(stored)
			if err != nil || !r.IsCopy(o) || object.ProjectOf(o.Child("spec")) != project {
				continue
			}
			if rec, _ := record.Of(o); rec.Leaving || o.Cascades() {
				return ownership.ForCascade
			}
			needed = ownership.ForCopy
		}
	}
	return needed
}

// sought is the AppProject that a plan asked for last.
type sought struct {
	name  string
	found *object.Object
}

// awaits is the AppProject for which the plan was refused; empty for none.
func (s sought) awaits(r ownership.Rules) string {
	if s.name == "" || r.HubProject(s.name, s.found) == nil {
		return ""
	}
	return s.name
}

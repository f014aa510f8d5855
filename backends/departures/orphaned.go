package departures

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/adopted"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// OrphanedMirrors are mirrors on the hub that no link keeps any more, since the namespaces of
// their agent are others now, or the name of a project another agent's. They leave the hub without their workloads;
// where they belong they are made again.
type OrphanedMirrors struct {
	Store backends.Store
	// Namespace is where Argo CD's own objects are.
	Namespace string
	// Owner says which agent has a namespace of the hub; the zero name for none.
	Owner func(namespace string) identity.AgentName
	// ProjectOwner says which agent the mirror of an AppProject of that name belongs to;
	// the zero name for none.
	ProjectOwner func(mirror string) identity.AgentName
	// Registered reports whether there is an agent of that name. The mirrors of one that
	// went without a word stay.
	Registered func(identity.AgentName) bool
}

// Remove takes away those that the cache shows. It is called again after an error, and
// does no harm beside links and other processes.
func (s OrphanedMirrors) Remove(ctx context.Context) error {
	var objects []backends.Object
	for _, o := range s.Store.List(stream.Application, "") {
		if bytes.Contains(o.Raw, []byte(object.RecordKey)) { // nearly none of a hub that is managed
			objects = append(objects, o)
		}
	}
	for _, o := range s.Store.List(stream.AppProject, s.Namespace) {
		if bytes.Contains(o.Raw, []byte(object.RecordKey)) {
			objects = append(objects, o)
		}
	}
	waits, err := apply(ctx, adopted.FoundStore{Store: s.Store, Namespace: s.Namespace}, objects, s.plan)
	if err == nil && waits > 0 {
		err = fmt.Errorf("%d of them were adopted, and wait to be given back: %w", waits, stream.ErrUnavailable)
	}
	return err
}

// plan returns the writes that remove an orphaned mirror, and whether that has to wait.
func (s OrphanedMirrors) plan(o object.Object) (writes []ownership.Write, waits bool) {
	rec, ok := record.Of(o)
	name, err := identity.ParseAgentName(rec.Agent)
	if !ok || !record.IsMirror(o) || err != nil || !s.Registered(name) || s.ownerOf(o.Key) == name {
		return nil, false
	}
	if !o.Deleting() {
		rules := ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: stream.Hub, Mode: stream.Autonomous, Agent: name,
			Namespace: s.Namespace}}, Now: time.Now()}
		writes, refusal := rules.LeaveHub(o)
		return writes, refusal != nil
	}
	next := o.Clone()
	if next.DropFinalizers(object.IsArgoCD) {
		writes = append(writes, ownership.Write{Op: ownership.Update, Raw: object.Encode(next.Fields)})
	}
	return writes, false
}

// ownerOf returns the agent whose link keeps a mirror of that key.
func (s OrphanedMirrors) ownerOf(key stream.ResourceKey) identity.AgentName {
	if key.Kind == stream.AppProject {
		return s.ProjectOwner(key.Name)
	}
	return s.Owner(key.Namespace)
}

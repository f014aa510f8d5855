package mirror

import (
	"bytes"
	"context"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Strays are mirrors on the hub that no link keeps any more, since the namespaces of
// their agent are others now. They leave the hub without their workloads; where they
// belong they are made anew.
type Strays struct {
	Store backends.Store
	// Owner says which agent has a namespace of the hub; the zero name for none.
	Owner func(namespace string) identity.AgentName
	// Registered reports whether there is an agent of that name. The mirrors of one that
	// went without a word stay.
	Registered func(identity.AgentName) bool
}

// Remove takes away those that the cache shows. It is called again after an error, and
// does no harm beside links and other processes.
func (s Strays) Remove(ctx context.Context) error {
	var objects []backends.Object
	for _, o := range s.Store.List(stream.Application, "") {
		if bytes.Contains(o.Raw, []byte(recordKey)) { // nearly none of a hub that is managed
			objects = append(objects, o)
		}
	}
	_, err := sweep(ctx, s.Store, objects, func(o object) ([]Write, bool) { return s.plan(o), false })
	return err
}

func (s Strays) plan(o object) []Write {
	rec, ok := recordOf(o)
	name, err := identity.ParseAgentName(rec.Agent)
	if !ok || err != nil || !s.Registered(name) || s.Owner(o.key.Namespace) == name {
		return nil
	}
	var writes []Write
	next := o.clone()
	if next.dropFinalizers(isArgoCD) {
		writes = append(writes, Write{Op: Update, Raw: encode(next.fields)})
	}
	if !o.deleting() {
		writes = append(writes, Write{Op: Delete})
	}
	return writes
}

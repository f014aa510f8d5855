// Package backends holds the contract between the sync core and the Kubernetes
// API of one side: Store. backends/kube keeps it over informers, backends/memory
// in memory, and backendtest.Run is the test both pass. What is written follows
// from backends/mirror; a Store decides nothing.
package backends

import (
	"context"

	"github.com/argomesh/argomesh/stream"
)

// Object is one object as an API server returned it. It is immutable: a Store
// and its callers share Raw.
type Object struct {
	Key             stream.ResourceKey
	UID             string
	ResourceVersion string
	// Raw is the whole object as JSON, less metadata.managedFields.
	Raw []byte
	// Managed is about how many bytes metadata.managedFields have as JSON.
	Managed int
}

// Size is about how many bytes the object has as the API server keeps it.
func (o Object) Size() int { return len(o.Raw) + o.Managed }

// Deletion is an object of which the API server itself said that it was deleted.
type Deletion struct {
	// Last is the object as the cache showed it before.
	Last Object
	// Revision is the resourceVersion of the deletion.
	Revision uint64
}

// Preconditions must hold for a write to take place. An empty field is not
// asked for.
type Preconditions struct {
	UID             string
	ResourceVersion string
}

// WriteOption changes how a write is made.
type WriteOption uint8

// Strict makes a write fail with ErrRefused where the API server would drop a field
// that it does not know. The error names the field.
const Strict WriteOption = 1

// Store is the Kubernetes API of one side, with a cache in front of its reads.
//
// The cache follows the API server: Get and List may be behind it, never ahead,
// and never go back once they showed a resourceVersion of an object, unless the
// API server itself proves to have gone back, as after a restore. Writes go
// to the API server, return its reply, and do not wait for the cache. All
// methods may be called concurrently.
//
// Errors wrap stream.ErrNotFound, ErrConflict, ErrRefused or ErrUnavailable.
type Store interface {
	// Subscribe calls changed for every object in the cache, and then whenever an
	// object appears, changes or goes, until cancel is called. changed must not
	// block; it gets a key, not a state: anyone who is told looks again. It may be
	// called more often than there are changes. It may still be running when
	// cancel returns.
	Subscribe(changed func(stream.ResourceKey)) (cancel func())

	// Deletions calls deleted for each object that the cache loses by an event of the watch
	// which says that it was deleted, until cancel is called: before those of Subscribe are
	// told. It is not called for what a list shows no more, as after a gap or a restore,
	// since no one knows why. deleted must not block. Where the Store holds only objects
	// with certain labels, one that has lost them is said to be deleted as well.
	Deletions(deleted func(Deletion)) (cancel func())

	// Synced is closed once the cache holds what the API server held when the
	// Store began to run.
	Synced() <-chan struct{}

	// Get returns the cached object; false when there is none.
	Get(key stream.ResourceKey) (Object, bool)

	// List returns the cached objects of a kind, in no order. An empty namespace
	// means all the Store holds.
	List(kind stream.Kind, namespace string) []Object

	// Read asks the API server itself, by quorum.
	Read(ctx context.Context, key stream.ResourceKey) (Object, error)

	// Create makes an object of raw, whose kind, namespace and name are key's.
	// ErrConflict means that one of that name is there.
	Create(ctx context.Context, key stream.ResourceKey, raw []byte, opts ...WriteOption) (Object, error)

	// Update replaces an object by raw when the API server still holds it as old
	// shows it (UID and resourceVersion), else ErrConflict; ErrNotFound when it is
	// gone. It is a replacement and not a patch, since a JSON merge patch cannot
	// say null, and Helm values can. Fields that raw has and the server prunes are
	// missing in the reply, but see Strict.
	Update(ctx context.Context, old Object, raw []byte, opts ...WriteOption) (Object, error)

	// Delete deletes the object when the preconditions hold, else ErrConflict.
	// An object with finalizers gets a deletionTimestamp and stays until they are
	// gone. ErrNotFound when there is no object.
	Delete(ctx context.Context, key stream.ResourceKey, pre Preconditions) error
}

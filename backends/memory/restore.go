package memory

import (
	"bytes"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// Snapshot is what a server held at one moment, as a backup of its etcd. It is
// immutable.
type Snapshot struct {
	revision uint64
	objects  table
}

// Get returns an object as it was.
func (s Snapshot) Get(key stream.ResourceKey) (backends.Object, bool) {
	return s.objects.get(key)
}

// Snapshot takes a backup of the server.
func (s *Store) Snapshot() Snapshot {
	s.server.mu.RLock()
	defer s.server.mu.RUnlock()
	return Snapshot{revision: s.server.revision, objects: s.server.objects.clone()}
}

// Revision is the newest resourceVersion that the server gave out.
func (s *Store) Revision() uint64 {
	s.server.mu.RLock()
	defer s.server.mu.RUnlock()
	return s.server.revision
}

// Restore makes the server what it was at the Snapshot, as a restore of its etcd
// does. The objects come back with the resourceVersions they had then. bump is
// added to the revision from which the server counts on; with zero it gives out
// resourceVersions a second time. All clients list again: what their watches had
// not yet delivered is lost, and those that lag see the list with their next
// delivery.
func (s *Store) Restore(to Snapshot, bump uint64) {
	s.server.mu.Lock()
	for _, now := range s.server.objects.all() {
		if _, ok := to.objects.get(now.Key); !ok {
			s.server.record(Accepted{Op: OpRestore, Object: now, Gone: true})
		}
	}
	objects := to.objects.clone()
	for _, then := range to.objects.all() {
		if known, less := s.server.schemas.known(then); less {
			objects.set(known)
			then = known
		}
		now, ok := s.server.objects.get(then.Key)
		if !ok || !bytes.Equal(now.Raw, then.Raw) {
			s.server.record(Accepted{Op: OpRestore, Object: then})
		}
	}
	s.server.objects = objects
	s.server.revision = to.revision + bump
	news := s.server.publish(s.server.list())
	s.server.mu.Unlock()
	news.notify()
}

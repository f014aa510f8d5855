package sim

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// doom is the deletion of a namespace.
type doom struct {
	began, ended uint64 // revisions of the server; ended is zero while it goes on
}

// refusedShare is of how many objects an API server that refuses does so for each reason.
const refusedShare = 8

// refusal is what the API server of a site says of a call; nil when it takes it. Of some
// objects it takes nothing, of some now and then.
func (p *process) refusal(op memory.Op, key stream.ResourceKey) error {
	if op == memory.OpRead {
		return nil
	}
	refuse := func(why string) error { return fmt.Errorf("%w: %s", stream.ErrRefused, why) }
	if op == memory.OpCreate && p.site.doomed(key.Namespace) {
		return refuse("unable to create new content in namespace " + key.Namespace + " because it is being terminated")
	}
	if !p.site.refusing.Load() {
		return nil
	}
	name := fnv.New64a()
	_, _ = fmt.Fprint(name, key, p.fleet.trace.Seed) // a hash takes everything
	switch name.Sum64() % refusedShare {
	case 0:
		return refuse("forbidden: quota exceeded")
	case 1:
		if p.fleet.chance.n(p.site.place+" refuses "+string(op)+key.String(), 2) == 0 {
			return refuse("admission webhook denied the request")
		}
	case 2:
		if op != memory.OpDelete {
			return refuse("request is too large")
		}
	}
	return nil
}

// doomed reports whether a namespace is being deleted.
func (s *site) doomed(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, is := s.dooms[namespace]
	return is && d.ended == 0
}

// wentWithPlace reports whether an object went while its namespace was being deleted.
func (s *site) wentWithPlace(d backends.Deletion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	place, is := s.dooms[d.Last.Key.Namespace]
	return is && d.Revision >= place.began && (place.ended == 0 || d.Revision <= place.ended)
}

// undoom makes a namespace again, if it was being deleted.
func (s *site) undoom(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, is := s.dooms[namespace]; is && d.ended == 0 {
		s.dooms[namespace] = doom{d.began, s.server.Revision()}
	}
}

// undoomAll makes all namespaces again.
func (s *site) undoomAll() {
	s.mu.Lock()
	namespaces := slices.Collect(maps.Keys(s.dooms))
	s.mu.Unlock()
	for _, namespace := range namespaces {
		s.undoom(namespace)
	}
}

// refuse has the API server of a site refuse some writes, or none.
func (w *Fleet) refuse(s *site, on bool) {
	if s.refusing.Swap(on) != on {
		s.refused.Store(true)
		w.journal.add(Entry{Place: s.place, Note: Refuses, On: on})
	}
}

// doom is kubectl delete namespace, and with Off the end of it. That of Argo CD itself
// stays.
func (w *Fleet) doom(s *spoke, c Command) {
	side := s.side(c)
	at, namespace := s.site, s.key(side, "").Namespace
	if side == stream.Hub {
		at = w.hub
	}
	switch {
	case namespace == argocdNamespace:
		return
	case c.Off:
		at.undoom(namespace)
		return
	case at.doomed(namespace):
		return
	}
	at.mu.Lock()
	if at.dooms == nil {
		at.dooms = map[string]doom{}
	}
	at.dooms[namespace] = doom{began: at.server.Revision()}
	at.refused.Store(true) // what is to be created there
	people := at.people
	at.mu.Unlock()
	for _, o := range people.List(stream.Application, namespace) {
		w.live(c, people.Delete(w.ctx, o.Key, backends.Preconditions{UID: o.UID}))
	}
}

// places is mirror.Config.TerminatingNamespaces.
func (s *site) places(namespaces []string) map[string]string {
	doomed := map[string]string{}
	for _, namespace := range namespaces {
		if s.doomed(namespace) {
			doomed[namespace] = "namespace " + namespace + " is being deleted"
		}
	}
	return doomed
}

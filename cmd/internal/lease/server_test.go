package lease_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// apiServer keeps one Lease as an API server does: writes are tested on their
// resource version.
type apiServer struct {
	mu       sync.Mutex // guards what follows
	lease    *coordinationv1.Lease
	revision int
	watches  map[*watch.RaceFreeFakeWatcher]bool
}

func newAPIServer() *apiServer {
	return &apiServer{watches: map[*watch.RaceFreeFakeWatcher]bool{}}
}

// holder is who holds the Lease; empty for no one.
func (s *apiServer) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil || s.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *s.lease.Spec.HolderIdentity
}

// turn gives the Lease to a process that renews it for no time; to no one for an empty one.
func (s *apiServer) turn(holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.lease.DeepCopy()
	lease.Spec.HolderIdentity = &holder
	if holder != "" {
		*lease.Spec.LeaseTransitions++
	}
	s.store(lease, func(w *watch.RaceFreeFakeWatcher) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { w.Modify(l) }
	})
}

// snapshot returns what there is, for restore.
func (s *apiServer) snapshot() *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.DeepCopy()
}

// restore brings a snapshot back, with its revision raised by bump. Watches show nothing.
func (s *apiServer) restore(lease *coordinationv1.Lease, bump int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = lease
	s.revision, _ = strconv.Atoi(lease.ResourceVersion) // it is a number
	s.revision += bump
}

// store is called with mu locked.
func (s *apiServer) store(lease *coordinationv1.Lease, event func(*watch.RaceFreeFakeWatcher) func(obj *coordinationv1.Lease)) *coordinationv1.Lease {
	s.revision++
	s.lease = lease.DeepCopy()
	s.lease.ResourceVersion = strconv.Itoa(s.revision)
	for w := range s.watches {
		event(w)(s.lease.DeepCopy())
	}
	return s.lease.DeepCopy()
}

// client is one process's way to the API server.
type client struct {
	coordination.LeaseInterface // the rest is not called
	server                      *apiServer
	away                        atomic.Bool // calls fail
	blind                       atomic.Bool // watches fail
	homeless                    atomic.Bool // the namespace does not exist
	writes, reads               atomic.Int64
	gate                        chan struct{} // reads wait for it; nil for not at all
}

var errAway = errors.New("connection refused")

// Leases implements coordination.LeasesGetter.
func (c *client) Leases(string) coordination.LeaseInterface { return c }

func (c *client) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	if c.away.Load() {
		return nil, errAway
	}
	c.reads.Add(1)
	if c.gate != nil {
		<-c.gate
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.server.lease == nil {
		return nil, apierrors.NewNotFound(leases, name)
	}
	return c.server.lease.DeepCopy(), nil
}

func (c *client) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if c.away.Load() {
		return nil, errAway
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.homeless.Load() {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), "argocd")
	}
	if c.server.lease != nil {
		return nil, apierrors.NewAlreadyExists(leases, lease.Name)
	}
	c.writes.Add(1)
	return c.server.store(lease, func(w *watch.RaceFreeFakeWatcher) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { w.Add(l) }
	}), nil
}

func (c *client) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if c.away.Load() {
		return nil, errAway
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.server.lease == nil || c.server.lease.ResourceVersion != lease.ResourceVersion {
		return nil, apierrors.NewConflict(leases, lease.Name, errors.New("it has changed"))
	}
	c.writes.Add(1)
	return c.server.store(lease, func(w *watch.RaceFreeFakeWatcher) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { w.Modify(l) }
	}), nil
}

func (c *client) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	if c.away.Load() || c.blind.Load() {
		return nil, errAway
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	w := watch.NewRaceFreeFake()
	if c.server.lease != nil {
		w.Add(c.server.lease.DeepCopy())
	}
	c.server.watches[w] = true
	context.AfterFunc(ctx, func() {
		c.server.mu.Lock()
		defer c.server.mu.Unlock()
		delete(c.server.watches, w)
	})
	return w, nil
}

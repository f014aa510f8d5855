package lease

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// monitor notices that the API server shows the Lease as it was before: its etcd was
// restored from a backup. Nothing else is written as often, and each write of the Lease, and
// each read of it alone, goes to etcd, where lists and watches may go on showing what an
// API server has in its cache.
type monitor struct {
	coordination.LeasesGetter
	restored func(since time.Time)

	mu     sync.Mutex // guards newest
	newest seen
}

// seen is how the API server showed the Lease in a call that began at a time.
type seen struct {
	uid             types.UID
	resourceVersion string
	at              time.Time
}

// Leases implements coordination.LeasesGetter.
func (m *monitor) Leases(namespace string) coordination.LeaseInterface {
	return monitored{m.LeasesGetter.Leases(namespace), m}
}

// begin returns what was seen before a call.
func (m *monitor) begin() seen {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newest
}

// end takes what a call that began at a time has shown, after what before was seen.
func (m *monitor) end(lease *coordinationv1.Lease, before seen, at time.Time) {
	now := seen{uid: lease.UID, resourceVersion: lease.ResourceVersion, at: at}
	back := now.uid == before.uid && older(now, before)
	m.mu.Lock()
	if back || now.uid != m.newest.uid || !older(now, m.newest) {
		m.newest = now
	}
	m.mu.Unlock()
	if back {
		m.restored(before.at)
	}
}

func older(a, b seen) bool {
	order, err := resourceversion.CompareResourceVersion(a.resourceVersion, b.resourceVersion)
	return err == nil && order < 0
}

type monitored struct {
	coordination.LeaseInterface
	monitor *monitor
}

// Get implements coordination.LeaseInterface.
func (m monitored) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	return m.see(func() (*coordinationv1.Lease, error) { return m.LeaseInterface.Get(ctx, name, opts) })
}

// Update implements coordination.LeaseInterface.
func (m monitored) Update(ctx context.Context, lease *coordinationv1.Lease,
	opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return m.see(func() (*coordinationv1.Lease, error) { return m.LeaseInterface.Update(ctx, lease, opts) })
}

func (m monitored) see(call func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	before, at := m.monitor.begin(), time.Now()
	lease, err := call()
	if err == nil {
		m.monitor.end(lease, before, at)
	}
	return lease, err
}

package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// readTime bounds a read of the Lease.
const readTime = 5 * time.Second

// leadership is the lock from when a process gains the Lease until it loses it. A process that
// was frozen while another had the Lease, and released it, finds it free when it goes on, and an
// elector then renews it as if no one had been there. The number of transitions tells: each
// leadership has one of its own.
type leadership struct {
	*resourcelock.LeaseLock
	// transitions are those of the Lease in this leadership; negative before it is gained.
	transitions atomic.Int64
	// stop ends the leadership.
	stop context.CancelCauseFunc
	// slot has a value while someone reads.
	slot chan struct{}
	log  zerolog.Logger
	// namespaceLogged is set once the log says that the namespace is missing. Only the elector
	// creates, one call at a time.
	namespaceLogged bool

	mu   sync.Mutex // guards next
	next *reading   // that has not begun; nil for none
}

// reading is one read of the Lease for all who asked before it began.
type reading struct {
	done chan struct{} // closed when err is set
	err  error
}

func newLeadership(lock *resourcelock.LeaseLock, stop context.CancelCauseFunc, log zerolog.Logger) *leadership {
	t := &leadership{LeaseLock: lock, stop: stop, slot: make(chan struct{}, 1), log: log}
	t.transitions.Store(-1)
	return t
}

// Create implements resourcelock.Interface.
func (t *leadership) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := t.writeRecord(record, func() error { return t.LeaseLock.Create(ctx, record) })
	if apierrors.IsNotFound(err) && !t.namespaceLogged {
		t.namespaceLogged = true // client-go logs each attempt
		t.log.Error().Err(err).
			Msgf("this process waits: its namespace %s does not exist; create it, or name another in the setting namespace",
				t.LeaseMeta.Namespace)
	}
	return err
}

// Update implements resourcelock.Interface.
func (t *leadership) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.writeRecord(record, func() error { return t.LeaseLock.Update(ctx, record) })
}

// writeRecord writes a record that is of this leadership, or begins it.
func (t *leadership) writeRecord(record resourcelock.LeaderElectionRecord, write func() error) error {
	if !t.is(record) {
		t.stop(errTaken)
		return errTaken
	}
	err := write()
	if err == nil {
		t.transitions.Store(int64(record.LeaderTransitions))
	}
	return err
}

// is reports whether a record can be of this leadership.
func (t *leadership) is(record resourcelock.LeaderElectionRecord) bool {
	of := t.transitions.Load()
	return of < 0 || of == int64(record.LeaderTransitions)
}

// confirm is Lease.Confirm in this leadership.
func (t *leadership) confirm(ctx context.Context) error {
	r, first := t.join()
	if first {
		go t.perform(context.WithoutCancel(ctx), r)
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// join returns the next reading, and whether the caller is to perform it.
func (t *leadership) join() (r *reading, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if first = t.next == nil; first {
		t.next = &reading{done: make(chan struct{})}
	}
	return t.next, first
}

// perform waits for the slot, and reads for r.
func (t *leadership) perform(ctx context.Context, r *reading) {
	t.slot <- struct{}{}
	t.mu.Lock()
	t.next = nil // who asks from now on asks for a later one
	t.mu.Unlock()
	r.err = t.read(ctx)
	<-t.slot
	close(r.done)
}

// read asks who holds the Lease. The read of one object is by quorum.
func (t *leadership) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	lease, err := t.Client.Leases(t.LeaseMeta.Namespace).Get(ctx, t.LeaseMeta.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read lease %s/%s: %w", t.LeaseMeta.Namespace, t.LeaseMeta.Name, err)
	}
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	if record.HolderIdentity != t.Identity() || !t.is(*record) {
		t.stop(errTaken)
		return errTaken
	}
	return nil
}

// ErrNotHeld is the answer to who asks while the Lease is not held.
var ErrNotHeld = errors.New("the lease is not held")

// Package lease lets a function run in one process at a time. It owns how a
// Kubernetes Lease is gained, kept and handed over; what runs under it is left to
// the caller.
//
//	l, err := lease.New(lease.Config{Leases: client, Namespace: "argocd", Name: "argomesh-agent", Holder: holder, Log: log})
//	err = l.Run(ctx, func(ctx context.Context) error { ... })
package lease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The usual times of Kubernetes' own controllers. A holder that cannot renew is
// told renewTime after it last could, and has the rest of leaseTime to end.
const (
	leaseTime = 15 * time.Second
	renewTime = 10 * time.Second
	retryTime = 2 * time.Second
	// releaseTime bounds a release: an API server that is away must not hold up the
	// end of a process.
	releaseTime = 3 * time.Second
)

// Config holds what a Lease needs. Fields without a stated default are required.
type Config struct {
	Leases          coordination.LeasesGetter
	Namespace, Name string
	// Holder names this process among those that want the Lease. A process that
	// comes back under the name it had holds the Lease at once if it still had it,
	// so no two that live at the same time may share one.
	Holder string
	// Restored is told, while this process holds the Lease, that the API server shows it as
	// it was before, as after a restore of its etcd, and of a time when it did not yet. It
	// does not block. Nil means that no one asks.
	Restored func(since time.Time)
	// Log is told of each gain and loss. Its zero value writes nothing.
	Log zerolog.Logger
}

// Lease is one process's claim to a Kubernetes Lease.
type Lease struct {
	cfg  Config
	lock *resourcelock.LeaseLock
	log  zerolog.Logger
	// present is that of this process; nil while it does not hold the Lease.
	present atomic.Pointer[leadership]
	waiting atomic.Bool // another process was seen to hold it
}

// New checks cfg and starts nothing.
func New(cfg Config) (*Lease, error) {
	if cfg.Leases == nil || cfg.Namespace == "" || cfg.Name == "" || cfg.Holder == "" {
		return nil, errors.New("lease: leases, namespace, name and holder are required")
	}
	if cfg.Restored == nil {
		cfg.Restored = func(time.Time) {}
	}
	return &Lease{
		cfg: cfg,
		lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: cfg.Namespace, Name: cfg.Name},
			Client:     &monitor{LeasesGetter: cfg.Leases, restored: cfg.Restored},
			LockConfig: resourcelock.ResourceLockConfig{Identity: cfg.Holder},
		},
		log: cfg.Log.With().Str("lease", cfg.Namespace+"/"+cfg.Name).Str("holder", cfg.Holder).Logger(),
	}, nil
}

// Run runs f while this process holds the Lease, again each time it is gained,
// until ctx is done or f returns by itself, whose error it then returns. The
// context of f ends with ctx or with the Lease; f returns within five seconds of
// a loss, after which another process may begin. No two runs of f overlap, and
// the Lease is given back only when f has ended, so the next process begins at
// once. Run is called once.
func (l *Lease) Run(ctx context.Context, f func(context.Context) error) error {
	for ctx.Err() == nil {
		ended, err := l.lead(ctx, f)
		if ended || err != nil {
			return err
		}
	}
	return nil
}

// Waiting reports whether another process was the last one seen to hold the Lease, which
// this one waits for.
func (l *Lease) Waiting() bool { return l.waiting.Load() }

// Confirm returns nil when a consistent read of the Lease, which began after the call,
// shows that no other process has had it since f of Run began: no one had by then taken
// the place of this process. Else f ends. An error may also mean that no one knows; it is
// ErrNotHeld while f does not run. It may be called concurrently; who waits at the same
// time shares a read.
func (l *Lease) Confirm(ctx context.Context) error {
	present := l.present.Load()
	if present == nil {
		return ErrNotHeld
	}
	return present.confirm(ctx)
}

// lead waits for the Lease, runs f under it and releases it. It reports whether
// f ended by itself.
func (l *Lease) lead(ctx context.Context, f func(context.Context) error) (ended bool, err error) {
	// The election outlasts ctx: the Lease is renewed for as long as f takes to end.
	election, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	lock := newLeadership(l.lock, stop, l.log)
	gained := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: l.cfg.Name,
		LeaseDuration: leaseTime, RenewDeadline: renewTime, RetryPeriod: retryTime,
		// Not ReleaseOnCancel: it also releases a Lease that could not be renewed, and
		// does so before the context of the leadership ends.
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) { gained <- leading },
			OnStoppedLeading: func() {},
			OnNewLeader: func(holder string) {
				l.waiting.Store(holder != l.cfg.Holder)
				if holder != l.cfg.Holder {
					l.log.Info().Str("held_by", holder).Msg("lease is held by another process, waiting for it")
				}
			},
		},
	})
	if err != nil {
		return false, fmt.Errorf("lease %s/%s: %w", l.cfg.Namespace, l.cfg.Name, err)
	}
	elected := make(chan struct{})
	go func() {
		defer close(elected)
		elector.Run(election)
	}()
	freed := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		l.watch(election, freed)
	}()
	defer func() {
		end()
		<-elected // or it would renew what is released
		<-watched
		if elector.IsLeader() {
			l.release(ctx)
		}
	}()
	select {
	case <-ctx.Done():
		return false, nil
	case <-freed:
		return false, nil // the next call begins with an attempt
	case leading := <-gained:
		late := context.AfterFunc(leading, func() { stop(errLate) })
		defer late()
		l.present.Store(lock)
		defer l.present.Store(nil)
		return l.runLeading(running, f)
	}
}

// runLeading runs f until the Lease is lost or ctx is done.
func (l *Lease) runLeading(ctx context.Context, f func(context.Context) error) (ended bool, err error) {
	l.log.Info().Msg("lease acquired")
	cancel := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, errLost) {
			l.log.Warn().Err(cause).Msg("lease lost")
		}
	})
	defer cancel()
	if err := f(ctx); err != nil {
		return true, err
	}
	return ctx.Err() == nil, nil
}

// Why a leadership ends.
var (
	errLost  = errors.New("the lease was lost")
	errLate  = fmt.Errorf("%w: it could not be renewed in time", errLost)
	errTaken = fmt.Errorf("%w: another process has or had it since", errLost)
)

// watch closes freed when the Lease is given back while another process waits
// for it. It only saves the time until the next attempt, so what goes wrong is
// left to that.
func (l *Lease) watch(ctx context.Context, freed chan<- struct{}) {
	again := time.NewTicker(retryTime)
	defer again.Stop()
	held := false // seen in the hands of another
	for {
		events, err := l.cfg.Leases.Leases(l.cfg.Namespace).Watch(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, l.cfg.Name).String(),
		})
		if err == nil {
			if l.follow(ctx, events, &held) {
				close(freed)
				return
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// follow reports whether the Lease was given back; false when the events end.
func (l *Lease) follow(ctx context.Context, events watch.Interface, held *bool) bool {
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case e, ok := <-events.ResultChan():
			if !ok {
				return false
			}
			lease, isLease := e.Object.(*coordinationv1.Lease)
			if !isLease {
				continue // an error, after which the events end
			}
			holder := ""
			if lease.Spec.HolderIdentity != nil && e.Type != watch.Deleted {
				holder = *lease.Spec.HolderIdentity
			}
			switch {
			case holder == l.cfg.Holder:
				*held = false
			case holder != "":
				*held = true
			case *held:
				return true
			}
		}
	}
}

// release gives the Lease back unless another process has it by now.
func (l *Lease) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	record, _, err := l.lock.Get(ctx)
	if err == nil && record.HolderIdentity != l.cfg.Holder {
		return
	}
	if err == nil {
		now := metav1.Now()
		err = l.lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now,
		})
	}
	if err != nil {
		l.log.Warn().Err(err).Dur("expires_in", leaseTime).
			Msg("cannot release the lease; another process waits until it expires")
		return
	}
	l.log.Info().Msg("lease released")
}

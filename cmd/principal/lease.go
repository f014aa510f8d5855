package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// leaseName names the Lease under which a hub's singleton controllers run.
const leaseName = "argomesh-principal"

// The usual times of Kubernetes' own controllers. A holder that cannot renew
// stops before another may begin.
const (
	leaseDuration = 15 * time.Second
	leaseRenew    = 10 * time.Second
	leaseRetry    = 2 * time.Second
)

// underLease runs f while this process holds the Lease, again each time it is
// gained, until ctx is done or f fails. No two runs of f overlap.
func underLease(ctx context.Context, leases coordination.LeasesGetter, namespace, holder string, f func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.Mutex // held while f runs
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
				Client:     leases,
				LockConfig: resourcelock.ResourceLockConfig{Identity: holder},
			},
			LeaseDuration: leaseDuration, RenewDeadline: leaseRenew, RetryPeriod: leaseRetry,
			// Not ReleaseOnCancel: it would let another begin while f still ends.
			Name: leaseName,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(term context.Context) {
					running.Lock()
					defer running.Unlock()
					if term.Err() != nil {
						return
					}
					if err := f(term); err != nil {
						stop(&failure{err})
					}
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return fmt.Errorf("lease %s/%s: %w", namespace, leaseName, err)
		}
		elector.Run(ctx)
	}
	running.Lock() // f has ended, or will not begin
	defer running.Unlock()
	var failed *failure
	if errors.As(context.Cause(ctx), &failed) {
		return failed.error
	}
	return nil
}

// failure tells f's error from the other causes of an end.
type failure struct{ error }

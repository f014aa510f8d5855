//go:build linux

package env

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/argomesh/argomesh/test/harness/broker"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// kindEnvironment is what tests ask a broker for: the shared environment of a name.
const kindEnvironment = "environment"

// served is an environment that other programs attach to.
type served struct {
	name     string
	describe func() (any, error) // starts it if need be
	note     func(failed bool)
	close    func() error
}

// Serve gives the tests of other programs the shared environments, one of each kind, and has
// them keep to the same limits, until ctx is done. Then it ends what it started.
func Serve(ctx context.Context, l net.Listener) error {
	environments := map[string]served{}
	for _, s := range []served{argoPool.served(), barePool.served(), livePool.served()} {
		environments[s.name] = s
	}
	limits := harnesstest.NewLimits()
	fitting, stop := context.WithCancel(ctx)
	defer stop()
	fitted := make(chan error, 1)
	go func() { fitted <- limits.Run(fitting) }()
	err := broker.Serve(ctx, l, func(ctx context.Context, r broker.Request) (any, func(bool), error) {
		if release, known, err := limits.Handle(ctx, r); known {
			return nil, release, err
		}
		s, ok := environments[r.Name]
		if r.Kind != kindEnvironment || !ok {
			return nil, nil, fmt.Errorf("there is no %s %s", r.Kind, r.Name)
		}
		description, err := s.describe()
		return description, s.note, err
	})
	stop()
	var (
		ends sync.WaitGroup
		mu   sync.Mutex
		errs = []error{err, <-fitted}
	)
	for _, s := range environments {
		ends.Go(func() {
			err := s.close()
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	ends.Wait()
	return errors.Join(errs...)
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/argomesh/argomesh/test/harness"
)

// stopTimeout bounds an ordered stop of all processes.
const stopTimeout = time.Minute

// down stops a running demo, ends what a crashed one left, and leaves nothing of
// either. Without any it says so and succeeds.
func down(ctx context.Context, opts options) error {
	owner, err := harness.Owner(opts.dir)
	if err != nil {
		return err
	}
	if owner == nil {
		if err := harness.CleanUp(opts.dir); err != nil {
			return err
		}
		fmt.Println("the demo does not run")
		return nil
	}
	fmt.Printf("stopping the demo, process %d\n", owner.Pid)
	if err := owner.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	err = harness.Eventually(ctx, "the demo to stop", func() error {
		if left, err := harness.Owner(opts.dir); err != nil || left != nil {
			return errors.Join(errors.New("it still runs"), err)
		}
		return nil
	})
	if err != nil {
		// Its processes die with it.
		return errors.Join(err, owner.Kill())
	}
	// It does so itself, unless it could not stop in order.
	if err := cleanUp(opts.dir); err != nil {
		return err
	}
	fmt.Println("stopped")
	return nil
}

// cleanUp removes what a demo that has ended left, unless the next one is there.
func cleanUp(dir string) error {
	if err := harness.CleanUp(dir); !errors.Is(err, harness.ErrRunning) {
		return err
	}
	return nil
}

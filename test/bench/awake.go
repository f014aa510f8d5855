//go:build linux

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// spin is a loop that ends with its parent.
const spin = `while kill -0 $PPID; do i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done; done`

// keepAwake keeps every core from sleeping until stop is called, with a loop of class
// SCHED_IDLE (sched(7)) for each, which runs only when no one else wants the core. A
// virtual machine that sleeps is woken by its host, in a time that a call between six
// processes takes a dozen times, and that differs from host to host by more than what is
// measured.
func keepAwake() (stop func(), err error) {
	var loops []*exec.Cmd
	stop = func() {
		for _, loop := range loops {
			_ = loop.Process.Kill() // fails when it has ended
			_ = loop.Wait()         // as it was told
		}
	}
	for range runtime.NumCPU() {
		loop := exec.Command("sh", "-c", spin) //nolint:noctx // stop ends it
		if err := loop.Start(); err != nil {
			stop()
			return nil, fmt.Errorf("keep the cores awake: %w", err)
		}
		loops = append(loops, loop)
		err := unix.SchedSetAttr(loop.Process.Pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			stop()
			return nil, fmt.Errorf("keep the cores awake: %w", err)
		}
	}
	return stop, nil
}

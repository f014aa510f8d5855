//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/tools/toolset"
)

// summaryFile holds what a running demo has printed, for a second start.
const summaryFile = "summary.txt"

// up runs the demo until ctx ends, and leaves nothing then. What failed leaves its logs.
func up(ctx context.Context, opts options) error {
	tools, err := toolset.Open()
	if err != nil {
		return err
	}
	begin := time.Now()
	h, err := harness.New(harness.Config{Dir: opts.dir, Tools: tools, Fresh: true})
	if errors.Is(err, harness.ErrRunning) {
		return again(opts)
	}
	if err != nil {
		return err
	}
	started := runUntilStopped(ctx, h, opts, begin)
	fmt.Println("stopping")
	stop, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := errors.Join(started, h.Close(stop)); err != nil {
		return fmt.Errorf("%w\nthe logs stay in %s until the next start or demo-down", err, h.Path("logs"))
	}
	return cleanUp(opts.dir)
}

// again answers a second start.
func again(opts options) error {
	summary, err := os.ReadFile(filepath.Join(opts.dir, summaryFile))
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println("the demo is being started by another process; its table comes when it is ready")
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Printf("the demo already runs\n\n%s", summary)
	return nil
}

// runUntilStopped returns nil when a started demo is told to stop.
func runUntilStopped(ctx context.Context, h *harness.Harness, opts options, begin time.Time) error {
	narrator := &narrator{begin: begin}
	start, cancel := context.WithTimeoutCause(ctx, opts.timeout, fmt.Errorf("not ready after %s", opts.timeout))
	defer cancel()
	t := newTopology(h, narrator)
	if err := t.start(start); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while it started
		}
		return err
	}
	if err := h.CheckLoopback(); err != nil {
		return err
	}
	summary, err := t.summary()
	if err != nil {
		return err
	}
	if err := os.WriteFile(h.Path(summaryFile), []byte(summary), 0o600); err != nil {
		return err
	}
	fmt.Printf("\n%s\nCtrl-C or `make demo-down` stops it.\n", summary)

	var keepers sync.WaitGroup
	for _, process := range h.Processes() {
		keepers.Go(func() { keep(ctx, narrator, process) })
	}
	keepers.Wait()
	return nil
}

// keep starts a process again whenever it ends, as a kubelet would, until ctx ends.
func keep(ctx context.Context, narrator *narrator, process *harness.Process) {
	const shortest, longest = time.Second, time.Minute
	pause := shortest
	for {
		begin := time.Now()
		select {
		case <-ctx.Done():
			return
		case <-process.Exited():
		}
		if time.Since(begin) > longest {
			pause = shortest
		}
		ended := "with exit code 0"
		if err := process.ExitError(); err != nil {
			ended = err.Error()
		}
		narrator.say("%s ended (%s) and is started again in %s", process.Name(), ended, pause)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, longest)
		switch err := process.Start(ctx); {
		case err == nil:
			narrator.say("%s is back", process.Name())
		case ctx.Err() == nil:
			narrator.say("%v", err)
		}
	}
}

// narrator tells what happens, with the time since the start.
type narrator struct {
	begin time.Time
	mu    sync.Mutex // guards standard output
}

func (n *narrator) say(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fmt.Printf("%5.1fs  %s\n", time.Since(n.begin).Seconds(), fmt.Sprintf(format, args...))
}

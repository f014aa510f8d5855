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
	"syscall"
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
	if opts.ui {
		if _, err := tools.Path("argocd-ui"); err != nil {
			fmt.Printf("without Argo CD's web interface: %v\n", err)
			opts.ui = false
		}
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
	life, end := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer end()
	t := newTopology(h, narrator, opts.ui, func(run func(context.Context) error) {
		background.Go(func() {
			if err := run(life); err != nil {
				narrator.say("%v", err)
			}
		})
	})
	if err := t.start(start); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while it started
		}
		return err
	}
	if err := h.CheckLoopback(); err != nil {
		return err
	}
	if err := t.present(); err != nil {
		return err
	}
	defer func() { _ = t.agents[autonomous].Signal(syscall.SIGCONT) }() // a frozen one does not end in order

	var keepers sync.WaitGroup
	for _, process := range h.Processes() {
		keepers.Go(func() { keep(ctx, narrator, process) })
	}
	keepers.Wait()
	return nil
}

// present prints what runs where, and serves the page and the trials that this names.
func (t *topology) present() error {
	if t.ui {
		address, err := t.h.Address()
		if err != nil {
			return err
		}
		t.signIn = newSignIn(address, t.hub.argocd.ServerAddress, t.hub.argocd.AdminPassword)
	}
	summary, err := t.summary()
	if err != nil {
		return err
	}
	write := func() error { return os.WriteFile(t.h.Path(summaryFile), []byte(t.opening()+summary), 0o600) }
	if t.signIn != nil {
		t.signIn.used = func() {
			if err := write(); err != nil {
				t.narrator.say("%v", err)
			}
			t.narrator.say("a browser has signed in by the link; the next one: %s", t.signIn.link())
		}
		t.background(t.signIn.run)
	}
	t.background(t.serveTrials)
	if err := write(); err != nil {
		return err
	}
	fmt.Printf("\n%s%s\nCtrl-C or `make demo-down` stops it.\n", t.opening(), summary)
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

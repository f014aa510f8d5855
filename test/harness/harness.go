//go:build linux

// Package harness runs real control planes as processes of this machine: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler, kwok, Argo CD, Redis,
// Envoy and our own binaries. The end-to-end tests and `make demo` use it.
//
// Everything it starts listens on loopback, writes one log file and lives below one
// work folder:
//
//	h, err := harness.New(harness.Config{Dir: dir, Tools: tools})
//	...
//	defer h.Close(context.Background())
//	hub, err := h.StartControlPlane(ctx, harness.ControlPlaneConfig{Name: "hub"})
//	...
//	argo, err := h.StartArgoCD(ctx, harness.ArgoCDConfig{ControlPlane: hub, Server: true})
//	...
//	principal, err := h.Start(ctx, harness.Command{
//		Name:  "principal",
//		Path:  filepath.Join(bin, "principal"),
//		Args:  []string{"--config", file},
//		Ready: harness.HTTPReady("http://" + admin + "/readyz"),
//	})
//
// A start returns when the thing answers, or fails with the end of its log. Nothing
// survives its starter: processes die with the program that uses the harness, even
// if that is killed, and CleanUp ends and removes what it left. Package
// harnesstest adapts the harness to package testing.
//
// It runs on Linux: process identity, the parent-death signal and the check of
// listeners come from /proc and prctl(2).
package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/argomesh/argomesh/test/tools/toolset"
)

// Config holds what a Harness needs. Dir and Tools are required.
type Config struct {
	// Dir is the work folder. It is created if need be; one that belongs to another user,
	// or to which others may write, is refused. Keep its path short, since unix sockets
	// below it may be at most 107 bytes long.
	Dir string
	// Tools says where the servers are.
	Tools *toolset.Set
	// Fresh removes what an earlier run left in Dir. A folder that holds files and was
	// never a work folder is refused.
	Fresh bool
	// Crowded says that there are many more servers than cores: each server that is
	// written in Go runs on one core at a time, which saves what its threads cost by
	// waking each other, a quarter of what an idle kube-apiserver takes. Ours run as
	// they do elsewhere.
	Crowded bool
	// Turn waits until another control plane may start, and returns what says that it has.
	// name is that of the control plane, with the work folder. Nil means that any number may
	// start at a time.
	Turn func(ctx context.Context, name string) (done func(), err error)
}

// Harness starts processes and ends them. Its methods may be called concurrently.
type Harness struct {
	dir     string
	tools   *toolset.Set
	crowded bool
	turns   func(ctx context.Context, name string) (done func(), err error)
	spawner *spawner
	ports   *portAllocator

	mu        sync.Mutex // guards the fields below
	processes []*Process // in order of their first start
	closed    bool
}

// New prepares the work folder and starts no process. It fails when another harness
// that is alive uses the folder, and ends what a dead one left there.
func New(cfg Config) (*Harness, error) {
	if cfg.Dir == "" || cfg.Tools == nil {
		return nil, errors.New("harness: Config.Dir and Config.Tools are required")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, err
	}
	if err := checkOurs(dir); err != nil {
		return nil, err
	}
	if cfg.Fresh {
		if err := checkUsed(dir); err != nil {
			return nil, err
		}
	}
	if err := claim(dir); err != nil {
		return nil, err
	}
	if err := killRecorded(dir); err != nil {
		return nil, err
	}
	if cfg.Fresh {
		if err := empty(dir); err != nil {
			return nil, err
		}
	}
	for _, sub := range []string{"logs", pidDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	return &Harness{
		dir:     dir,
		tools:   cfg.Tools,
		crowded: cfg.Crowded,
		turns:   cfg.Turn,
		spawner: newSpawner(),
		ports:   newPortAllocator(),
	}, nil
}

// turn waits until another control plane may start, and returns what says that it has.
func (h *Harness) turn(ctx context.Context, name string) (done func(), err error) {
	if h.turns == nil {
		return func() {}, nil
	}
	done, err = h.turns(ctx, h.Path(name))
	if err != nil {
		return nil, fmt.Errorf("wait for other control planes to start: %w", err)
	}
	return done, nil
}

// serverEnv adds to the environment of a server that tests need, and do not test, what
// Config asks for.
func (h *Harness) serverEnv(env ...string) []string {
	if h.crowded {
		env = append(env, "GOMAXPROCS=1")
	}
	return env
}

// Path joins elem to the work folder. It creates nothing.
func (h *Harness) Path(elem ...string) string {
	return filepath.Join(append([]string{h.dir}, elem...)...)
}

// Tools says where the servers are.
func (h *Harness) Tools() *toolset.Set { return h.tools }

// Processes returns every process started so far, in order of their first start.
// Some may have ended.
func (h *Harness) Processes() []*Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.processes)
}

// Close stops every process, last started first, and gives the work folder free. It
// leaves the files. Processes still running when ctx is done are killed. It may be
// called more than once.
func (h *Harness) Close(ctx context.Context) error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	processes := slices.Clone(h.processes)
	h.mu.Unlock()

	slices.Reverse(processes)
	var errs []error
	for _, p := range processes {
		if err := p.Stop(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	// The spawner's thread is the parent the children die with, so it goes last.
	h.spawner.stop()
	return errors.Join(append(errs, h.ports.free(), unclaim(h.dir))...)
}

// add registers a process once; a closed harness takes no more.
func (h *Harness) add(p *Process) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return fmt.Errorf("start %s: the harness is closed", p.cmd.Name)
	}
	for _, other := range h.processes {
		if other.cmd.Name == p.cmd.Name {
			return fmt.Errorf("start %s: a process of that name exists; restart that one", p.cmd.Name)
		}
	}
	h.processes = append(h.processes, p)
	return nil
}

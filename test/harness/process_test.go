//go:build linux

package harness_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/tools/toolset"
)

// printed is a Ready function: the process has written "ready" in this life. All
// lives share one log.
func printed(h *harness.Harness, name string) func(context.Context) error {
	lives := 1
	return func(context.Context) error {
		content, err := os.ReadFile(h.Path("logs", name+".log"))
		if err != nil {
			return err
		}
		if strings.Count(string(content), "ready") < lives {
			return errors.New("it has not said so")
		}
		lives++
		return nil
	}
}

func TestProcessLife(t *testing.T) {
	h := harnesstest.New(t)
	cmd := role("idle")
	cmd.Ready = printed(h, "idle")
	p, err := h.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	first := p.PID()
	if first == 0 {
		t.Fatal("a started process has no pid")
	}
	if err := p.Start(t.Context()); err != nil || p.PID() != first {
		t.Errorf("Start of a running process = %v, pid %d, want none and %d", err, p.PID(), first)
	}
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if second := p.PID(); second == 0 || second == first {
		t.Errorf("pid after Restart = %d, the first was %d", second, first)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.PID() != 0 || p.ExitError() != nil {
		t.Errorf("after Stop: pid %d, exit %v, want 0 and none: SIGTERM ends it in order", p.PID(), p.ExitError())
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("Stop of a stopped process = %v", err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	var exit *exec.ExitError
	if !errors.As(p.ExitError(), &exit) {
		t.Errorf("ExitError after Kill = %v", p.ExitError())
	}
	if _, err := h.Start(t.Context(), role("idle")); err == nil {
		t.Error("two processes may have the same name")
	}
}

func TestStopKillsAfterGrace(t *testing.T) {
	h := harnesstest.New(t)
	cmd := role("stubborn")
	cmd.Grace = 100 * time.Millisecond
	cmd.Ready = printed(h, "stubborn")
	p, err := h.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(t.Context()); err == nil {
		t.Error("Stop hides that it had to kill")
	}
	if p.PID() != 0 {
		t.Error("the process survived Stop")
	}
}

func TestStartReportsTheLog(t *testing.T) {
	h := harnesstest.New(t)
	cmd := role("failing")
	cmd.Ready = func(context.Context) error { return errors.New("never") }
	_, err := h.Start(t.Context(), cmd)
	for _, want := range []string{"start failing", "exit status 3", "pod bay doors"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start() = %v, want it to contain %q", err, want)
		}
	}
}

func TestStartHonoursContext(t *testing.T) {
	h := harnesstest.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	cmd := role("idle")
	cmd.Ready = func(context.Context) error { return errors.New("still warming up") }
	_, err := h.Start(ctx, cmd)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "still warming up") {
		t.Errorf("Start() = %v, want the deadline and what was missing", err)
	}
	for _, p := range h.Processes() {
		if p.PID() != 0 {
			t.Error("a process that did not become ready still runs")
		}
	}
}

// A program that insists on all addresses runs, and its port stays closed.
func TestNoListen(t *testing.T) {
	harnesstest.SkipMissing(t, "nolisten")
	h := harnesstest.New(t)
	port, err := h.Port()
	if err != nil {
		t.Fatal(err)
	}
	cmd := role("listener", dirVariable+"="+strconv.Itoa(port))
	cmd.NoListen = true
	cmd.Ready = printed(h, "listener")
	p, err := h.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.CheckLoopback(); err != nil {
		t.Error(err)
	}
	if conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second); err == nil {
		t.Error("the port is open", conn.Close())
	}
	if p.PID() == 0 {
		t.Errorf("the program ended: %v\n%s", p.ExitError(), p.LogTail(10))
	}
}

func TestListenersAreSeen(t *testing.T) {
	harnesstest.SkipMissing(t, "redis-server")
	h := harnesstest.New(t)
	redis, err := h.StartRedis(t.Context(), "redis")
	if err != nil {
		t.Fatal(err)
	}
	listeners, err := h.Listeners()
	if err != nil {
		t.Fatal(err)
	}
	if len(listeners) != 1 || listeners[0].Address.String() != redis.Address || listeners[0].Process != "redis" {
		t.Errorf("Listeners() = %v, want redis at %s alone", listeners, redis.Address)
	}
}

// What a process has started is seen under its name, by UDP too.
func TestListenersOfDescendantsAreSeen(t *testing.T) {
	h := harnesstest.New(t)
	var address string
	cmd := role("parent")
	cmd.Ready = func(context.Context) error {
		content, err := os.ReadFile(h.Path("logs", "parent.log"))
		if err != nil {
			return err
		}
		var whole bool
		if address, whole = strings.CutSuffix(string(content), "\n"); !whole {
			return errors.New("it has not said where it listens")
		}
		return nil
	}
	p, err := h.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	listeners, err := h.Listeners()
	if err != nil {
		t.Fatal(err)
	}
	if len(listeners) != 1 || listeners[0].String() != address+"/udp" || listeners[0].Process != "parent" {
		t.Errorf("Listeners() = %v, want parent at %s/udp alone", listeners, address)
	}
	alone, err := p.Memory()
	if err != nil {
		t.Fatal(err)
	}
	if together, err := p.FamilyMemory(); err != nil || together <= alone {
		t.Errorf("FamilyMemory() = %d, %v, want that of its child beside its own %d", together, err, alone)
	}
	if peak, err := p.PeakResident(); err != nil || peak < alone {
		t.Errorf("PeakResident() = %d, %v, want no less than what it has now, %d", peak, err, alone)
	}
	before, err := p.Worked()
	if err != nil {
		t.Fatal(err)
	}
	if now, err := p.Worked(); err != nil || now < before {
		t.Errorf("Worked() = %s, %v, and %s before", now, err, before)
	}
}

// When the owner is killed its processes die with it, and the work folder is free.
func TestOwnerIsKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "work")
	cmd := role("owner")
	owner := exec.Command(cmd.Path)
	owner.Env = append(os.Environ(), roleVariable+"=owner", dirVariable+"="+dir)
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			_ = owner.Process.Kill()
			_ = owner.Wait()
		}
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}

	tools, err := toolset.Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := harness.New(harness.Config{Dir: dir, Tools: tools}); !errors.Is(err, harness.ErrRunning) {
		t.Errorf("New() in the folder of a living owner = %v, want ErrRunning", err)
	}
	if err := harness.CleanUp(dir); !errors.Is(err, harness.ErrRunning) {
		t.Errorf("CleanUp() of the folder of a living owner = %v, want ErrRunning", err)
	}
	if err := syscall.Kill(child, 0); err != nil {
		t.Fatalf("the process of the living owner: %v", err)
	}

	ended = true
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // it was killed
	if err := harness.Eventually(t.Context(), "the process to die with its owner", func() error {
		// Anyone who inherits the dead process may be slow to collect it.
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", child))
		if err == nil && !strings.Contains(string(status), "State:\tZ") {
			return fmt.Errorf("process %d lives", child)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := harness.CleanUp(dir); err != nil {
		t.Error(err)
	}
	h, err := harness.New(harness.Config{Dir: dir, Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

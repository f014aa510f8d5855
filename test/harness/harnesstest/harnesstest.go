//go:build linux

// Package harnesstest adapts package harness to package testing.
//
//	func TestSync(t *testing.T) {
//		harnesstest.SkipMissing(t, "etcd", "kube-apiserver")
//		h := harnesstest.New(t)
//		hub, err := h.StartControlPlane(t.Context(), harness.ControlPlaneConfig{Name: "hub"})
//		...
//	}
package harnesstest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/tools/toolset"
)

// Eventually is harness.Eventually for at most so long. The test fails when check does not
// return nil in time.
func Eventually(t testing.TB, within time.Duration, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := harness.Eventually(ctx, what, check); err != nil {
		t.Fatal(err)
	}
}

// stopTimeout bounds stopping all processes of one test, one after the other. What each of
// them may take is less.
const stopTimeout = harness.Patience

// New returns a harness that ends with the test. The test fails when a process can be
// reached from other machines at that time, or has to be killed. The work folder is
// removed when the test has passed and named when it has not. It waits as Busy does.
func New(t testing.TB) *harness.Harness {
	t.Helper()
	Busy(t, "")
	return AtOnce(t)
}

// AtOnce is New for a test that does not wait as Busy does: one that takes longer than
// the others, and mostly waits.
func AtOnce(t testing.TB) *harness.Harness {
	t.Helper()
	return closed(t, true)
}

// Alone is AtOnce for a test beside which no other runs: its servers may use all processors,
// as real ones do, so that what it measures is not how they share one.
func Alone(t testing.TB) *harness.Harness {
	t.Helper()
	return closed(t, false)
}

func closed(t testing.TB, crowded bool) *harness.Harness {
	t.Helper()
	h, err := open(crowded)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Close(t, h, stopTimeout, t.Failed()) })
	return h
}

// Open returns a harness for which the caller calls Close. The control planes of all
// harnesses that it returned start two at a time.
func Open() (*harness.Harness, error) { return open(true) }

func open(crowded bool) (*harness.Harness, error) {
	tools, err := toolset.Open()
	if err != nil {
		return nil, err
	}
	// Not t.TempDir: its name holds that of the test and soon is too long for a
	// unix socket.
	dir, err := os.MkdirTemp("", "argomesh-")
	if err != nil {
		return nil, err
	}
	h, err := harness.New(harness.Config{Dir: dir, Tools: tools, Crowded: crowded, Turn: start})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return h, nil
}

// Close ends what Open returned, as End does, and the test fails when that does.
func Close(t testing.TB, h *harness.Harness, timeout time.Duration, keep bool) {
	t.Helper()
	logs, err := End(h, timeout, keep)
	if err != nil {
		t.Error(err)
	}
	if logs != "" {
		t.Logf("the logs are in %s", logs)
	}
}

// End ends what Open returned. It fails when a process can be reached from other machines at
// that time, or has to be killed after timeout. The work folder is removed unless keep is set
// or that fails; logs says where they are then.
func End(h *harness.Harness, timeout time.Duration, keep bool) (logs string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err = errors.Join(h.CheckLoopback(), h.Close(ctx))
	if keep || err != nil {
		return h.Path("logs"), err
	}
	return "", os.RemoveAll(h.Path())
}

// Binary returns the path of one of our own programs, as `make build` leaves it. The test fails
// when it is not there.
func Binary(t testing.TB, name string) string {
	t.Helper()
	path, err := harness.Binary(Tools(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Tools says where the servers are, built or not. SkipMissing looks whether they are.
func Tools(t testing.TB) *toolset.Set {
	t.Helper()
	tools, err := toolset.Open()
	if err != nil {
		t.Fatal(err)
	}
	return tools
}

// SkipMissing skips the test unless all named programs are built or installed. It
// fails instead when CI is set: there a skip would hide that nothing was tested.
func SkipMissing(t testing.TB, programs ...string) {
	t.Helper()
	tools := Tools(t)
	for _, program := range programs {
		_, err := tools.Path(program)
		switch {
		case err == nil:
		case errors.Is(err, toolset.ErrMissing) && os.Getenv("CI") == "":
			t.Skip(err)
		default:
			t.Fatal(err)
		}
	}
}

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

// stopTimeout bounds stopping all processes of one test.
const stopTimeout = 30 * time.Second

// New returns a harness that ends with the test. The test fails when a process can be
// reached from other machines at that time, or has to be killed. The work folder is
// removed when the test has passed and named when it has not. It waits as Busy does.
func New(t testing.TB) *harness.Harness {
	t.Helper()
	Busy(t)
	return AtOnce(t)
}

// AtOnce is New for a test that does not wait as Busy does: one that takes longer than
// the others, and mostly waits.
func AtOnce(t testing.TB) *harness.Harness {
	t.Helper()
	tools := Tools(t)
	// Not t.TempDir: its name holds that of the test and soon is too long for a
	// unix socket.
	dir, err := os.MkdirTemp("", "argomesh-")
	if err != nil {
		t.Fatal(err)
	}
	h, err := harness.New(harness.Config{Dir: dir, Tools: tools, Crowded: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.CheckLoopback(); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the logs are in %s", h.Path("logs"))
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return h
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

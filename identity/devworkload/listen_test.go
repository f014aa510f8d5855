package devworkload_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/identity/devworkload"
)

// shortDir returns a new folder whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestListen(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "s")
	l, err := devworkload.Listen(context.Background(), path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("socket has mode %o, want 600", got)
	}

	t.Run("refuses a socket in use", func(t *testing.T) {
		if _, err := devworkload.Listen(context.Background(), path, 0o600); err == nil || !strings.Contains(err.Error(), "another process") {
			t.Errorf("Listen() = %v", err)
		}
	})
	t.Run("takes over a stale socket", func(t *testing.T) {
		unix, ok := l.(*net.UnixListener)
		if !ok {
			t.Fatalf("Listen() gave a %T", l)
		}
		unix.SetUnlinkOnClose(false) // as a killed process leaves it
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Fatalf("no stale socket to take over: %v", err)
		}
		again, err := devworkload.Listen(context.Background(), path, 0o777)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("refuses to remove a file", func(t *testing.T) {
		file := filepath.Join(dir, "f")
		if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := devworkload.Listen(context.Background(), file, 0o600); err == nil || !strings.Contains(err.Error(), "not a socket") {
			t.Errorf("Listen() = %v", err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != "precious" {
			t.Errorf("the file now holds %q, %v", got, err)
		}
	})
	t.Run("refuses a path too long", func(t *testing.T) {
		long := filepath.Join(dir, strings.Repeat("x", 107-len(dir)-1))
		fits, err := devworkload.Listen(context.Background(), long, 0o600)
		if err != nil {
			t.Fatalf("107 bytes: %v", err)
		}
		if err := fits.Close(); err != nil {
			t.Error(err)
		}
		if _, err := devworkload.Listen(context.Background(), long+"x", 0o600); err == nil || !strings.Contains(err.Error(), "107") {
			t.Errorf("108 bytes: %v", err)
		}
	})
}

package listen_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/argomesh/argomesh/cmd/internal/listen"
)

func TestOpen(t *testing.T) {
	for name, address := range map[string]string{
		"a free port":   "127.0.0.1:0",
		"a unix socket": "unix://" + filepath.Join(socketDir(t), "s"),
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, address)
			conn, err := net.Dial(l.Addr().Network(), l.Addr().String())
			if err != nil {
				t.Fatalf("nobody listens on %s: %v", address, err)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOpenUnixSocketMode(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	l := open(t, "unix://"+path)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode of the socket = %v, %v, want 0660", info.Mode(), err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket's file is still there after Close: %v", err)
	}
}

func TestOpenReplacesAbandonedSocket(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	killed.SetUnlinkOnClose(false) // as kill -9 leaves it
	if err := killed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, "unix://"+path).Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenErrors(t *testing.T) {
	tcp := open(t, "127.0.0.1:0").Addr().String()
	dir := socketDir(t)
	unix := "unix://" + filepath.Join(dir, "taken")
	open(t, unix)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := "unix:///" + strings.Repeat("x", 107)

	for name, c := range map[string]struct {
		address, want string
		errno         error
	}{
		"a port in use": {
			tcp, "admin.listen: listen on " + tcp + ": address already in use: stop the process that has it, or choose another address",
			syscall.EADDRINUSE,
		},
		"a unix socket in use": {
			unix, "admin.listen: listen on " + unix + ": address already in use: stop the process that has it, or choose another path",
			syscall.EADDRINUSE,
		},
		"a file that is no socket": {
			"unix://" + file, "admin.listen: listen on unix://" + file + ": address already in use: stop the process that has it, or choose another path",
			syscall.EADDRINUSE,
		},
		"a folder that is missing": {
			"unix://" + dir + "/no/s", "admin.listen: listen on unix://" + dir + "/no/s: no such file or directory: create its folder, or choose another path",
			syscall.ENOENT,
		},
		"an address of another machine": {
			"192.0.2.1:1", "admin.listen: listen on 192.0.2.1:1: cannot assign requested address: choose an address of this machine",
			syscall.EADDRNOTAVAIL,
		},
		"no port":         {"8080", `admin.listen: "8080" is not an address: use host:port, such as 127.0.0.1:8080, or unix:///path`, nil},
		"an empty port":   {"localhost:", `admin.listen: "localhost:" is not an address: use host:port, such as 127.0.0.1:8080, or unix:///path`, nil},
		"a port too high": {":65536", `admin.listen: ":65536" is not an address: use host:port, such as 127.0.0.1:8080, or unix:///path`, nil},
		"a URL":           {"http://:80", `admin.listen: "http://:80" is not an address: use host:port, such as 127.0.0.1:8080, or unix:///path`, nil},
		"a relative path": {
			"unix://run/s",
			`admin.listen: "unix://run/s" is not an address: a unix socket is unix:// and an absolute path, such as unix:///run/argomesh/xds.sock`, nil,
		},
		"a path too long": {long, `admin.listen: the path of "` + long + `" has 108 bytes: the system allows 107`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := listen.Open(context.Background(), "admin.listen", c.address)
			if err == nil {
				t.Fatalf("Open(%q) listens on %v", c.address, l.Addr())
			}
			if err.Error() != c.want {
				t.Errorf("Open(%q)\n got %q\nwant %q", c.address, err, c.want)
			}
			if c.errno != nil && !errors.Is(err, c.errno) {
				t.Errorf("Open(%q) error does not wrap %v", c.address, c.errno)
			}
		})
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "precious" {
		t.Errorf("the file at the path was changed: %q, %v", got, err)
	}
}

func open(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := listen.Open(t.Context(), "admin.listen", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // closed twice in some tests
	return l
}

// socketDir is a folder whose path is short enough for sockets on every system.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "listen")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

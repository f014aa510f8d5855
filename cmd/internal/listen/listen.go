// Package listen opens the sockets the binaries serve on. It owns the forms of
// an address and says in one line, with the setting's key, why a socket cannot
// be had. What is served on it is left to others.
//
//	l, err := listen.Open(ctx, "admin.listen", cfg.Admin.Listen)
package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	unixScheme = "unix://"
	// maxUnixPath is the longest path of a unix socket, in bytes: sun_path of
	// unix(7) less the closing zero.
	maxUnixPath = 107
	// unixMode lets the owner's group connect: containers of one pod share a
	// group (fsGroup) more often than a user.
	unixMode fs.FileMode = 0o660
)

// Parse splits an address into the network and address package net knows.
// Accepted are host:port, where an empty host is every address of the machine
// and port 0 a free port, and unix:///path with an absolute path.
func Parse(address string) (network, netAddress string, err error) {
	if path, ok := strings.CutPrefix(address, unixScheme); ok {
		switch {
		case !filepath.IsAbs(path) || filepath.Clean(path) == "/":
			return "", "",
				fmt.Errorf("%q is not an address: a unix socket is unix:// and an absolute path, such as unix:///run/argomesh/xds.sock", address)
		case len(path) > maxUnixPath:
			return "", "", fmt.Errorf("the path of %q has %d bytes: the system allows %d", address, len(path), maxUnixPath)
		}
		return "unix", path, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || strings.ContainsAny(host, "/ ") {
		return "", "", fmt.Errorf("%q is not an address: use host:port, such as 127.0.0.1:8080, or unix:///path", address)
	}
	return "tcp", address, nil
}

// Open listens on address. The error is one line that begins with key and says
// what to do; it wraps the system's errno where there is one. The file of a unix
// socket that no one serves any more is replaced; a socket's file goes when
// its listener is closed.
func Open(ctx context.Context, key, address string) (net.Listener, error) {
	network, netAddress, err := Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if network == "unix" {
		if err := removeStale(ctx, netAddress); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, network, netAddress)
	if err != nil {
		return nil, explain(key, address, network, err)
	}
	if network == "unix" {
		if err := os.Chmod(netAddress, unixMode); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: let the group connect: %w", key, err), l.Close())
		}
	}
	return l, nil
}

// removeStale removes the socket file a killed process left behind: one on
// which no one accepts. Anything else at path stays.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return nil //nolint:nilerr // listening reports what is wrong with the path
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		return conn.Close() // alive: listening says that it is in use
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket an earlier process left: %w", err)
	}
	return nil
}

// cures says what to do about an error of listening, per network.
var cures = map[string][]struct {
	errno syscall.Errno
	cure  string
}{
	"tcp": {
		{syscall.EADDRINUSE, "stop the process that has it, or choose another address"},
		{syscall.EACCES, "choose a port from 1024 on, or grant CAP_NET_BIND_SERVICE"},
		{syscall.EADDRNOTAVAIL, "choose an address of this machine"},
	},
	"unix": {
		{syscall.EADDRINUSE, "stop the process that has it, or choose another path"},
		{syscall.EACCES, "make the folder writable for this process, or choose another path"},
		{syscall.ENOENT, "create its folder, or choose another path"},
		{syscall.EROFS, "choose a path on a writable file system"},
	},
}

func explain(key, address, network string, err error) error {
	for _, known := range cures[network] {
		if errors.Is(err, known.errno) {
			return fmt.Errorf("%s: listen on %s: %w: %s", key, address, known.errno, known.cure)
		}
	}
	var unresolved *net.DNSError
	if errors.As(err, &unresolved) {
		return fmt.Errorf("%s: listen on %s: host %q cannot be resolved: use an IP address of this machine", key, address,
			unresolved.Name)
	}
	return fmt.Errorf("%s: %w", key, err)
}

package devworkload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
)

// maxSocketPathBytes is the longest path a unix socket can have on Linux, in
// bytes (unix(7): 108 with the closing zero).
const maxSocketPathBytes = 107

// Listen opens a unix socket at path, which only the owner may use when mode is
// 0600, and everyone on this machine when it is 0777. A socket there that
// no one serves any more is removed; anything else there is an error.
func Listen(ctx context.Context, path string, mode fs.FileMode) (net.Listener, error) {
	if path == "" {
		return nil, errors.New("listen: socket path is empty")
	}
	if len(path) > maxSocketPathBytes {
		return nil, fmt.Errorf("listen: socket path %s has %d bytes, a unix socket allows %d: choose a shorter one",
			path, len(path), maxSocketPathBytes)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err // says "listen unix <path>" itself
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("listen: %w", err), l.Close())
	}
	return l, nil
}

// removeStale removes a socket that a process left behind when it was killed.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listen: %s exists and is not a socket: choose another path", path)
	}
	var dialer net.Dialer
	if conn, err := dialer.DialContext(ctx, "unix", path); err == nil {
		_ = conn.Close() // it only had to open
		return fmt.Errorf("listen: %s is served by another process: stop that one or choose another path", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

//go:build linux

package harness

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Listener is a TCP socket on which a process accepts connections.
type Listener struct {
	Process string // name given to Start
	Address netip.AddrPort
}

// Listeners returns the TCP listeners of all running processes.
func (h *Harness) Listeners() ([]Listener, error) {
	sockets, err := listeningSockets()
	if err != nil {
		return nil, err
	}
	var listeners []Listener
	for _, p := range h.Processes() {
		pid := p.PID()
		if pid == 0 {
			continue
		}
		inodes, err := socketsOf(pid)
		if err != nil {
			return nil, fmt.Errorf("list sockets of %s: %w", p.Name(), err)
		}
		for _, inode := range inodes {
			if address, ok := sockets[inode]; ok {
				listeners = append(listeners, Listener{p.Name(), address})
			}
		}
	}
	return listeners, nil
}

// CheckLoopback returns an error that names every process which can be reached from
// another machine.
func (h *Harness) CheckLoopback() error {
	listeners, err := h.Listeners()
	if err != nil {
		return err
	}
	return checkLoopback(listeners)
}

func checkLoopback(listeners []Listener) error {
	var errs []error
	for _, l := range listeners {
		if !l.Address.Addr().Unmap().IsLoopback() {
			errs = append(errs, fmt.Errorf("%s listens on %s, which is not loopback", l.Process, l.Address))
		}
	}
	return errors.Join(errs...)
}

// socketsOf returns the inodes of the sockets a process has open.
func socketsOf(pid int) ([]string, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // ended in the meantime
	}
	if err != nil {
		return nil, err
	}
	var inodes []string
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(dir, entry.Name()))
		if err != nil {
			continue // closed in the meantime
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes = append(inodes, strings.TrimSuffix(inode, "]"))
		}
	}
	return inodes, nil
}

// listeningSockets returns the addresses of all TCP listeners by inode.
func listeningSockets() (map[string]netip.AddrPort, error) {
	sockets := make(map[string]netip.AddrPort)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		err = parseSocketTable(f, sockets)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("read %s: %w", table, err)
		}
	}
	return sockets, nil
}

func parseSocketTable(f io.Reader, into map[string]netip.AddrPort) error {
	const listen = "0A" // TCP_LISTEN
	lines := bufio.NewScanner(f)
	lines.Scan() // heading
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != listen {
			continue
		}
		address, err := parseSocketAddress(fields[1])
		if err != nil {
			return err
		}
		into[fields[9]] = address
	}
	return lines.Err()
}

// parseSocketAddress reads the form of /proc/net/tcp and tcp6: each 32-bit word of
// the address in the machine's byte order, which is little-endian on all platforms
// the harness runs on, and the port, all in hexadecimal.
func parseSocketAddress(s string) (netip.AddrPort, error) {
	host, port, ok := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	if !ok || err != nil || (len(raw) != 4 && len(raw) != 16) {
		return netip.AddrPort{}, fmt.Errorf("unexpected address %q", s)
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("unexpected address %q", s)
	}
	address, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(address, uint16(number)), nil
}

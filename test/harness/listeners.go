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

// Listener is a TCP socket on which a process accepts connections, or a UDP socket that
// takes what anybody sends.
type Listener struct {
	Process string // name given to Start, of the process or of the one that it descends from
	Network string // tcp or udp
	Address netip.AddrPort
}

// String is the address, and that it is not TCP.
func (l Listener) String() string {
	if l.Network == "udp" {
		return l.Address.String() + "/udp"
	}
	return l.Address.String()
}

// Listeners returns the listeners of all running processes and of what these started.
func (h *Harness) Listeners() ([]Listener, error) {
	names := make(map[int]string)
	for _, p := range h.Processes() {
		if pid := p.PID(); pid != 0 {
			names[pid] = p.Name()
		}
	}
	return listenersOf(names)
}

// CheckLoopback returns an error that names every process which can be reached from
// another machine: one of those that run now, or that such a one started.
func (h *Harness) CheckLoopback() error { return checkLoopbackTwice(h.Listeners) }

// checkLoopbackTwice looks again for UDP sockets: one that connects is bound to all
// addresses for some microseconds before.
func checkLoopbackTwice(list func() ([]Listener, error)) error {
	first, err := listReachable(list)
	if err != nil || len(first) == 0 {
		return err
	}
	again, err := listReachable(list)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range first {
		if l.Network == "tcp" || slices.Contains(again, l) {
			errs = append(errs, fmt.Errorf("%s listens on %s, which is not loopback", l.Process, l))
		}
	}
	return errors.Join(errs...)
}

func listReachable(list func() ([]Listener, error)) ([]Listener, error) {
	all, err := list()
	return slices.DeleteFunc(all, func(l Listener) bool { return !l.reachable() }), err
}

// reachable reports whether another machine can send to the listener.
func (l Listener) reachable() bool { return !l.Address.Addr().Unmap().IsLoopback() }

// listenersOf returns the listeners of processes, by pid, and of what these started, under
// the names of the former.
func listenersOf(names map[int]string) ([]Listener, error) {
	children, err := listChildren()
	if err != nil {
		return nil, err
	}
	sockets, err := listeningSockets()
	if err != nil {
		return nil, err
	}
	var listeners []Listener
	for pid, name := range names {
		for _, member := range children.family(pid) {
			inodes, err := socketsOf(member)
			if err != nil {
				return nil, fmt.Errorf("list sockets of %s, process %d: %w", name, member, err)
			}
			for _, inode := range inodes {
				if s, ok := sockets[inode]; ok {
					delete(sockets, inode) // a child may have inherited it
					listeners = append(listeners, Listener{Process: name, Network: s.network, Address: s.address})
				}
			}
		}
	}
	return listeners, nil
}

// socketsOf returns the inodes of the sockets a process has open.
func socketsOf(pid int) ([]string, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		// What has ended and was not collected shows its files to no one but root.
		if stat, statErr := statOf(pid); hasEnded(statErr) || statErr == nil && stat.dead() {
			return nil, nil
		}
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

// socket is one that listens.
type socket struct {
	network string // tcp or udp
	address netip.AddrPort
}

// listeningSockets returns all listeners by inode.
func listeningSockets() (map[string]socket, error) {
	sockets := make(map[string]socket)
	for _, network := range []string{"tcp", "udp"} {
		for _, version := range []string{"", "6"} {
			table := "/proc/net/" + network + version
			f, err := os.Open(table)
			if errors.Is(err, fs.ErrNotExist) {
				continue // a kernel without IPv6
			}
			if err != nil {
				return nil, err
			}
			err = parseSocketTable(f, network, sockets)
			if err := errors.Join(err, f.Close()); err != nil {
				return nil, fmt.Errorf("read %s: %w", table, err)
			}
		}
	}
	return sockets, nil
}

// listening are the states of sockets that listen: TCP_LISTEN, and TCP_CLOSE, which is
// that of a UDP socket without a peer.
var listening = map[string]string{"tcp": "0A", "udp": "07"}

func parseSocketTable(f io.Reader, network string, into map[string]socket) error {
	lines := bufio.NewScanner(f)
	lines.Scan() // heading
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != listening[network] {
			continue
		}
		address, err := parseSocketAddress(fields[1])
		if err != nil {
			return err
		}
		into[fields[9]] = socket{network, address}
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

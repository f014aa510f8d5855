//go:build linux

package harness

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

const (
	// Ports are taken below the range from which the kernel takes the ports of
	// outgoing connections, so that none of those gets in between.
	lowestPort = 10000
	// defaultEphemeral is the kernel's default start of that range.
	defaultEphemeral = 32768
)

// portAllocator gives every port once, and to one harness at a time.
type portAllocator struct {
	limit int // exclusive

	mu    sync.Mutex // guards given
	given map[int]net.Listener
}

func newPortAllocator() *portAllocator {
	limit := defaultEphemeral
	if content, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		low, _, _ := strings.Cut(strings.TrimSpace(string(content)), "\t")
		if n, err := strconv.Atoi(low); err == nil && n > lowestPort+1000 {
			limit = n
		}
	}
	return &portAllocator{limit: limit, given: make(map[int]net.Listener)}
}

// reserve takes the port among all harnesses in this network namespace. It returns nil if one
// has it. What it takes is an abstract Unix socket: those are per network namespace, as ports
// are, and end with their process.
func reserve(port int) (net.Listener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: "@argomesh-harness-port-" + strconv.Itoa(port)})
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return l, nil
}

// free gives all ports to other harnesses.
func (a *portAllocator) free() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, l := range a.given {
		errs = append(errs, l.Close())
	}
	clear(a.given)
	return errors.Join(errs...)
}

// Port returns a TCP port of loopback on which nothing listens. This harness gives it only
// once, and no other harness gives it until this one is closed: a server that restarts finds
// its port free. It starts at a random one, so that harnesses seldom meet.
func (h *Harness) Port() (int, error) {
	a := h.ports
	a.mu.Lock()
	defer a.mu.Unlock()
	span := a.limit - lowestPort
	for i, first := 0, rand.IntN(span); i < span; i++ {
		port := lowestPort + (first+i)%span
		l, err := reserve(port)
		if err != nil {
			return 0, fmt.Errorf("reserve port %d: %w", port, err)
		}
		if l == nil {
			continue
		}
		taken, err := portTaken(port)
		if err == nil && !taken {
			a.given[port] = l
			return port, nil
		}
		if err := errors.Join(err, l.Close()); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("no free port from %d to %d", lowestPort, a.limit)
}

// Address is Port in the form 127.0.0.1:port.
func (h *Harness) Address() (string, error) {
	port, err := h.Port()
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
}

// portTaken reports whether a socket is bound to the port, listening or not.
func portTaken(port int) (bool, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("look at port %d: %w", port, err)
	}
	defer func() { _ = syscall.Close(fd) }() // nothing was written
	// net.Listen would set SO_REUSEADDR, with which two sockets may share a port
	// until one of them listens.
	switch err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err {
	case nil:
		return false, nil
	case syscall.EADDRINUSE:
		return true, nil
	default:
		return false, fmt.Errorf("look at port %d: %w", port, err)
	}
}

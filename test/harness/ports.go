//go:build linux

package harness

import (
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

// portAllocator gives every port once.
type portAllocator struct {
	limit int // exclusive

	mu    sync.Mutex // guards given
	given map[int]bool
}

func newPortAllocator() *portAllocator {
	limit := defaultEphemeral
	if content, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		low, _, _ := strings.Cut(strings.TrimSpace(string(content)), "\t")
		if n, err := strconv.Atoi(low); err == nil && n > lowestPort+1000 {
			limit = n
		}
	}
	return &portAllocator{limit: limit, given: make(map[int]bool)}
}

// Port returns a TCP port of loopback on which nothing listens and which this
// harness gives only once. It starts at a random one, since other harnesses may run
// on the same machine.
func (h *Harness) Port() (int, error) {
	a := h.ports
	a.mu.Lock()
	defer a.mu.Unlock()
	span := a.limit - lowestPort
	for i, first := 0, rand.IntN(span); i < span; i++ {
		port := lowestPort + (first+i)%span
		if a.given[port] {
			continue
		}
		if taken, err := portTaken(port); err != nil {
			return 0, err
		} else if !taken {
			a.given[port] = true
			return port, nil
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

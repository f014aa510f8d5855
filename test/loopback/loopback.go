//go:build linux

// Package loopback keeps TCP ports for tests that listen on one more than once, or want
// that no one does. A port that was only free a moment ago is soon someone else's.
//
//	address := loopback.Address(t)
//	l, err := net.Listen("tcp", address) // as often as the test wants
package loopback

import (
	"net"
	"strconv"
	"syscall"
	"testing"
)

// Address returns an address of loopback, as 127.0.0.1:port, whose port the kernel gives
// to no one before the end of the test: a socket is bound to it that does not listen.
// With SO_REUSEADDR, which net.Listen sets, others can who ask for that port.
func Address(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) }) // nothing was written
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	v4, ok := bound.(*syscall.SockaddrInet4)
	if !ok {
		t.Fatalf("the socket is bound to %v", bound)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(v4.Port))
}

//go:build linux

package loopback_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/argomesh/argomesh/test/loopback"
)

func TestAddress(t *testing.T) {
	address := loopback.Address(t)
	refused := func() {
		t.Helper()
		if _, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dial() = %v while nobody listens", err)
		}
	}
	refused()
	for range 2 {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close() // nothing was written
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	refused()
	// The kernel has some 28,000 ports for who asks for any.
	for range 2000 {
		if other := loopback.Address(t); other == address {
			t.Fatal("it was given again")
		}
	}
}

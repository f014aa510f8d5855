//go:build linux

package harness_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/kit"
)

// startEcho returns the address of a server that sends back what it gets, and ends
// a connection when its peer has.
func startEcho(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func startProxy(t *testing.T, target string) *harness.Proxy {
	t.Helper()
	proxy, err := harnesstest.New(t).NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, proxy.Run)
	return proxy
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

func TestProxyForwards(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, startEcho(t))
	conn := dial(t, proxy.Address())
	send(t, conn, "ping")
	expect(t, conn, "ping")

	const delay = 50 * time.Millisecond
	proxy.Delay(delay)
	began := time.Now()
	send(t, conn, "slow")
	expect(t, conn, "slow")
	if took := time.Since(began); took < 2*delay {
		t.Errorf("a round trip took %s, want %s at least", took, 2*delay)
	}

	// An orderly end of one way leaves the other open until its own.
	send(t, conn, "last")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	expect(t, conn, "last")
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read of an ended connection = %d, %v", n, err)
	}
}

func TestProxyCut(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, startEcho(t))
	conn := dial(t, proxy.Address())
	send(t, conn, "ping")
	expect(t, conn, "ping")
	proxy.Cut()
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read of a connection that was cut = %d, %v, want a reset", n, err)
	}
	expectReset(t, proxy.Address())
	proxy.Mend()
	conn = dial(t, proxy.Address())
	send(t, conn, "again")
	expect(t, conn, "again")
}

func TestProxySever(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, startEcho(t))
	conn := dial(t, proxy.Address())
	send(t, conn, "ping")
	expect(t, conn, "ping")
	proxy.Sever()
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read of a connection that was severed = %d, %v, want a reset", n, err)
	}
	conn = dial(t, proxy.Address())
	send(t, conn, "again")
	expect(t, conn, "again")
}

func TestProxySilence(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, startEcho(t))
	conn := dial(t, proxy.Address())
	send(t, conn, "ping")
	expect(t, conn, "ping")
	proxy.Silence()
	send(t, conn, "lost?")
	if err := conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read of a silent connection = %d, %v", n, err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	proxy.Mend()
	expect(t, conn, "lost?")
}

// A target that is away looks like one that resets.
func TestProxyTargetAway(t *testing.T) {
	t.Parallel()
	h := harnesstest.New(t)
	nobody, err := h.Address()
	if err != nil {
		t.Fatal(err)
	}
	expectReset(t, startProxy(t, nobody).Address())
}

// expectReset makes a connection that is reset, in the middle of its making or
// after.
func expectReset(t *testing.T, address string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err == nil {
		defer func() { _ = conn.Close() }()
		if err = conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a new connection ended with %v, want a reset", err)
	}
}

//go:build linux

package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"testing"
	"time"
)

// echo answers each line of a connection with the line.
func echo(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func startTestNetwork(t *testing.T) *network {
	t.Helper()
	n, err := startNetwork(t.Context(), echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// dial opens a connection through the network.
func dial(t *testing.T, n *network) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", n.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// says sends a line and reports whether it comes back.
func says(c net.Conn) bool {
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return false
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return err == nil && line == "hello\n"
}

func TestNetworkCountsWhatPasses(t *testing.T) {
	t.Parallel()
	n := startTestNetwork(t)
	if !says(dial(t, n)) {
		t.Fatal("a connection does not pass")
	}
	n.Sever()
	if !says(dial(t, n)) {
		t.Error("no connection passes after Sever()")
	}
	n.Cut()
	if says(dial(t, n)) {
		t.Error("a new connection passes while cut")
	}
	n.Mend()
	if !says(dial(t, n)) {
		t.Error("no connection passes after Mend()")
	}
	if got := n.traffic.count(); got != 3 {
		t.Errorf("count() = %d connections, want the 3 that passed", got)
	}
}

func TestTrafficSettles(t *testing.T) {
	t.Parallel()
	n := startTestNetwork(t)
	before := time.Now()
	if !says(dial(t, n)) {
		t.Fatal("a connection does not pass")
	}
	const quiet = 20 * time.Millisecond
	got, err := n.traffic.settled(t.Context(), 0, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if got.bytes != 2*int64(len("hello\n")) {
		t.Errorf("settled() tells of %d bytes, want those of both ways", got.bytes)
	}
	if got.begun.Before(before) || got.took < 0 || time.Since(got.begun) < got.took+quiet {
		t.Errorf("settled() = %+v after a start at %s, %s ago", got, before, time.Since(before))
	}
	ctx, cancel := context.WithTimeout(t.Context(), quiet)
	defer cancel()
	if _, err := n.traffic.settled(ctx, 1, quiet); err == nil {
		t.Error("settled() returns without a second connection")
	}
}

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

func startTestProxy(t *testing.T) *proxy {
	t.Helper()
	p, err := startProxy(t.Context(), echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// dial opens a connection through the proxy.
func dial(t *testing.T, p *proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.address())
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

func TestProxy(t *testing.T) {
	t.Parallel()
	p := startTestProxy(t)
	first := dial(t, p)
	if !says(first) {
		t.Fatal("a connection does not pass")
	}
	p.sever()
	if says(first) {
		t.Error("a connection outlives sever()")
	}
	second := dial(t, p)
	if !says(second) {
		t.Error("no connection passes after sever()")
	}
	p.cut()
	if says(second) {
		t.Error("a connection outlives cut()")
	}
	if says(dial(t, p)) {
		t.Error("a new connection passes while cut")
	}
	p.restore()
	if !says(dial(t, p)) {
		t.Error("no connection passes after restore()")
	}
	if got := p.traffic.count(); got != 3 {
		t.Errorf("count() = %d connections, want the 3 that passed", got)
	}
}

func TestTrafficSettles(t *testing.T) {
	t.Parallel()
	p := startTestProxy(t)
	before := time.Now()
	if !says(dial(t, p)) {
		t.Fatal("a connection does not pass")
	}
	const quiet = 20 * time.Millisecond
	got, err := p.traffic.settled(t.Context(), 0, quiet)
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
	if _, err := p.traffic.settled(ctx, 1, quiet); err == nil {
		t.Error("settled() returns without a second connection")
	}
}

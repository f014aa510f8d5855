//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// proxy is the network between an agent and its principal: it passes bytes on and
// can be cut. Its methods may be called concurrently.
type proxy struct {
	listener net.Listener
	target   string
	copying  sync.WaitGroup
	traffic  *traffic // of the connections passed on

	mu     sync.Mutex // guards what follows
	isCut  bool
	closed bool
	open   map[net.Conn]struct{}
}

// startProxy passes connections to a loopback port of its own on to target.
func startProxy(ctx context.Context, target string) (*proxy, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, open: map[net.Conn]struct{}{}, traffic: newTraffic()}
	p.copying.Go(func() { p.accept(context.WithoutCancel(ctx)) })
	return p, nil
}

// address is where the proxy listens.
func (p *proxy) address() string { return p.listener.Addr().String() }

// close ends the proxy and all connections.
func (p *proxy) close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.sever()
	p.copying.Wait()
	return err
}

// sever ends the connections of the moment; new ones are passed on.
func (p *proxy) sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Close() // nothing is left to be flushed
	}
}

// cut ends all connections, and every new one as soon as it comes, until restore.
func (p *proxy) cut() {
	p.mu.Lock()
	p.isCut = true
	p.mu.Unlock()
	p.sever()
}

// restore lets new connections pass again.
func (p *proxy) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}

func (p *proxy) accept(ctx context.Context) {
	for {
		c, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.copying.Go(func() { p.pass(ctx, c) })
		}
	}
}

// pass copies both ways until one side ends.
func (p *proxy) pass(ctx context.Context, c net.Conn) {
	defer func() { _ = c.Close() }() // may be closed already
	p.mu.Lock()
	refused := p.isCut || p.closed
	p.mu.Unlock()
	if refused {
		return
	}
	var dialer net.Dialer
	up, err := dialer.DialContext(ctx, "tcp", p.target)
	if err != nil {
		return // the peer sees the connection end, as if it had dialled itself
	}
	defer func() { _ = up.Close() }() // as above
	if !p.enter(c, up) {
		return
	}
	defer p.leave(c, up)
	var both sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{c: up, up: c} {
		both.Go(func() {
			_, _ = io.Copy(counted{Writer: to, traffic: p.traffic}, from) // a connection ends somehow
			_, _ = c.Close(), up.Close()                                  // and takes the other way along
		})
	}
	both.Wait()
}

func (p *proxy) enter(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isCut || p.closed {
		return false
	}
	for _, c := range conns {
		p.open[c] = struct{}{}
	}
	p.traffic.begin()
	return true
}

func (p *proxy) leave(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.open, c)
	}
}

// counted counts what is written through the proxy.
type counted struct {
	io.Writer
	traffic *traffic
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.traffic.add(n)
	return n, err
}

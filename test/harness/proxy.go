//go:build linux

package harness

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Proxy forwards TCP connections to one address, and plays the network in between:
// a test delays it, cuts it, or lets it fall silent. Methods may be called
// concurrently.
//
//	proxy, err := h.NewProxy(principal.Address)
//	...
//	go proxy.Run(ctx)
//	agent, err := h.StartAgent(ctx, harness.AgentConfig{PrincipalAddress: proxy.Address(), …})
//	...
//	proxy.Cut()
//	...
//	proxy.Mend()
type Proxy struct {
	cfg      ProxyConfig
	listener net.Listener

	mu      sync.Mutex // guards what follows
	delay   time.Duration
	cut     bool
	silent  bool
	changed chan struct{} // closed, and made again, when silent changes
	open    map[net.Conn]struct{}
}

// ProxyConfig says where a Proxy goes. Fields without a stated default are required.
type ProxyConfig struct {
	// Target is a TCP address.
	Target string
	// Listen is a TCP address on loopback. Empty means a port that the system chooses.
	Listen string
	// Opened is called for each connection that is passed on, and Passed for what was
	// passed on in either direction, in bytes; by several goroutines at once. Nil means
	// that no one asks.
	Opened func()
	Passed func(bytes int)
}

// NewProxy returns a proxy with a listener that belongs to it: a caller that has a
// proxy runs it.
func NewProxy(cfg ProxyConfig) (*Proxy, error) {
	if cfg.Opened == nil {
		cfg.Opened = func() {}
	}
	if cfg.Passed == nil {
		cfg.Passed = func(int) {}
	}
	listener, err := net.Listen("tcp", cmp.Or(cfg.Listen, "127.0.0.1:0")) //nolint:noctx // it ends by Run
	if err != nil {
		return nil, err
	}
	return &Proxy{
		cfg: cfg, listener: listener,
		changed: make(chan struct{}), open: map[net.Conn]struct{}{},
	}, nil
}

// NewProxy returns a proxy to an address on one of the ports of h.
func (h *Harness) NewProxy(target string) (*Proxy, error) {
	address, err := h.Address()
	if err != nil {
		return nil, err
	}
	return NewProxy(ProxyConfig{Target: target, Listen: address})
}

// Address is where the proxy listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Run forwards until ctx is done, then ends all connections. It is called once.
func (p *Proxy) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		<-ctx.Done()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cut = true // for a connection that is being dialled
		p.reset()
		return p.listener.Close()
	})
	g.Go(func() error {
		for {
			conn, err := p.listener.Accept()
			switch {
			case ctx.Err() != nil:
				return nil //nolint:nilerr // it was closed by us
			case err != nil:
				return err
			}
			g.Go(func() error { p.forward(ctx, conn); return nil })
		}
	})
	return g.Wait()
}

// Delay makes bytes that are read from now on arrive d later, each way: a round
// trip takes 2d longer. The handshake of TCP is not delayed.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Cut resets all connections, and new ones as soon as they are made, until Mend.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	p.reset()
}

// Sever resets the connections of the moment; new ones pass.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reset()
}

// Silence lets nothing pass until Mend and tells no one: connections stay open, as
// when a network drops packets. What was sent meanwhile arrives after Mend, as TCP
// would have it.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setSilent(true)
}

// Mend undoes Cut and Silence. The delay stays.
func (p *Proxy) Mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
	p.setSilent(false)
}

// setSilent is called with mu locked.
func (p *Proxy) setSilent(silent bool) {
	if p.silent != silent {
		p.silent = silent
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// reset is called with mu locked.
func (p *Proxy) reset() {
	for conn := range p.open {
		abort(conn)
	}
	clear(p.open)
}

// abort closes a connection so that its peer sees a reset.
func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // without it the peer sees an orderly end
	}
	_ = conn.Close() // the peer's end is what matters
}

// admit takes a connection into account; false when the network is cut.
func (p *Proxy) admit(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		abort(conn)
		return false
	}
	p.open[conn] = struct{}{}
	return true
}

func (p *Proxy) dismiss(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
	abort(conn)
}

// forward carries one connection to its end.
func (p *Proxy) forward(ctx context.Context, from net.Conn) {
	if !p.admit(from) {
		return
	}
	defer p.dismiss(from)
	var dialer net.Dialer
	to, err := dialer.DialContext(ctx, "tcp", p.cfg.Target)
	if err != nil || !p.admit(to) {
		return // who dialled sees a reset, as with a target that does not listen
	}
	defer p.dismiss(to)
	p.cfg.Opened()
	g, ctx := errgroup.WithContext(ctx)
	// When one way breaks so does the other; an orderly end goes one way alone.
	stop := context.AfterFunc(ctx, func() { abort(from); abort(to) })
	defer stop()
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		// Their number bounds what is under way.
		chunks := make(chan chunk, 1024)
		g.Go(func() error { return p.take(ctx, way[0], chunks) })
		g.Go(func() error { return p.deliver(ctx, chunks, way[1]) })
	}
	_ = g.Wait() // either end, or the test, ended the connection
}

// chunk is what was read at once, and when it may arrive.
type chunk struct {
	bytes []byte
	at    time.Time
}

// take reads until the orderly end of from, and closes chunks.
func (p *Proxy) take(ctx context.Context, from io.Reader, chunks chan<- chunk) error {
	defer close(chunks)
	for {
		buffer := make([]byte, 16<<10)
		n, err := from.Read(buffer)
		if n > 0 {
			select {
			case chunks <- chunk{bytes: buffer[:n], at: p.arrival()}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// deliver writes what take read, and passes an orderly end on.
func (p *Proxy) deliver(ctx context.Context, chunks <-chan chunk, to net.Conn) error {
	for c := range chunks {
		if err := p.wait(ctx, c.at); err != nil {
			return err
		}
		n, err := to.Write(c.bytes)
		p.cfg.Passed(n)
		if err != nil {
			return err
		}
	}
	if tcp, ok := to.(*net.TCPConn); ok && ctx.Err() == nil {
		return tcp.CloseWrite()
	}
	return ctx.Err()
}

func (p *Proxy) arrival() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.delay)
}

// wait returns once it is at and the network is not silent.
func (p *Proxy) wait(ctx context.Context, at time.Time) error {
	if left := time.Until(at); left > 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		p.mu.Lock()
		silent, changed := p.silent, p.changed
		p.mu.Unlock()
		if !silent {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

package server

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/notify"
)

// Why a connection without an admitted call is ended by us. A closed set: it is a label.
const (
	endedRefused = "refused" // its call was, and it has had its status
	endedSilent  = "silent"  // no one on it was admitted in time
	endedCrowded = "crowded" // another one needed its place
)

const (
	// refusalGrace is how long a connection outlasts the refusal of its call, so that the
	// status gets through.
	refusalGrace = time.Second
	// strangerGrace is how long a connection may take to have a call admitted before another
	// may take its place.
	strangerGrace = time.Second
)

// room is what the connections of one listener may take.
type room struct {
	all int // open at a time
	// strangers is how many of them may have no call that was admitted: anyone who is
	// refused, or says nothing, contends for these with his like, and not with agents.
	strangers int
	// strangerTimeout is how long a connection may go on without an admitted call.
	strangerTimeout time.Duration
}

// listener knows the connections it accepted, bounds them, and can cut them, whatever
// they are in the middle of.
type listener struct {
	net.Listener
	room    room
	metrics *metrics
	closed  func()
	done    chan struct{} // closed by closed

	mu        sync.Mutex // guards what follows, and the fields of connections
	open      map[*connection]struct{}
	strangers *list.List       // of *connection; who came first is first
	changed   notify.Broadcast // closed when there may be room
}

func newListener(l net.Listener, r room, m *metrics) *listener {
	done := make(chan struct{})
	return &listener{
		Listener: l, room: r, metrics: m, closed: sync.OnceFunc(func() { close(done) }), done: done,
		open: map[*connection]struct{}{}, strangers: list.New(),
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.closed()
	return l.Listener.Close()
}

// Accept implements net.Listener. A connection for which there is no room takes the place
// of another that has no admitted call, or waits; those behind it wait too.
func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: raw, listener: l, address: addressOf(raw.RemoteAddr()), calls: map[identity.AgentName]int{},
		onLeave: map[identity.AgentName]func(){}}
	if of, ok := raw.(*methodConn); ok {
		c.method = of.method
		c.shared = of.method.Credentials.Info().SecurityProtocol == plaintext
	}
	for {
		registered, changed, wait := l.register(c)
		if registered {
			return c, nil
		}
		due := time.NewTimer(wait)
		select {
		case <-changed:
		case <-due.C:
		case <-l.done:
			due.Stop()
			_ = raw.Close() // it was never anyone's
			return nil, net.ErrClosed
		}
		due.Stop()
	}
}

// plaintext is what gRPC calls connections without TLS.
const plaintext = "insecure"

// register makes c one of the open connections, if there is room or some can be made. If not,
// it returns what to wait for.
func (l *listener) register(c *connection) (registered bool, changed <-chan struct{}, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.open) >= l.room.all || !c.shared && l.strangers.Len() >= l.room.strangers {
		victim, wait := l.victim()
		if victim == nil || wait > 0 {
			return false, l.changed.Next(), wait
		}
		l.end(victim, endedCrowded)
	}
	l.open[c] = struct{}{}
	l.addStranger(c)
	return true, nil, 0
}

// victim returns the stranger whose place another may take, and when: at once who was
// refused, or else the first of the address that has the most, which is not who is alone
// at its own. l.mu is held.
func (l *listener) victim() (*connection, time.Duration) {
	first := map[netip.Prefix]*connection{}
	count := map[netip.Prefix]int{}
	var most *connection
	for e := l.strangers.Front(); e != nil; e = e.Next() {
		c := e.Value.(*connection)
		if c.refused && c.deciding == 0 {
			return c, 0
		}
		if count[c.address]++; count[c.address] == 1 {
			first[c.address] = c
		}
		if most == nil || count[c.address] > count[most.address] {
			most = first[c.address]
		}
	}
	if most == nil {
		return nil, time.Hour // all have admitted calls: until one ends
	}
	return most, time.Until(most.since.Add(strangerGrace))
}

// addStranger puts c among those without an admitted call. l.mu is held.
func (l *listener) addStranger(c *connection) {
	if c.shared || c.closing {
		return
	}
	c.since = time.Now()
	element := l.strangers.PushBack(c)
	c.strangerElement, c.refused = element, false
	l.metrics.strangers.Inc()
	c.due = time.AfterFunc(l.room.strangerTimeout, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if c.strangerElement == element { // and was not admitted in between
			l.overdue(c)
		}
	})
}

// removeStranger takes c from those without an admitted call. l.mu is held.
func (l *listener) removeStranger(c *connection) {
	if c.strangerElement == nil {
		return
	}
	l.strangers.Remove(c.strangerElement)
	l.metrics.strangers.Dec()
	c.strangerElement = nil
	c.due.Stop()
	l.signal()
}

// overdue ends c, but for a call that is being decided: that may be of another caller, where
// a gateway puts many on a connection. l.mu is held.
func (l *listener) overdue(c *connection) {
	switch {
	case c.deciding > 0:
		c.due.Reset(refusalGrace)
	case c.refused:
		l.end(c, endedRefused)
	default:
		l.end(c, endedSilent)
	}
}

// end closes c. l.mu is held.
func (l *listener) end(c *connection, reason string) {
	l.forget(c)
	l.metrics.ended.WithLabelValues(reason).Inc()
	go func() { _ = c.Conn.Close() }() // it may block, and nothing is lost with the connection
}

// forget counts c no more. l.mu is held.
func (l *listener) forget(c *connection) {
	if c.closing {
		return
	}
	c.closing = true
	l.removeStranger(c)
	delete(l.open, c)
	l.signal()
}

func (l *listener) signal() {
	l.changed.Notify()
}

// cut closes all connections that are open.
func (l *listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		go func() { _ = c.Close() }() // it comes back for mu; nothing is lost with the connection
	}
}

// connection is one that was accepted. Its fields but the first five are guarded by its
// listener's mu.
type connection struct {
	net.Conn
	listener *listener
	method   *Method // nil for that of the server
	address  netip.Prefix
	// shared says that it is that of a proxy of this pod, which puts the calls of many on
	// it: it is never ended for one of them.
	shared bool

	since           time.Time                     // since when it has no admitted call
	strangerElement *list.Element                 // among the strangers; nil while it has one
	due             *time.Timer                   // ends it
	deciding        int                           // calls that are neither admitted nor over
	calls           map[identity.AgentName]int    // calls that are admitted and open, by agent
	onLeave         map[identity.AgentName]func() // called with the last of an agent's
	refused         bool                          // a call was, while it has no admitted one
	closing         bool                          // closed, or about to be
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.listener.mu.Lock()
	c.listener.forget(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// LocalAddr implements net.Conn. By it a call tells its connection: everything that wraps
// one, TLS and gRPC included, passes it on.
func (c *connection) LocalAddr() net.Addr { return connectionAddr{c.Conn.LocalAddr(), c} }

type connectionAddr struct {
	net.Addr
	connection *connection
}

// addressOf is whose a connection is as far as its address says: that of a machine, or
// the network of one, since anyone who has an IPv6 address has 2^64. The zero value is that
// of a unix socket.
func addressOf(addr net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.Prefix{}
	}
	ip, bits := at.Addr().Unmap().WithZone(""), 32
	if ip.Is6() {
		bits = 64
	}
	prefix, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

// Package session carries the messages of one connection of a link between the connection
// and who decides what they mean, and says goodbye.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// Conn is one authenticated connection after its handshake. Send and Recv may
// run at the same time, each from one goroutine; both fail once the connection
// has ended.
type Conn interface {
	Send(stream.Message) error
	Recv() (stream.Message, error)
}

// ErrEnded wraps the reason for which this side ended a connection.
var ErrEnded = errors.New("connection ended")

// errAccused is what a peer says of us; what it was is in its log.
var errAccused = fmt.Errorf("%w, says the peer", stream.ErrProtocol)

// goodbyeTime is how long a goodbye may take to be written, and at a drain to be
// heeded.
const goodbyeTime = time.Second

// Session is one connection as its owner, the loop of a link, sees it.
type Session struct {
	// Out takes what is to be sent.
	Out chan stream.Message
	// Detached is closed by the owner when this no longer is the session of its link.
	Detached chan struct{}
	// Withdrawn is closed when the authority of the connection has ended: nothing
	// that came on it is begun any more.
	Withdrawn <-chan struct{}

	ended   chan struct{} // closed after what follows was set
	goodbye stream.GoodbyeReason
	cause   error
}

// New returns a session whose authority ends when withdrawn is closed.
func New(withdrawn <-chan struct{}) *Session {
	return &Session{Out: make(chan stream.Message), Detached: make(chan struct{}), ended: make(chan struct{}),
		Withdrawn: withdrawn}
}

// End has the connection end with a goodbye, empty for none. The owner calls it, once at
// most.
func (s *Session) End(goodbye stream.GoodbyeReason, cause error) {
	s.goodbye, s.cause = goodbye, cause
	close(s.ended)
}

// Owner is what Carry needs of the owner of a session.
type Owner struct {
	// Receive takes a message; false when nothing is taken any more. It is called by one
	// goroutine.
	Receive func(stream.Message) bool
	// Detach says that no message of the owner leaves any more. It is called once.
	Detach func()
	// Done is closed when the owner has ended, for the reason Cause.
	Done  <-chan struct{}
	Cause func() error
}

// Carry carries messages until the connection ends, ctx is done, or the owner ends the
// session or itself. It returns the error of conn, or one that wraps ErrEnded and, when
// either side ended the connection because of a revocation, stream.ErrRevoked. It wraps a
// stream.Violation when the peer broke the protocol, and stream.ErrProtocol alone when the
// peer says so of us. It waits at most a second for the peer to end the connection too.
func (s *Session) Carry(ctx context.Context, conn Conn, o Owner) error {
	c := &transport{s: s, o: o, conn: conn, sent: make(chan error, 1), received: make(chan error, 1)}
	go c.receive()
	for {
		out := s.Out
		if c.sending {
			out = nil
		}
		select {
		case msg := <-out:
			c.send(msg)
		case err := <-c.sent:
			if c.sending = false; err != nil {
				return c.failed(c.sendError(err))
			}
		case err := <-c.received:
			return c.failed(err)
		case <-ctx.Done():
			return c.leave(reasonOf(context.Cause(ctx)))
		case <-o.Done:
			reason, cause := reasonOf(o.Cause())
			if reason != stream.GoodbyeRevoked {
				cause = errStopping
			}
			return c.leave(reason, cause)
		case <-s.ended:
			if said, ok := c.accused.Load().(error); ok {
				return c.leave(s.goodbye, said)
			}
			return c.leave(s.goodbye, s.cause)
		}
	}
}

var errStopping = errors.New("stopping")

// reasonOf is the goodbye of a connection that ends for a cause on this side.
func reasonOf(cause error) (stream.GoodbyeReason, error) {
	if errors.Is(cause, stream.ErrRevoked) {
		return stream.GoodbyeRevoked, cause
	}
	return stream.GoodbyeDrain, cause
}

// transport sends one message at a time, beside Carry, which a peer that takes nothing must
// not hold up. A connection that is idle, as most are at most times, keeps no goroutine for
// it.
type transport struct {
	s        *Session
	o        Owner
	conn     Conn
	accused  atomic.Value // the error that the peer said goodbye for, if it is one
	sending  bool
	sent     chan error // with room for one: the result of what is being sent
	received chan error // with room for one: why nothing is received any more
}

// receive passes on what the peer sends, until the owner takes nothing more: the end of
// the peer still is to be read then.
func (c *transport) receive() {
	taken := true
	for {
		msg, err := c.conn.Recv()
		if err != nil {
			c.received <- err
			return
		}
		switch msg {
		case stream.Goodbye{Reason: stream.GoodbyeRevoked}:
			c.accused.Store(stream.ErrRevoked)
		case stream.Goodbye{Reason: stream.GoodbyeProtocol}:
			c.accused.Store(errAccused)
		}
		if msg != nil && taken {
			taken = c.o.Receive(msg)
		}
	}
}

// failed is how Carry ends when the connection has failed.
func (c *transport) failed(err error) error {
	c.o.Detach()
	if said, ok := c.accused.Load().(error); ok {
		return fmt.Errorf("%w: %w: %w", ErrEnded, said, err)
	}
	if stream.ViolationOf(err) != "" {
		c.sendGoodbye(stream.GoodbyeProtocol)
	}
	return err
}

// leave is how Carry ends when this side ends the connection.
func (c *transport) leave(reason stream.GoodbyeReason, cause error) error {
	c.o.Detach() // what the peer says from now on is not heard
	c.sendGoodbye(reason)
	return fmt.Errorf("%w: %w", ErrEnded, cause)
}

// sendError is why a send failed. Of a stream that has ended it says io.EOF, and only who
// receives is told how it ended, such as that the agent was suspended
// (grpc.ClientStream.SendMsg).
func (c *transport) sendError(err error) error {
	if errors.Is(err, io.EOF) {
		timeout := time.NewTimer(goodbyeTime)
		defer timeout.Stop()
		select {
		case ended := <-c.received:
			return ended
		case <-timeout.C:
		}
	}
	return fmt.Errorf("send: %w", err)
}

// send is called while nothing is being sent.
func (c *transport) send(m stream.Message) {
	c.sending = true
	go func() { c.sent <- c.conn.Send(m) }()
}

// sendGoodbye says goodbye, if there is a reason to give. A peer that reads knows why; one
// that does not must not hold us up. At a drain the end of the peer is waited for, so
// that its next connection, or that of another process, begins after this one.
func (c *transport) sendGoodbye(reason stream.GoodbyeReason) {
	timeout := time.NewTimer(goodbyeTime)
	defer timeout.Stop()
	saying, receiving := reason != "", reason == stream.GoodbyeDrain
	for saying || receiving || c.sending {
		if saying && !c.sending {
			c.send(stream.Goodbye{Reason: reason})
			saying = false
		}
		select {
		case err := <-c.sent:
			c.sending = false
			saying = saying && err == nil
		case <-c.received: //nolint:errcheck // the cause is known
			if !receiving {
				return
			}
			receiving = false
		case <-timeout.C:
			return
		}
	}
}

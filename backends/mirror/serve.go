package mirror

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

// Serve runs the link over conn until the connection ends, ctx is done, or a
// newer call of Serve takes the link over, which it does without a gap. It
// returns the error of conn, or one that wraps ErrEnded and, when either side
// ended the connection because of a revocation, stream.ErrRevoked. It wraps a
// stream.Violation when the peer broke the protocol, and stream.ErrProtocol alone
// when the peer says so of us. Nothing that the peer sent is begun once ctx is
// done. After that it waits for the peer to end the connection too, for a second at
// most.
func (m *Mirror) Serve(ctx context.Context, peer Peer, conn Conn) error {
	s := &session{
		peer: peer, out: make(chan stream.Message), ended: make(chan struct{}), over: make(chan struct{}), withdrawn: ctx.Done(),
	}
	if !m.do(ctx, func(l *loop) { l.connection.attach(s) }) {
		return fmt.Errorf("%w: the link does not run", ErrEnded)
	}
	// When the loop has ended there is nothing to detach from.
	detach := func() { _ = m.do(context.WithoutCancel(ctx), func(l *loop) { l.connection.detach(s) }) }

	received := make(chan error, 1)
	var accused atomic.Value // the error that the peer said goodbye for, if it is one
	go func() {
		taken := true // until the link is told nothing more; the peer's end still is to be read
		for {
			msg, err := conn.Recv()
			if err != nil {
				received <- err
				return
			}
			switch msg {
			case stream.Goodbye{Reason: stream.GoodbyeRevoked}:
				accused.Store(stream.ErrRevoked)
			case stream.Goodbye{Reason: stream.GoodbyeProtocol}:
				accused.Store(errAccused)
			}
			if msg != nil && taken {
				taken = m.do(ctx, func(l *loop) { l.receive(s, msg) })
			}
		}
	}()
	w := &sender{conn: conn, sent: make(chan error, 1)}
	failure := func(err error) error {
		detach()
		if said, ok := accused.Load().(error); ok {
			return fmt.Errorf("%w: %w: %w", ErrEnded, said, err)
		}
		if stream.ViolationOf(err) != "" {
			w.part(stream.GoodbyeProtocol, received)
		}
		return err
	}

	reason, cause := stream.GoodbyeDrain, errors.New("stopping")
	for serving := true; serving; {
		out := s.out
		if w.sending {
			out = nil
		}
		select {
		case msg := <-out:
			w.send(msg)
		case err := <-w.sent:
			if w.sending = false; err != nil {
				return failure(sendFailed(err, received))
			}
		case err := <-received:
			return failure(err)
		case <-ctx.Done():
			if cause = context.Cause(ctx); errors.Is(cause, stream.ErrRevoked) {
				reason = stream.GoodbyeRevoked
			}
			serving = false
		case <-m.done:
			if errors.Is(m.why, stream.ErrRevoked) {
				reason, cause = stream.GoodbyeRevoked, m.why
			}
			serving = false
		case <-s.ended:
			reason, cause = s.goodbye, s.cause
			if said, ok := accused.Load().(error); ok {
				cause = said
			}
			serving = false
		}
	}
	detach() // what the peer says from now on is not heard
	w.part(reason, received)
	return fmt.Errorf("%w: %w", ErrEnded, cause)
}

// sendFailed is why a send failed. Of a stream that has ended it says io.EOF, and only who
// receives is told how it ended, such as that the agent was suspended
// (grpc.ClientStream.SendMsg).
func sendFailed(err error, received <-chan error) error {
	if errors.Is(err, io.EOF) {
		patience := time.NewTimer(goodbyeTime)
		defer patience.Stop()
		select {
		case ended := <-received:
			return ended
		case <-patience.C:
		}
	}
	return fmt.Errorf("send: %w", err)
}

// sender sends one message at a time, beside its caller, whom a peer that takes
// nothing must not hold up. A connection that is idle, as most are at most times,
// keeps no goroutine for it.
type sender struct {
	conn    Conn
	sending bool
	sent    chan error // with room for one: the result of what is being sent
}

// send is called while nothing is being sent.
func (w *sender) send(m stream.Message) {
	w.sending = true
	go func() { w.sent <- w.conn.Send(m) }()
}

// part says goodbye, if there is a reason to give. A peer that reads knows why; one
// that does not must not hold us up. At a drain the end of the peer is waited for, so
// that its next connection, or that of another process, begins after this one.
func (w *sender) part(reason stream.GoodbyeReason, received <-chan error) {
	patience := time.NewTimer(goodbyeTime)
	defer patience.Stop()
	saying, receiving := reason != "", reason == stream.GoodbyeDrain
	for saying || receiving || w.sending {
		if saying && !w.sending {
			w.send(stream.Goodbye{Reason: reason})
			saying = false
		}
		select {
		case err := <-w.sent:
			w.sending = false
			saying = saying && err == nil
		case <-received: //nolint:errcheck // the cause is known
			if !receiving {
				return
			}
			receiving = false
		case <-patience.C:
			return
		}
	}
}

// goodbyeTime is how long a goodbye may take to be written, and at a drain to be
// heeded.
const goodbyeTime = time.Second

// session is one connection as the loop sees it. The loop closes over when it no
// longer is the session, and ended when it ends it, after goodbye and cause were
// set.
type session struct {
	over    chan struct{}
	peer    Peer
	out     chan stream.Message
	ended   chan struct{}
	goodbye stream.GoodbyeReason
	cause   error
	// withdrawn is closed when the authority of the connection has ended: nothing
	// that came on it is begun any more, on the loop or by a worker.
	withdrawn <-chan struct{}
	// puzzled says that an event which we do not know was logged.
	puzzled bool
	// beaten says that the peer sent a heartbeat.
	beaten bool
}

// waits reports whether what the peer of a session sent waits here.
func (s *session) waits() bool { return s != nil && s.peer.Waits != nil && s.peer.Waits() }

func (s *session) end(goodbye stream.GoodbyeReason, cause error) {
	s.goodbye, s.cause = goodbye, cause
	close(s.ended)
}

// errAccused is what a peer says of us; what it was is in its log.
var errAccused = fmt.Errorf("%w, says the peer", stream.ErrProtocol)

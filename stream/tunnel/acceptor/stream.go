package acceptor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/stream/tunnel"
)

// runStream runs one stream from its opening to its end, and reports it to the loop.
func (t *acceptorRun) runStream(ctx context.Context, s *tunnelStream, events chan<- streamEvent) {
	err := t.stream(ctx, s, events)
	t.metrics.connects.WithLabelValues(status.Code(err).String()).Inc()
	if v := stream.ViolationOf(err); v != "" {
		t.metrics.Violations.WithLabelValues(string(v)).Inc()
		log := t.cfg.Log.Sample(t.logged)
		log.Warn().Err(err).Msg("tunnel stream ended by a violation")
	}
	events <- streamEvent{of: s, err: call.KindOf(err)}
}

var (
	errHelloTimeout = errors.New("no hello in time")
	errStopping     = errors.New("the agent stops")
)

// stopping is why ctx is done.
func stopping(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return errStopping
}

func (t *acceptorRun) stream(ctx context.Context, s *tunnelStream, events chan<- streamEvent) error {
	ctx, done := t.cfg.While(ctx)
	defer done()
	// Once it is up the call outlasts ctx, so that it can end in good order.
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stopped := context.AfterFunc(ctx, func() { cancel(stopping(ctx)) })
	defer stopped()
	timeout := time.AfterFunc(t.cfg.HandshakeTimeout, func() { cancel(errHelloTimeout) })
	defer timeout.Stop()
	authorized, _, renewAt, err := t.cfg.Authorize(life)
	if err != nil {
		return withCause(life, err)
	}
	g, err := streampb.NewTunnelClient(s.transport.cc).Serve(authorized)
	if err != nil {
		return withCause(life, err)
	}
	welcome, err := t.handshake(life, g, s.transport.nonce)
	if err != nil {
		return err
	}
	if !timeout.Stop() {
		return errHelloTimeout
	}
	if !stopped() {
		return stopping(ctx)
	}

	use, endUse := context.WithCancel(life)
	defer endUse()
	var c *tunnel.Conn
	var serving sync.WaitGroup
	c = tunnel.NewConn(stream.Spoke, t.cfg.Agent, welcome.Connection,
		tunnel.Timing{Heartbeat: t.cfg.Heartbeat, Silence: t.cfg.Silence}, g, tunnel.Hooks{
			Finished: func(err error) {
				if err == nil {
					_ = g.CloseSend() // the principal ends the call then
					return
				}
				cancel(err)
			},
			Done: endUse, Unread: t.unread.Add,
			Asked: func(service stream.Service, waiting int) {
				events <- streamEvent{of: s, kind: inUse, waiting: waiting}
				serving.Go(func() { t.serve(use, c, service) })
			},
		})
	going := context.AfterFunc(ctx, func() {
		c.CloseWith(tunnel.ReasonStopping)
		time.AfterFunc(t.cfg.StopTimeout, func() { cancel(stopping(ctx)) })
	})
	defer going()
	events <- streamEvent{of: s, kind: idle, conn: c, proveAgain: welcome.ProveAgain, renewAt: renewAt}
	c.Receive()
	serving.Wait()
	return c.Failure()
}

// handshake sends our hello on a call, and checks the principal's, which is to prove itself
// against the nonce.
func (t *acceptorRun) handshake(ctx context.Context, g grpc.BidiStreamingClient[streampb.Chunk, streampb.Chunk],
	nonce stream.Nonce) (tunnel.Hello, error) {
	hello := tunnel.Hello{Agent: t.cfg.Agent, Nonce: nonce}
	if err := g.Send(hello.Wire()); err != nil {
		// io.EOF: the status is what Recv returns.
		t.cfg.Log.Debug().Err(err).Msg("cannot send hello")
	}
	first, err := g.Recv()
	if err != nil {
		return tunnel.Hello{}, withCause(ctx, err)
	}
	welcome, err := tunnel.HelloOf(first)
	if err != nil {
		return tunnel.Hello{}, err
	}
	if err := t.cfg.Check(call.Proof{Token: welcome.Proof, Nonce: welcome.Nonce}, nonce); err != nil {
		return tunnel.Hello{}, err
	}
	if welcome.Agent != t.cfg.Agent {
		return tunnel.Hello{}, fmt.Errorf("the principal takes this agent for %q: %w", welcome.Agent, call.ErrMismatch)
	}
	return welcome, nil
}

func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// serve hands a stream that was taken to its handler. ctx ends when c is done.
func (t *acceptorRun) serve(ctx context.Context, c *tunnel.Conn, service stream.Service) {
	handler := t.cfg.Services[service]
	if handler == nil {
		t.metrics.accepts.WithLabelValues(service.String(), string(tunnel.ReasonUnsupported)).Inc()
		c.CloseWith(tunnel.ReasonUnsupported)
		return
	}
	c.Measure(t.metrics.Received(service), t.metrics.Sent(service))
	connections := t.metrics.Connections.WithLabelValues(service.String())
	connections.Inc()
	defer connections.Dec()
	use, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeout := time.AfterFunc(t.cfg.AcceptTimeout, func() {
		select {
		case <-c.Answered:
		default:
			cancel(context.DeadlineExceeded)
		}
	})
	defer timeout.Stop()
	err := handler(use, c)
	if cause := context.Cause(use); err != nil && cause != nil && ctx.Err() == nil {
		err = cause
	}
	result, broken := "ok", err != nil && ctx.Err() == nil
	switch {
	case err == nil:
		_ = c.Close() // it has no error to return
	case !broken:
		result = "ended" // by the hub, or with the way to it
		_ = c.Close()
	case c.Accepted():
		result = string(tunnel.ReasonFailed)
		c.CloseWith(tunnel.ReasonFailed)
	default:
		result = string(tunnel.ReasonOf(err))
		c.CloseWith(tunnel.ReasonOf(err))
	}
	t.metrics.accepts.WithLabelValues(service.String(), result).Inc()
	if broken {
		log := t.cfg.Log.Sample(t.logged)
		log.Warn().Err(err).Str("connection", c.ID).Stringer("service", service).Str("reason", result).
			Msg("a connection of the hub to a service of this spoke failed")
	}
}

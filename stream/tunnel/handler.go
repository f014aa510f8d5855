package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
)

// Handler serves one connection that the hub asked for, and returns when it is
// done; the connection is then closed. The hub is told that it is connected when the
// handler first reads from conn, or writes to it, or closes it. An error returned before
// that refuses the connection, with a reason that follows from its kind: denied for
// identity.ErrDenied and stream.ErrRefused, timeout, else unreachable; the text is for
// our log only. An error returned later ends the connection with an error at the
// hub. ctx ends when the connection is of no more use, or the agent stops. conn has
// a method CloseWrite() error.
type Handler func(ctx context.Context, conn net.Conn) error

// Forward returns a Handler that dials a service and copies bytes in both
// directions, each until its end.
func Forward(dial func(context.Context) (net.Conn, error)) Handler {
	return func(ctx context.Context, conn net.Conn) error {
		service, err := dial(ctx)
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { _ = service.Close() }) // it interrupts both copies
		defer func() {
			if stop() {
				_ = service.Close() // both directions are at their end
			}
		}()
		var g errgroup.Group
		broken := func(err error) error {
			if err != nil {
				// The other direction has no one to serve.
				_, _ = service.Close(), conn.SetDeadline(time.Unix(1, 0))
			}
			return err
		}
		g.Go(func() error {
			_, err := io.Copy(service, conn)
			if err == nil {
				err = closeWrite(service)
			}
			return broken(err)
		})
		g.Go(func() error {
			_, err := io.Copy(conn, service)
			if err == nil {
				err = closeWrite(conn)
			}
			return broken(err)
		})
		err = g.Wait()
		if ctx.Err() != nil {
			return context.Cause(ctx) // what the copies met follows from it
		}
		return err
	}
}

// closeWrite says that no more comes.
func closeWrite(conn net.Conn) error {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return conn.Close()
	}
	if err := half.CloseWrite(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

//go:build linux

// Package broker shares servers and slots among the test programs of one go test, which
// runs each package as a program of its own. One program serves a unix socket, and names it
// to the others in the environment variable [Variable]:
//
//	err := broker.Serve(ctx, listener, func(ctx context.Context, r broker.Request) (any, func(failed bool), error) { ... })
//
// Another takes what it needs for as long as it needs it:
//
//	lease, err := broker.Take(ctx, address, broker.Request{Kind: "environment", Name: "bare"})
//	...
//	defer lease.Release(t.Failed())
//
// What a program took comes back when that ends, however it ends: a lease is a connection.
package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Variable is the environment variable that names the socket.
const Variable = "ARGOMESH_TEST_BROKER"

// Request says what is asked for.
type Request struct {
	// Kind is what it is, such as a slot; its meaning is that of the handler.
	Kind string `json:"kind"`
	// Name is which one, Shares what it shares with others.
	Name   string `json:"name,omitempty"`
	Shares string `json:"shares,omitempty"`
}

// response answers a request once it is granted.
type response struct {
	Answer json.RawMessage `json:"answer,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// end is the last thing that a client says.
type end struct {
	Failed bool `json:"failed"`
}

// Handler waits until a request can be granted. It returns an answer, which goes over the
// wire as JSON, and what takes back what it granted: release is called once, with whether a
// test of the client failed, as soon as the client has no use for it. ctx is done when the
// client is gone.
type Handler func(ctx context.Context, r Request) (answer any, release func(failed bool), err error)

// Serve answers requests until ctx is done, and returns when what was granted is released.
func Serve(ctx context.Context, l net.Listener, handle Handler) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var open sync.WaitGroup
	defer open.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("broker: %w", err)
		}
		open.Go(func() { serve(ctx, conn, handle) })
	}
}

// serve answers one client. What fails here, the client sees as the end of its connection.
func serve(ctx context.Context, conn net.Conn, handle Handler) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	in := json.NewDecoder(conn)
	var r Request
	if in.Decode(&r) != nil {
		return
	}
	last := make(chan end, 1)
	go func() {
		e := end{Failed: true} // unless it says otherwise
		_ = in.Decode(&e)
		last <- e
		cancel()
	}()
	answer, release, err := handle(ctx, r)
	if err == nil {
		defer func() { release((<-last).Failed) }()
	}
	defer func() { _ = conn.Close() }()
	out := response{}
	if err != nil {
		out.Error = err.Error()
	} else if out.Answer, err = json.Marshal(answer); err != nil {
		out.Error = err.Error()
	}
	if json.NewEncoder(conn).Encode(out) == nil && out.Error == "" {
		<-ctx.Done()
	}
}

// Lease is what was granted.
type Lease struct {
	// Answer is that of the handler.
	Answer json.RawMessage

	conn net.Conn
	once sync.Once
}

// Take asks the broker at address, the path of a unix socket, and waits until that grants it
// or ctx is done.
func Take(ctx context.Context, address string, r Request) (*Lease, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", address)
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var answer response
	err = json.NewEncoder(conn).Encode(r)
	if err == nil {
		err = json.NewDecoder(conn).Decode(&answer)
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, io.EOF):
		err = errors.New("it has ended")
	case err == nil && answer.Error != "":
		err = errors.New(answer.Error)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("broker: %s %s: %w", r.Kind, r.Name, err)
	}
	return &Lease{Answer: answer.Answer, conn: conn}, nil
}

// Release gives back what was granted, and says whether a test failed that used it. It may be
// called more than once.
func (l *Lease) Release(failed bool) {
	l.once.Do(func() {
		_ = json.NewEncoder(l.conn).Encode(end{Failed: failed}) // a broker that is gone has no use for it
		_ = l.conn.Close()
	})
}

package redis

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/proxies/redis/resp"
	"github.com/argomesh/argomesh/proxies/redis/values"
)

// reply is the answer to a fetch: whole, still to be read from the agent, or an error
// after which nothing can be said.
type reply struct {
	raw  []byte // in RESP2
	bulk []byte // a string, as it is in either protocol; nil for none
	// value is what bulk has.
	value []byte
	link  *link // still to be read
	// Of link: keys is what is read, in order, for what it may be, and remote from whom.
	keys   []appkey.Key
	remote *remote
	// Of link: size is the length of a string, of which the header was read, and elements,
	// unless it is nil, are those of a list instead, true for one that is to be read, and
	// false for one that is null.
	size     int
	elements []bool
	err      error
	// free gives back what the reply holds.
	free func(sound bool)
	read bool
}

func (r *reply) close() {
	if r.free != nil {
		r.free(r.read)
		r.free = nil
	}
}

// endWith ends what is still to be read with ctx, until the function is called that it
// returns.
func (r *reply) endWith(ctx context.Context) func() bool {
	if r.link == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { _ = r.link.conn.Close() }) // it interrupts the read
}

// errBrokeOff is that the rest of an agent's answer does not come.
var errBrokeOff = errors.New("an agent's answer broke off")

// write writes it to a caller. After an error the caller's connection has no meaning;
// one that is not a callerError is an errBrokeOff.
func (r *reply) write(to *bufio.Writer, resp3 bool) error {
	switch {
	case r.err != nil:
		return r.err
	case r.bulk != nil:
		_, err := to.Write(r.bulk) // at once: each piece wakes anyone who is on the way
		return err
	case r.link == nil:
		return resp.NewWire(bytes.NewReader(r.raw)).CopyValues(to, 1, resp3)
	}
	err := r.pass(to, resp3)
	var ours callerError
	if err != nil && !errors.As(err, &ours) {
		r.remote.exceeded(err)
		return errors.Join(errBrokeOff, err)
	}
	r.read = err == nil
	return err
}

// pass passes on what is still to be read.
func (r *reply) pass(to *bufio.Writer, resp3 bool) error {
	if r.elements != nil {
		return r.passList(to, resp3)
	}
	if _, err := to.Write(resp.AppendHeader(nil, '$', r.size)); err != nil {
		return err
	}
	return values.CopyMeasured(r.link.in, to, r.size, r.keys[0])
}

func (r *reply) passList(to *bufio.Writer, resp3 bool) error {
	if _, err := to.Write(resp.AppendHeader(nil, '*', len(r.elements))); err != nil {
		return err
	}
	for i, there := range r.elements {
		n := -1
		if there {
			var err error
			if n, err = r.link.in.Element(); err != nil {
				return resp.Unexpected(err)
			}
		}
		if n < 0 {
			if _, err := to.Write(resp.AppendNull(nil, resp3)); err != nil {
				return err
			}
			continue
		}
		if _, err := to.Write(resp.AppendHeader(nil, '$', n)); err != nil {
			return err
		}
		if err := values.CopyMeasured(r.link.in, to, n, r.keys[i]); err != nil {
			return resp.Unexpected(err)
		}
	}
	return nil
}

// toCaller tells errors of writes to a caller from those of anyone who is asked for it.
type toCaller struct{ io.Writer }

// callerError is that a caller cannot be written to.
type callerError struct{ error }

func (e callerError) Unwrap() error { return e.error }

func (w toCaller) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err != nil {
		err = callerError{err}
	}
	return n, err
}

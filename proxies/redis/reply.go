package redis

import (
	"bufio"
	"bytes"
	"context"
)

// reply is the answer to a fetch: whole, still to be read from the agent, or an error
// after which nothing can be said.
type reply struct {
	raw  []byte // in RESP2
	link *link  // still to be read
	// values is what is to be read of it: the whole reply, unless size is a string's,
	// whose header was read.
	size int
	err  error
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

// write writes it to a caller. After an error the caller's connection has no meaning.
func (r *reply) write(to *bufio.Writer, resp3 bool) error {
	switch {
	case r.err != nil:
		return r.err
	case r.link == nil:
		return newWire(bytes.NewReader(r.raw)).copyValues(to, 1, resp3)
	case r.size < 0:
		if err := r.link.in.copyValues(to, 1, resp3); err != nil {
			return err
		}
	default:
		if _, err := to.Write(appendHeader(nil, '$', r.size)); err != nil {
			return err
		}
		if err := r.link.in.copyString(to, r.size); err != nil {
			return err
		}
	}
	r.read = true
	return nil
}

func bulk(value []byte) []byte {
	b := make([]byte, 0, len(value)+16)
	b = appendHeader(b, '$', len(value))
	b = append(b, value...)
	return append(b, "\r\n"...)
}

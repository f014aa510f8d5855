package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/quota"
)

// transport is what a call of a gRPC server is below its messages: the stream of HTTP/2,
// which grpc.ServerTransportStreamFromContext returns. Its methods are not promised by
// gRPC; the tests of stream/server fail when a release of it has others.
type transport interface {
	// ReadMessageHeader fills header. The rest of the message stays where it is, and the
	// peer is held up by the window of its stream, until Read asks for it.
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
}

// headerBytes is the length of the prefix of a message: whether it is compressed, and
// its length (gRPC over HTTP/2, "Length-Prefixed-Message").
const headerBytes = 5

// Intercept has the calls of a server read by themselves: a message that is longer than
// its receiver takes is refused by its prefix, and one that is not small is read when q
// has room for it.
func Intercept(q *quota.Quota) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		below, ok := grpc.ServerTransportStreamFromContext(ss.Context()).(transport)
		if !ok {
			return fmt.Errorf("wire: gRPC's transport stream is a %T", grpc.ServerTransportStreamFromContext(ss.Context()))
		}
		return handler(srv, &reader{ServerStream: ss, below: below, quota: q})
	}
}

// reader is a call whose messages are measured before they are read.
type reader struct {
	grpc.ServerStream
	below transport
	quota *quota.Quota
}

// RecvMsg implements grpc.ServerStream. v is a *Message or a proto.Message.
func (r *reader) RecvMsg(v any) error {
	m, err := into(v)
	if err != nil {
		return err
	}
	return r.receive(r.Context(), m)
}

func (r *reader) receive(ctx context.Context, m *Message) error {
	var header [headerBytes]byte
	if err := r.below.ReadMessageHeader(header[:]); err != nil {
		return err
	}
	length := int(binary.BigEndian.Uint32(header[1:]))
	if length > m.Most {
		return tooLong(m)
	}
	compressed := header[0] == 1
	if header[0] > 1 || compressed && r.compressor() == nil {
		return fmt.Errorf("coding of a message: %w", stream.ViolationMalformed.Err())
	}
	if length > stream.MaxSmallBytes {
		release, err := r.room(ctx, m, quota.Arriving, int64(length))
		if err != nil {
			return err
		}
		defer release()
	}
	data, err := r.below.Read(length)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	defer data.Free()
	if compressed {
		return r.unpack(ctx, m, data)
	}
	if length <= stream.MaxSmallBytes {
		defer r.quota.Compute(m.Peer).End()
		return m.copied(data)
	}
	defer r.quota.Compute(m.Peer).End() // before the room, so that no one waits with it
	release, err := r.room(ctx, m, quota.Decoding, decodingBytes)
	if err != nil {
		return err
	}
	defer release()
	return m.copied(data)
}

// room takes room for a message.
func (r *reader) room(ctx context.Context, m *Message, use quota.Use, n int64) (release func(), err error) {
	if m.Waits != nil {
		m.Waits.Store(true)
		defer m.Waits.Store(false)
	}
	return r.quota.Acquire(ctx, m.Peer, use, n)
}

func (r *reader) compressor() encoding.Compressor {
	if name := r.below.RecvCompress(); name != "" && name != encoding.Identity {
		return encoding.GetCompressor(name)
	}
	return nil
}

// copied fills m with what data is, in one piece.
func (m *Message) copied(data mem.BufferSlice) error {
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return m.decode(buffer.ReadOnlyData())
}

// decodingBytes is what the largest frame takes while it is unpacked and decoded, beside
// what came: the window of its decoder, the unpacked bytes, and the message.
const decodingBytes = quota.PeerDecoding

// smalls and larges keep buffers for what is unpacked: of a small message, and of any.
var (
	smalls = sync.Pool{New: func() any { b := make([]byte, stream.MaxSmallBytes+1); return &b }}
	larges = sync.Pool{New: func() any { b := make([]byte, stream.MaxFrameBytes+1); return &b }}
)

// unpack fills m with what data unpacks to, as far as m takes it. What turns out to be
// small, as nearly all is, waits for no one.
func (r *reader) unpack(ctx context.Context, m *Message, data mem.BufferSlice) error {
	packed := data.Reader()
	defer func() { _ = packed.Close() }() // it is in memory
	unpacked, err := r.compressor().Decompress(packed)
	if err != nil {
		return unreadable(err)
	}
	if c, ok := unpacked.(io.Closer); ok {
		defer func() { _ = c.Close() }() // gives the decoder back
	}
	small, _ := smalls.Get().(*[]byte)
	defer smalls.Put(small)
	n, ended, err := fill(*small, unpacked)
	switch {
	case err != nil:
		return unreadable(err)
	case ended:
		defer r.quota.Compute(m.Peer).End()
		return m.decode((*small)[:n])
	case n > m.Most:
		return tooLong(m)
	}
	defer r.quota.Compute(m.Peer).End() // before the room, so that no one waits with it
	release, err := r.room(ctx, m, quota.Decoding, decodingBytes)
	if err != nil {
		return err
	}
	defer release()
	large, _ := larges.Get().(*[]byte)
	defer larges.Put(large)
	n = copy(*large, *small)
	more, ended, err := fill((*large)[n:min(m.Most+1, len(*large))], unpacked)
	switch n += more; {
	case err != nil:
		return unreadable(err)
	case !ended:
		return tooLong(m)
	}
	return m.decode((*large)[:n])
}

// fill reads until b is full, or r has ended: io.ReadFull does not tell the end of what
// was packed from that of a packed message which is cut off.
func fill(b []byte, r io.Reader) (n int, ended bool, err error) {
	for n < len(b) {
		more, err := r.Read(b[n:])
		switch n += more; {
		case err == io.EOF: // a wrapped one is no end
			return n, true, nil
		case err != nil:
			return n, false, err
		}
	}
	return n, false, nil
}

func unreadable(err error) error {
	return fmt.Errorf("unpack a message: %w: %w", stream.ViolationMalformed.Err(), err)
}

package wire

import (
	"context"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/quota"
)

// Message is what a receiver gives to gRPC to be filled. What is given without it, as
// the generated Recv does, is filled with MaxSmallBytes at most.
type Message struct {
	Into proto.Message
	// Most bounds the message once it is unpacked, in bytes.
	Most int
	// Peer is for whom it is counted.
	Peer identity.AgentName
	// Waits is true while there is no room for it yet, at a server. Nil means that no one asks.
	Waits *atomic.Bool

	err error
}

// Receive fills m. Errors wrap a stream.Violation for what the peer should not have
// sent, of which nothing was decoded.
func Receive(call interface{ RecvMsg(m any) error }, m *Message) error {
	m.err = nil
	if err := call.RecvMsg(m); err != nil {
		return err
	}
	return m.err
}

// ReceiveInto is Receive for a client, where gRPC has unpacked a message before anyone
// can ask: one that is not small is decoded when q has room for it, and what came waits
// until then. A client has no more of them under way than calls. It is decoded in a turn of
// the peer's.
func ReceiveInto(ctx context.Context, call interface{ RecvMsg(m any) error }, m *Message, q *quota.Quota) error {
	u := &unpacked{most: m.Most}
	if err := call.RecvMsg(u); err != nil {
		return err
	}
	if u.tooLong {
		return tooLong(m)
	}
	defer u.data.Free()
	defer q.Compute(m.Peer).End() // before the room, so that no one waits with it
	if u.data.Len() > stream.MaxSmallBytes {
		release, err := q.Acquire(ctx, m.Peer, quota.Decoding, decodingBytes)
		if err != nil {
			return err
		}
		defer release()
	}
	return m.copied(u.data)
}

// unpacked is a message that is not decoded yet; without data where it is longer than its
// receiver takes.
type unpacked struct {
	most    int
	data    mem.BufferSlice
	tooLong bool
}

// into returns what is to be filled, and with how many bytes.
func into(v any) (*Message, error) {
	switch v := v.(type) {
	case *Message:
		return v, nil
	case proto.Message:
		return &Message{Into: v, Most: stream.MaxSmallBytes}, nil
	}
	return nil, fmt.Errorf("wire: %T is not a message", v)
}

// decode checks what came and fills the message with it. What is unknown is not kept.
func (m *Message) decode(b []byte) error {
	if len(b) > m.Most {
		return tooLong(m)
	}
	if err := Check(m.Into.ProtoReflect().Descriptor(), b); err != nil {
		return err
	}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, m.Into); err != nil {
		return fmt.Errorf("%w: %w", stream.ViolationMalformed.Err(), err) // such as text that is not UTF-8
	}
	return nil
}

func tooLong(m *Message) error {
	return stream.Exceeded(string(m.Into.ProtoReflect().Descriptor().FullName())+" bytes", m.Most)
}

// Codec is gRPC's codec of that name for the calls of our services.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name implements encoding.CodecV2.
func (Codec) Name() string { return encodingproto.Name }

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	return encoding.GetCodecV2(encodingproto.Name).Marshal(v)
}

// Unmarshal implements encoding.CodecV2. Of a *Message, Receive returns what is wrong.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	if u, ok := v.(*unpacked); ok {
		if u.tooLong = data.Len() > u.most; !u.tooLong {
			data.Ref() // gRPC lets go of it on return
			u.data = data
		}
		return nil
	}
	m, err := into(v)
	if err != nil {
		return err
	}
	if data.Len() > m.Most {
		err = tooLong(m)
	} else {
		buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer buffer.Free()
		err = m.decode(buffer.ReadOnlyData())
	}
	if v == any(m) {
		m.err = err
		return nil
	}
	return err
}

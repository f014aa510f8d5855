package wire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Message is what a receiver gives to gRPC to be filled. What is given without it, as
// the generated Recv does, is filled with MaxSmallBytes at most.
type Message struct {
	Into proto.Message
	// Most bounds the message once it is unpacked, in bytes.
	Most int
	// Peer is for whom a server counts it.
	Peer identity.AgentName

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

// into returns what is to be filled, and with how many bytes.
func into(v any) (*Message, error) {
	switch v := v.(type) {
	case *Message:
		return v, nil
	case proto.Message:
		return &Message{Into: v, Most: stream.MaxSmallBytes}, nil
	}
	return nil, fmt.Errorf("wire: %T is no message", v)
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

// Package protolimit bounds what a protobuf message takes once it is decoded, before any of
// it is: two bytes of an empty message in a list become some hundred. It is for answers of
// services that are not ours, of which we cannot say how often each field may occur.
//
//	grpc.WithDefaultCallOptions(grpc.ForceCodecV2(protolimit.Codec{Heap: 16 << 20}))
package protolimit

import (
	"errors"
	"fmt"
	"reflect"

	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

var (
	// ErrTooLarge is wrapped by the error for a message that would take more than its limit.
	ErrTooLarge = errors.New("takes too much memory")
	// ErrTooDeep is wrapped by the error for messages in messages beyond the depth that
	// protobuf's decoder takes (protowire.DefaultRecursionLimit).
	ErrTooDeep = errors.New("is nested too deep")
)

const (
	pointerBytes, stringBytes, sliceBytes = 8, 16, 24
	// grown is how often the bytes of an element are allocated while its list grows: the
	// runtime makes a long one a quarter longer each time.
	grown = 6
	// allocated is the least that a text or a message takes by itself.
	allocated = 16
	// mapped is what an entry of a map takes beside its key and value.
	mapped = 256
)

// Check walks the wire form of a message of that type and refuses one that takes more than
// so many bytes of heap when it is decoded. It allocates nothing for a message that is
// taken.
func Check(d protoreflect.MessageDescriptor, b []byte, heap int) error {
	left := heap
	if err := spend(d, b, &left, protowire.DefaultRecursionLimit); err != nil {
		return fmt.Errorf("%s of %d bytes: %w", d.FullName(), len(b), err)
	}
	return nil
}

// spend takes what a message costs, and those in it, so many levels deep, from left.
func spend(d protoreflect.MessageDescriptor, b []byte, left *int, levels int) error {
	if levels == 0 {
		return ErrTooDeep
	}
	fields := d.Fields()
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		value := b
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		f := fields.ByNumber(number)
		if f == nil || !fits(f, kind) {
			continue // it is not kept
		}
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		takes, err := cost(f, kind, len(value))
		if err != nil {
			return err
		}
		if *left -= takes; *left < 0 {
			return fmt.Errorf("%s: %w", f.FullName(), ErrTooLarge)
		}
		if f.Kind() == protoreflect.MessageKind {
			if err := spend(f.Message(), value, left, levels-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// fits reports whether a field may come in that form; else it is unknown to the decoder.
func fits(f protoreflect.FieldDescriptor, kind protowire.Type) bool {
	switch f.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return kind == protowire.BytesType
	}
	return kind != protowire.BytesType || f.IsList() // numbers may be packed
}

// cost is what an occurrence of a field takes, without what is in a message.
func cost(f protoreflect.FieldDescriptor, kind protowire.Type, length int) (int, error) {
	element, own := pointerBytes, 0
	switch {
	case f.IsMap():
		return mapped, nil
	case f.Kind() == protoreflect.MessageKind:
		size, err := sizeOf(f.Message())
		if err != nil {
			return 0, err
		}
		own = size
	case f.Kind() == protoreflect.StringKind:
		element, own = stringBytes, allocated+length
	case f.Kind() == protoreflect.BytesKind:
		element, own = sliceBytes, allocated+length
	case kind == protowire.BytesType: // a packed number has a byte at least
		return pointerBytes * grown * length, nil
	}
	switch {
	case f.IsList():
		own += element * grown
	case f.ContainingOneof() != nil:
		own += allocated + element
	}
	return own, nil
}

// sizeOf is the size of the Go type of a message, as the runtime allocates it.
func sizeOf(d protoreflect.MessageDescriptor) (int, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return 0, fmt.Errorf("%s: %w", d.FullName(), err)
	}
	size := int(reflect.TypeOf(t.Zero().Interface()).Elem().Size()) //nolint:gosec // of a struct
	return size + size/8 + allocated, nil
}

// Codec is gRPC's codec of that name for calls whose answers take at most Heap bytes when
// they are decoded. How long an answer may be gRPC limits. What is unknown is not kept.
type Codec struct{ Heap int }

var _ encoding.CodecV2 = Codec{}

// Name implements encoding.CodecV2.
func (Codec) Name() string { return encodingproto.Name }

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	return encoding.GetCodecV2(encodingproto.Name).Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("protolimit: %T is not a message", v)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	if err := Check(m.ProtoReflect().Descriptor(), buffer.ReadOnlyData(), c.Heap); err != nil {
		return err
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(buffer.ReadOnlyData(), m)
}

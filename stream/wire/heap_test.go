package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/stream/wire"
	"github.com/argomesh/argomesh/test/heap"
)

// root is a message that a peer sends, and how long it may be.
type root struct {
	new  func() proto.Message
	most int
}

func roots() map[string]root {
	return map[string]root{
		"a frame":       {func() proto.Message { return &streampb.Frame{} }, stream.MaxFrameBytes},
		"a first frame": {func() proto.Message { return &streampb.Frame{} }, stream.MaxSmallBytes},
		"a chunk":       {func() proto.Message { return &streampb.Chunk{} }, stream.MaxSmallBytes},
	}
}

// decode reads b as a call does, to the value that package stream makes of it.
func decode(r root, b []byte) error {
	m := wire.Message{Into: r.new(), Most: r.most}
	err := wire.Receive(received{b}, &m)
	if frame, ok := m.Into.(*streampb.Frame); ok && err == nil {
		_, err = stream.ParseFrame(frame)
	}
	return err
}

// received is a call whose next message is these bytes.
type received struct{ b []byte }

func (r received) RecvMsg(m any) error {
	return wire.Codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(r.b)}, m)
}

// path leads from a root to a field.
type path []protoreflect.FieldDescriptor

func (p path) String() string {
	names := make([]string, len(p))
	for i, f := range p {
		names[i] = string(f.Name())
	}
	return strings.Join(names, ".")
}

// paths returns those to all fields of a message, at any depth.
func paths(d protoreflect.MessageDescriptor, before path) []path {
	var all []path
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		p := append(append(path{}, before...), f)
		all = append(all, p)
		if f.Kind() == protoreflect.MessageKind {
			all = append(all, paths(f.Message(), p)...)
		}
	}
	return all
}

// wrapped puts content where the path leads, each field on it once.
func wrapped(p path, content []byte) []byte {
	for i := len(p) - 1; i >= 0; i-- {
		content = protowire.AppendBytes(protowire.AppendTag(nil, p[i].Number(), protowire.BytesType), content)
	}
	return content
}

// value is the shortest form of a field that a decoder keeps something of; n tells those
// of one list apart.
func value(f protoreflect.FieldDescriptor, n int) []byte {
	switch f.Kind() {
	case protoreflect.MessageKind:
		content := dense(f.Message())
		if f.IsMap() {
			content = protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), fmt.Sprint(n))
			content = protowire.AppendBytes(protowire.AppendTag(content, 2, protowire.BytesType), dense(f.MapValue().Message()))
		}
		return protowire.AppendBytes(protowire.AppendTag(nil, f.Number(), protowire.BytesType), content)
	case protoreflect.StringKind, protoreflect.BytesKind:
		return protowire.AppendString(protowire.AppendTag(nil, f.Number(), protowire.BytesType), "x")
	}
	return protowire.AppendVarint(protowire.AppendTag(nil, f.Number(), protowire.VarintType), 1)
}

// dense is a message with all of its fields, each list as long as it may be, and of a
// oneof the last, which of ours takes most.
func dense(d protoreflect.MessageDescriptor) []byte {
	var b []byte
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if o := f.ContainingOneof(); o != nil && o.Fields().Get(o.Fields().Len()-1) != f {
			continue
		}
		b = append(b, filled(f)...)
	}
	return b
}

// filled is as many of a field as there may be.
func filled(f protoreflect.FieldDescriptor) []byte {
	if f.Cardinality() != protoreflect.Repeated {
		return value(f, 0)
	}
	var b []byte
	for n := range wire.Most(f) {
		b = append(b, value(f, n)...)
	}
	return b
}

// padded makes a message as long as it may be, by a field that no one knows.
func padded(b []byte, most int) []byte {
	tag := protowire.AppendTag(nil, 1000, protowire.BytesType)
	room := most - len(b) - len(tag)
	if room < 8 {
		return b
	}
	n := room - protowire.SizeVarint(uint64(room))
	return protowire.AppendBytes(append(b, tag...), make([]byte, n))
}

// Of each field that a peer can repeat, as many as fit into a message cost nothing: they
// are refused before any of them is decoded. And as many as it may repeat, with all that
// each may have, take at most eight times the bytes of the message, and 64 MiB. A field
// that is new is in this test by being defined.
func TestHeapOfEachField(t *testing.T) {
	const nothing = 64 << 10
	for name, r := range roots() {
		for _, p := range paths(r.new().ProtoReflect().Descriptor(), nil) {
			f := p[len(p)-1]
			empty := protowire.AppendTag(nil, f.Number(), protowire.VarintType)
			empty = append(empty, 0)
			switch f.Kind() {
			case protoreflect.MessageKind, protoreflect.StringKind, protoreflect.BytesKind:
				empty = append(protowire.AppendTag(nil, f.Number(), protowire.BytesType), 0)
			}
			bomb := wrapped(p[:len(p)-1], nil)
			bomb = wrapped(p[:len(p)-1], []byte(strings.Repeat(string(empty), (r.most-len(bomb)-32)/len(empty))))
			var err error
			if took := heap.Of(func() { err = decode(r, bomb) }); took > nothing {
				t.Errorf("%s of %d times %s: %d bytes of heap, %v", name, len(bomb)/len(empty), p, took, err)
			}
			if stream.ViolationOf(err) == "" {
				t.Errorf("%s of %d times %s is taken: %v", name, len(bomb)/len(empty), p, err)
			}
			if f.Cardinality() == protoreflect.Repeated && stream.LimitOf(err) != string(f.FullName()) {
				t.Errorf("%s of %d times %s: the limit is called %q", name, len(bomb)/len(empty), p, stream.LimitOf(err))
			}

			full := wrapped(p[:len(p)-1], filled(f))
			if len(full) > r.most {
				continue // of a small message its length is the limit
			}
			full = padded(full, r.most)
			took := heap.Of(func() { err = decode(r, full) })
			if most := uint64(min(8*len(full), 64<<20)); took > most {
				t.Errorf("%s full of %s, %d bytes: %d bytes of heap, want %d at most", name, p, len(full), took, most)
			}
			if stream.LimitOf(err) != "" {
				t.Errorf("%s full of %s is refused: %v", name, p, err)
			}
		}
	}
}

// So do the longest texts and contents.
func TestHeapOfTheLongest(t *testing.T) {
	for name, r := range roots() {
		for _, p := range paths(r.new().ProtoReflect().Descriptor(), nil) {
			f := p[len(p)-1]
			if k := f.Kind(); k != protoreflect.StringKind && k != protoreflect.BytesKind {
				continue
			}
			length := r.most - 64
			if most, bounded := wire.Longest(f); bounded {
				length = min(length, most)
			}
			for what, char := range map[string]string{"text": "x", "what is not printed": "\x01", "U+00E9": "é"} {
				b := wrapped(p, []byte(strings.Repeat(char, length/len(char))))
				var err error
				if took := heap.Of(func() { err = decode(r, b) }); took > uint64(min(8*len(b), 64<<20)) {
					t.Errorf("%s with %d bytes of %s in %s: %d bytes of heap, %v", name, len(b), what, p, took, err)
				}
			}
		}
	}
}

package wire

import (
	"math/bits"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxFields is how many fields a message of ours may define: those that occurred are
// the bits of a word.
const maxFields = bits.UintSize

// shape is what Check asks of a type of message. A descriptor answers the same, by a map for
// each field of each message that comes; a peer decides how many these are.
type shape struct {
	name   protoreflect.FullName
	fields []*field // by number; nil where there is none
}

// field is one of a shape.
type field struct {
	name  protoreflect.FullName
	index int // among the fields of its message
	// repeated says that it may occur most times.
	repeated bool
	most     int
	// bounded says that its content may have longest bytes.
	bounded bool
	longest int
	// lengthPrefixed is a text, bytes or a message; of those in a list others may be packable
	// into one value.
	lengthPrefixed, packable bool
	// oneof is the bit of the oneof that the field is of, zero for none.
	oneof     uint
	oneofName protoreflect.FullName
	of        *shape // of a message
}

// field returns that of a number, nil if there is none.
func (s *shape) field(n protowire.Number) *field {
	if int64(n) >= int64(len(s.fields)) {
		return nil
	}
	return s.fields[n]
}

// shapes are those that were asked for, by descriptor: the types of our wire, a few dozen.
var shapes sync.Map

func shapeOf(d protoreflect.MessageDescriptor) *shape {
	if s, known := shapes.Load(d); known {
		return s.(*shape) //nolint:forcetypeassert // nothing else is stored
	}
	s := newShape(d, map[protoreflect.FullName]*shape{})
	shapes.Store(d, s)
	return s
}

// newShape makes that of a message and of those in it, of which some are made by now: a
// message may be within itself.
func newShape(d protoreflect.MessageDescriptor, made map[protoreflect.FullName]*shape) *shape {
	if s := made[d.FullName()]; s != nil {
		return s
	}
	s := &shape{name: d.FullName()}
	made[d.FullName()] = s
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		for len(s.fields) <= int(f.Number()) {
			s.fields = append(s.fields, nil)
		}
		s.fields[f.Number()] = newField(f, made)
	}
	return s
}

func newField(f protoreflect.FieldDescriptor, made map[protoreflect.FullName]*shape) *field {
	out := &field{name: f.FullName(), index: f.Index(), repeated: f.Cardinality() == protoreflect.Repeated,
		most: repeats[f.FullName()]}
	out.longest, out.bounded = lengths[f.FullName()]
	switch f.Kind() {
	case protoreflect.MessageKind:
		out.lengthPrefixed, out.of = true, newShape(f.Message(), made)
	case protoreflect.StringKind, protoreflect.BytesKind:
		out.lengthPrefixed = true
	default:
		out.packable = f.IsList()
	}
	if o := f.ContainingOneof(); o != nil {
		out.oneof, out.oneofName = 1<<o.Index(), o.FullName()
	}
	return out
}

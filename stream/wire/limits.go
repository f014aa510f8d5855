package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/argomesh/argomesh/stream"
)

// maxUnknown bounds the fields of one message that this release does not know. They are
// passed over, and cost no more than the time to do so.
const maxUnknown = 1 << 14

// repeats is how often each repeated field may occur in one message. A field that is not
// here may not occur at all, so a new one needs its limit first.
var repeats = map[protoreflect.FullName]int{
	"argomesh.stream.v1.Hello.capabilities":   stream.MaxCapabilities,
	"argomesh.stream.v1.Welcome.capabilities": stream.MaxCapabilities,
	"argomesh.stream.v1.Digests.digests":      stream.MaxListed,
	"argomesh.stream.v1.Heartbeat.digests":    stream.MaxListed,
	"argomesh.stream.v1.Heartbeat.absences":   stream.MaxListed,
	"argomesh.stream.v1.Inventory.entries":    stream.MaxEntries,
	"argomesh.stream.v1.Batch.events":         stream.MaxEvents,
	"argomesh.stream.v1.Batch.absences":       stream.MaxListed,
	"argomesh.stream.v1.Applied.results":      stream.MaxResults,
	"argomesh.stream.v1.Result.dropped":       stream.MaxDropped,

	"argomesh.stream.v1.ApplicationEvents.events": stream.MaxApplicationEvents,

	"io.cloudevents.v1.CloudEvent.attributes": stream.MaxAttributes,
}

// lengths is how long the content of an event may be, in bytes. Other fields are bounded
// by their message.
var lengths = map[protoreflect.FullName]int{
	"io.cloudevents.v1.CloudEvent.binary_data": stream.MaxDataBytes,
	"io.cloudevents.v1.CloudEvent.text_data":   stream.MaxDataBytes,
	"io.cloudevents.v1.CloudEvent.proto_data":  stream.MaxDataBytes,
}

// Check walks the wire form of a message of that type and refuses what has more than
// anyone needs, or is not what our encoders write: a field that is not repeated and
// comes twice, two fields of a oneof, a group. It allocates nothing once the type is known.
// Errors wrap a stream.Violation and name the field.
func Check(d protoreflect.MessageDescriptor, b []byte) error {
	unknown := 0
	return shapeOf(d).check(b, &unknown)
}

// check walks one message, and those in it.
func (s *shape) check(b []byte, unknown *int) error {
	var counts [maxFields]int // by index of the field
	var oneofs uint           // by index of those that have a field
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return malformed(s.name, protowire.ParseError(n))
		}
		if kind == protowire.StartGroupType || kind == protowire.EndGroupType {
			return malformed(s.name, errGroup)
		}
		b = b[n:]
		value := b
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return malformed(s.name, protowire.ParseError(n))
		}
		b = b[n:]
		f := s.field(number)
		if f == nil || !f.fits(kind) {
			if *unknown++; *unknown > maxUnknown {
				return stream.Exceeded("unknown fields", maxUnknown)
			}
			continue
		}
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
			if f.bounded && len(value) > f.longest {
				return stream.Exceeded(string(f.name)+" bytes", f.longest)
			}
		}
		if err := f.count(value, kind, &counts[f.index]); err != nil {
			return err
		}
		if f.oneof != 0 && counts[f.index] == 1 {
			if oneofs&f.oneof != 0 {
				return malformed(f.oneofName, errTwice)
			}
			oneofs |= f.oneof
		}
		if f.of != nil {
			if err := f.of.check(value, unknown); err != nil {
				return err
			}
		}
	}
	return nil
}

// fits reports whether a field may come in that form; else it is unknown to the decoder.
func (f *field) fits(kind protowire.Type) bool {
	if f.lengthPrefixed {
		return kind == protowire.BytesType
	}
	return kind != protowire.BytesType || f.packable
}

// count adds an occurrence of a field, or what is packed in it.
func (f *field) count(value []byte, kind protowire.Type, n *int) error {
	if !f.repeated {
		if *n++; *n > 1 {
			return malformed(f.name, errTwice)
		}
		return nil
	}
	if f.packable && kind == protowire.BytesType {
		*n += len(value) // a number has a byte at least
	} else {
		*n++
	}
	if *n > f.most {
		return stream.Exceeded(string(f.name), f.most)
	}
	return nil
}

// kindError says what is wrong with the form of a message.
type kindError string

func (e kindError) Error() string { return string(e) }

const (
	errGroup = kindError("has a group")
	errTwice = kindError("comes twice")
)

func malformed(what protoreflect.FullName, why error) error {
	return fmt.Errorf("%s: %w: %w", what, why, stream.ViolationMalformed.Err())
}

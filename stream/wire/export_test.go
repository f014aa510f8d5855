package wire

import "google.golang.org/protobuf/reflect/protoreflect"

// Most is how often a repeated field may occur.
func Most(f protoreflect.FieldDescriptor) int { return repeats[f.FullName()] }

// Longest is how long a field may be, if it has a limit of its own.
func Longest(f protoreflect.FieldDescriptor) (int, bool) {
	n, bounded := lengths[f.FullName()]
	return n, bounded
}

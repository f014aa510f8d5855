// Package way is what values are followed through.
package way

// Start hands its value to two files, and comes back into one.
func Start(v Value, other string) {
	first(v)
	second(v.Name)
	fourth(other) // not the value
	first(v)      // read already
	third(v)
}

// Value is asked beside its type.
type Value struct{ Name string }

func (v Value) label() string { return v.Name }

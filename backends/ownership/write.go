package ownership

import (
	"bytes"

	"github.com/argomesh/argomesh/backends/object"
)

// Op is a kind of write.
type Op uint8

const (
	// Create makes an object that is not there.
	Create Op = iota + 1
	// Update replaces the object as it was read.
	Update
	// Delete deletes the object as it was read, or as the Update before left it.
	Delete
	// SaveFound keeps what was found in the object as it was read.
	SaveFound
	// LoadFound reads what SaveFound kept; with that the plan is made again.
	LoadFound
	// RemoveFound removes what LoadFound read.
	RemoveFound
	// ReadLive reads the object itself, not from a cache; with that the plan is made again.
	ReadLive
	// Confirm asks whether this process is still the one that may write; if so the plan is
	// made again.
	Confirm
)

// Write is one call to the store.
type Write struct {
	Op   Op
	Raw  []byte // of Create, Update and SaveFound
	Note string // of RemoveFound: what people are told
	// Strict lets Create and Update fail where the API server would drop a field.
	Strict bool
	// Replan says of a Create, the last write of its plan, that the plan is made again with
	// what it made.
	Replan bool
}

// update is the write that makes next of current; none when they are the same.
func update(current, next object.Object) []Write {
	raw := object.Encode(next.Fields)
	if bytes.Equal(raw, object.Encode(current.Fields)) {
		return nil
	}
	return []Write{{Op: Update, Raw: raw}}
}

// strictly are writes that fail where the API server would drop something.
func strictly(writes []Write) []Write {
	for i := range writes {
		writes[i].Strict = writes[i].Op == Create || writes[i].Op == Update
	}
	return writes
}

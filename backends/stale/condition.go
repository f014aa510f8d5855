package stale

import (
	"bytes"
	"time"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/object"
)

// mayBe reports whether an Application may say that its agent is away, at no cost.
func mayBe(o backends.Object) bool { return bytes.Contains(o.Raw, []byte(object.StaleCondition)) }

// condition returns an Application that says that its agent is away, or does not say so any more
// for the zero Absence, or where its status did not come from the spoke; nil when it is as
// it should be. The zero Marks are those of no one.
func condition(m copies.Marks, o backends.Object, absence Absence) ([]byte, error) {
	current, err := object.Parse(o)
	if err != nil {
		return nil, err
	}
	message := absence.Message
	if message != "" && !m.ShowsSpoke(current) {
		message = ""
	}
	if !object.SetCondition(current, object.StaleCondition, message, absence.Since) {
		return nil, nil
	}
	return object.Encode(current.Fields), nil
}

// Absence is that of an agent which has been away for long.
type Absence struct {
	// Since is when the hub last heard of it, and Message says what that means for its
	// Applications. Both stay the same for as long as it is away.
	Since   time.Time
	Message string
}

package stream

import (
	"errors"
	"fmt"
	"time"
)

// What one message may have. A peer that sends more breaks the protocol; it is refused
// before any of it is decoded (package wire).
const (
	// MaxFrameBytes bounds one frame once it is unpacked: content of MaxDataBytes with
	// room for its envelope. A batch of several events is far shorter.
	MaxFrameBytes = 4 << 20
	// MaxDataBytes bounds the content of one event: the longest request that an API
	// server reads (3 MiB, MaxRequestBodyBytes of k8s.io/apiserver), and so what can be
	// written at all.
	MaxDataBytes = 3 << 20
	// MaxSmallBytes bounds what has no content: the first frame of a connection, and
	// each chunk of a tunnel.
	MaxSmallBytes = 64 << 10
	// MaxEvents bounds the events of a Batch.
	MaxEvents = 256
	// MaxAttributes bounds those of an event.
	MaxAttributes = 64
	// MaxEntries bounds the entries of an Inventory.
	MaxEntries = 1024
	// MaxResults bounds those of an Applied.
	MaxResults = 1024
	// MaxListed bounds a list with one element for each collection.
	MaxListed = 64
	// MaxApplicationEvents bounds those of one frame.
	MaxApplicationEvents = 32
	// MaxEventCount bounds how often an event says that it was said.
	MaxEventCount = 1_000_000
	// MaxEventAge bounds how long ago that was: as long as API servers keep Events.
	MaxEventAge = time.Hour
	// MaxCapabilities bounds what a peer says that it can do.
	MaxCapabilities = 64
)

// Exceeded returns an error of kind ViolationLimit that names the limit, as the metric
// argomesh_stream_limits_total does. Its text is for the peer too: name is ours.
func Exceeded(name string, most int) error { return limitError{name: name, most: most} }

type limitError struct {
	name string
	most int
}

func (e limitError) Error() string {
	return fmt.Sprintf("%s: %s: at most %d", ViolationLimit.Err(), e.name, e.most)
}
func (e limitError) Unwrap() error { return ViolationLimit.Err() }

// LimitOf returns the name of the limit that err says was exceeded; empty when it names
// none.
func LimitOf(err error) string {
	var e limitError
	if errors.As(err, &e) {
		return e.name
	}
	return ""
}

// TextOf is what the peer may read of an error that tells of its violation.
func TextOf(err error) string {
	var e limitError
	if errors.As(err, &e) {
		return e.Error()
	}
	return ViolationOf(err).Err().Error()
}

package call

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// BackOff says how long an agent waits before it calls again.
type BackOff struct {
	// Min and Max bound the pause after a call that failed or ended; the pause is
	// drawn evenly from zero to a limit that doubles. Zero means 250ms and 7s, so that
	// all is well within 10 s of the end of a fault.
	Min, Max time.Duration
	// Upgrade bounds the pause after a principal that speaks another protocol; it is
	// drawn evenly from a third of it on. Zero means 3min.
	Upgrade time.Duration
}

// Pause draws the pause after so many failures in a row, of which err is the last.
// A principal that refused us is not asked again soon, and one of another protocol
// even later: it takes an upgrade of one of us, and every agent of the fleet may be
// as wrong as we are.
func (b BackOff) Pause(failures int, err error) time.Duration {
	if b.Min == 0 {
		b.Min = 250 * time.Millisecond
	}
	if b.Max == 0 {
		b.Max = 7 * time.Second
	}
	if b.Upgrade == 0 {
		b.Upgrade = 3 * time.Minute
	}
	least, most := time.Duration(0), min(b.Min<<min(failures, 16), b.Max)
	switch {
	case errors.Is(err, stream.ErrIncompatible):
		least, most = b.Upgrade/3, b.Upgrade
	case refused(err):
		least, most = b.Max/4, b.Max
	}
	return least + rand.N(most-least+1)
}

// refused reports whether the principal will not have us until a person, or a new
// SVID, changes something. Of two that do not understand each other the one or the
// other must be upgraded.
func refused(err error) bool {
	return errors.Is(err, stream.ErrProtocol) || errors.Is(err, identity.ErrDenied) ||
		errors.Is(err, identity.ErrUnauthenticated) ||
		errors.Is(err, stream.ErrRevoked) || errors.Is(err, ErrMismatch) || errors.Is(err, ErrImpostor)
}

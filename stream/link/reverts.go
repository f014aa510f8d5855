package link

import (
	"time"

	"github.com/argomesh/argomesh/stream"
)

// What someone on the sink's side changes back is mended contestFree times at once.
// When that goes on it is contested: the entry counts as parked, says so, and is sent
// once in contestPause, since two writers that fight must not be an endless loop. It
// ends when nothing was changed back for ContestWindow.
const (
	contestFree  = 3
	contestPause = time.Minute
	// retryFree is how often a sink may ask for an entry again, within ContestWindow, before
	// that counts as changed back: whatever it says there must be no endless loop.
	retryFree = 12
	// ContestWindow is how long it is remembered that something was changed back.
	ContestWindow = 5 * time.Minute
)

const revertedByDeletion = "deletes it"

// Reverts counts how often something was changed back, without a pause longer than
// ContestWindow. The zero value is never.
type Reverts struct {
	count int
	last  time.Time
}

// Add counts one.
func (u *Reverts) Add(now time.Time) {
	if u.Expired(now) {
		u.count = 0
	}
	u.count, u.last = u.count+1, now
}

// Contested reports whether there were too many for a coincidence.
func (u *Reverts) Contested() bool { return u.count > contestFree }

// Exhausted reports whether as many were mended at once as are. The sink, which counts what
// it put back, cannot know of one more before that is put back a minute later.
func (u *Reverts) Exhausted() bool { return u.count >= contestFree }

// Expired reports whether there was none for long enough to forget them.
func (u *Reverts) Expired(now time.Time) bool { return now.Sub(u.last) >= ContestWindow }

// ContestedBy is a refusal that says what someone on a side does again and again, as
// RevertText has it.
func ContestedBy(side stream.Side, does string) stream.Refusal {
	return stream.Refusal{Kind: stream.RefusalContested, Message: "another writer on the " + side.String() + " " + does}
}

// RevertText says for people what someone does who changes what is at paths, or something
// that is not known when that is empty.
func RevertText(paths string) string {
	if paths == "" {
		return "changes it back"
	}
	return "changes it back: " + paths
}

// Contestable reports whether an entry of c can be contested. A status is followed by
// a newer one before long, and the hub's own writes are part of what it shows.
func Contestable(c stream.Collection) bool { return c.Desired() }

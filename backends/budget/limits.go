package budget

import (
	"fmt"
	"time"
)

// Limit is so much a second, after a burst. The zero value is no limit.
type Limit struct {
	// Rate is how much a second.
	Rate int64
	// Burst is how much at once, when nothing was used for an hour.
	Burst int64
}

// String is such as "100 a second after a burst of 20000".
func (l Limit) String() string {
	return fmt.Sprintf("%d a second after a burst of %d", l.Rate, l.Burst)
}

func (l Limit) none() bool { return l == Limit{} }

// Limits are those of one peer.
type Limits struct {
	Writes Limit
	Bytes  Limit
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// DefaultLimits are those of a peer of which no one said anything.
func DefaultLimits() Limits {
	return Limits{Writes: Limit{Rate: 100, Burst: 20_000}, Bytes: Limit{Rate: mib, Burst: 64 * mib}}
}

// DefaultCommon is the limit of all agents of a hub together, in bytes: burst plus ten
// minutes of the rate, the time for which an etcd may keep all revisions, is less than
// three quarters of the 2 GiB that it takes by default.
func DefaultCommon() Limit { return Limit{Rate: 2 * mib, Burst: 256 * mib} }

// Levels are what is left of a peer's limits at a time; less than nothing where more was
// used than there was. They are what survives a restart.
type Levels struct {
	Writes, Bytes int64
	At            time.Time
}

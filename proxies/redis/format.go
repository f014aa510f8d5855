package redis

import (
	"fmt"
	"time"
)

// mismatchFor is how long an answer in another format than the one that did not fit
// says nothing about that: two Argo CDs of the hub may ask, while one follows the other.
const mismatchFor = time.Minute

// formatStatus is how the cache of an agent's Argo CD stands to what the hub's asks for. The
// zero value is that it is not known.
type formatStatus struct {
	known bool
	// asked is the format that did not fit, and kept the one found instead; both are
	// empty when it fits. at is when that was last so.
	asked, kept string
	at          time.Time
}

// next returns the status after an answer to a read in format asked: kept is the one in
// which the agent keeps its cache, empty for the same.
func (f formatStatus) next(asked, kept string, now time.Time) formatStatus {
	if kept != "" {
		return formatStatus{known: true, asked: asked, kept: kept, at: now}
	}
	if f.asked != "" && f.asked != asked && now.Sub(f.at) < mismatchFor {
		return f
	}
	return formatStatus{known: true}
}

// String is empty when it fits.
func (f formatStatus) String() string {
	if f.kept == "" {
		return ""
	}
	return fmt.Sprintf("the spoke's Argo CD keeps its cache as %s, and the hub's asks for %s: both must be of one release, with one --redis-compress, "+
		"and redis.cache_version and redis.compression of the agent must say the same", f.kept, f.asked)
}

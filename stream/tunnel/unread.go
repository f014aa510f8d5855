package tunnel

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Unread bounds the bytes that have come on the streams of one peer and wait to be read. Each
// stream has its window; all of them together would be 256 MiB of a peer with 1,024 streams.
// It may be used by several goroutines at once.
type Unread struct {
	most     int64
	held     atomic.Int64
	common   *Common // nil where there is one peer
	bytes    prometheus.Gauge
	overruns prometheus.Counter
}

// Common bounds what the streams of all peers have together. Each peer may have free bytes
// whatever the others have. It may be used by several goroutines at once.
type Common struct {
	most, free int64
	held       atomic.Int64
}

// NewCommon returns a bound of most bytes, beside the free ones of each peer.
func NewCommon(most, free int64) *Common { return &Common{most: most, free: free} }

// NewUnread returns a bound of most bytes of one peer, and of what is common to all; nil where
// there is one peer.
func NewUnread(most int64, common *Common, m Metrics) *Unread {
	return &Unread{most: most, common: common, bytes: m.unread, overruns: m.overruns}
}

// add counts n bytes more, or less, and reports whether as many may be.
func (u *Unread) add(n int64) bool {
	u.bytes.Add(float64(n))
	own := u.held.Add(n)
	within := own <= u.most
	if u.common != nil {
		all := u.common.held.Add(n)
		within = within && (own <= u.common.free || all <= u.common.most)
	}
	if within || n < 0 {
		return true
	}
	u.overruns.Inc()
	return false
}

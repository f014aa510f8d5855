package principalconfig

import (
	"errors"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/cmd/internal/config"
)

// Limits bound what all agents together may have the principal write to the hub's API
// server. Those of one agent are in its Agent. Key: limits.
type Limits struct {
	BytesPerSecond int64 `koanf:"bytes_per_second" help:"bytes that all agents together may have the principal write to the hub in a second, shared in turn among those that have something to write"`
	BytesBurst     int64 `koanf:"bytes_burst" help:"the same at once, as for first syncs, after an hour without any"`
	EtcdQuota      int64 `koanf:"etcd_quota" help:"quota-backend-bytes of the hub's etcd; bytes_burst and ten minutes of bytes_per_second have to be less than three quarters of it, since etcd keeps every revision until it is compacted"`
}

// revisionSeconds is for how long an etcd may keep all revisions: the API server has it
// compacted every five minutes, to what was there five minutes before.
const revisionSeconds = 600

// DefaultLimits fit the quota that an etcd has by default.
func DefaultLimits() Limits {
	common := budget.DefaultCommon()
	return Limits{BytesPerSecond: common.Rate, BytesBurst: common.Burst, EtcdQuota: 2 << 30}
}

// Validate reports every problem.
func (l Limits) Validate() error {
	var problems []error
	if l.BytesPerSecond < 1024 {
		problems = append(problems,
			config.Invalid("bytes_per_second", "%d is too little for one object: use 1024 or more", l.BytesPerSecond))
	}
	if l.BytesBurst < 1<<20 {
		problems = append(problems,
			config.Invalid("bytes_burst", "%d is less than one object may have: use 1048576 or more", l.BytesBurst))
	}
	// Divided, so that no product is too large for its type.
	if room := l.EtcdQuota / 4 * 3; len(problems) == 0 &&
		(l.BytesBurst >= room || l.BytesPerSecond >= (room-l.BytesBurst)/revisionSeconds) {
		problems = append(problems, config.Invalid("etcd_quota",
			"bytes_burst %d and ten minutes of bytes_per_second %d are not less than three quarters of %d: agents could fill the hub's etcd; lower them, or give the etcd more and say so here",
			l.BytesBurst, l.BytesPerSecond, l.EtcdQuota))
	}
	return errors.Join(problems...)
}

// Common is the budget of all agents together.
func (l Limits) Common() budget.Limit {
	return budget.Limit{Rate: l.BytesPerSecond, Burst: l.BytesBurst}
}

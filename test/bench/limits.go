//go:build linux

package main

import (
	"time"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/test/harness"
)

// What a peer may have us write is bound, and by default for a fleet of usual size.
// Scenarios that measure how much passes, and not what the bounds leave of it, have those
// of a large hub, as SECURITY.md says; all others have the defaults.
const (
	largeBytesPerSecond = 8 << 20
	largeBytesBurst     = 1 << 30
	largeEtcdQuota      = 8 << 30
)

// largeHub is what a large hub sets.
func largeHub() harness.Settings {
	return harness.Settings{
		"limits.bytes_per_second": largeBytesPerSecond, "limits.bytes_burst": largeBytesBurst, "limits.etcd_quota": largeEtcdQuota,
	}
}

// largeAgent is what it sets in spec.limits of an Agent with many Applications.
func largeAgent() map[string]any {
	return map[string]any{"bytesPerSecond": largeBytesPerSecond, "bytesBurst": largeBytesBurst}
}

// largeBudget is what the agents of a large hub let it write. The limit of single objects
// stays, which no one can set.
func largeBudget(agent string) *budget.Peer {
	return budget.NewPeer(agent, budget.Limits{
		Writes: budget.Limit{Rate: 10_000, Burst: 1_000_000},
		Bytes:  budget.Limit{Rate: largeBytesPerSecond, Burst: largeBytesBurst},
	}, nil, time.Now())
}

package agentconfig

import (
	"github.com/argomesh/argomesh/cmd/internal/config"
)

// LiveAccess bounds what the hub does with this spoke's Kubernetes API. What it may do
// is block access. Key: live_access.
type LiveAccess struct {
	MaxCalls int `koanf:"max_calls" help:"calls of the hub under way at a time, watches and sessions included; more are answered 429"`
}

// DefaultLiveAccess serves a thousand callers.
func DefaultLiveAccess() LiveAccess { return LiveAccess{MaxCalls: 1024} }

// Validate reports every problem.
func (l LiveAccess) Validate() error {
	if l.MaxCalls < 1 {
		return config.Invalid("max_calls", "%d admits no call: use 1 or more, or leave access.enabled false", l.MaxCalls)
	}
	return nil
}

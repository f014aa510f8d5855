package agentconfig

import (
	"errors"

	"github.com/argomesh/argomesh/cmd/internal/config"
)

// maxCallsPerSecond is more than any API server answers.
const maxCallsPerSecond = 1_000_000

// LiveAccess bounds what the hub does with this spoke's Kubernetes API. What it may do
// is block access. Key: live_access.
type LiveAccess struct {
	MaxCalls       int `koanf:"max_calls" help:"calls of the hub under way at a time, watches and sessions included; more are answered 429"`
	CallsPerSecond int `koanf:"calls_per_second" help:"calls that the hub begins in a second, after ten times as many at once; more are answered 429"`
}

// DefaultLiveAccess serves a thousand callers, at a pace that an API server does not notice.
func DefaultLiveAccess() LiveAccess { return LiveAccess{MaxCalls: 1024, CallsPerSecond: 100} }

// Validate reports every problem.
func (l LiveAccess) Validate() error {
	var problems []error
	if l.MaxCalls < 1 {
		problems = append(problems,
			config.Invalid("max_calls", "%d admits no call: use 1 or more, or leave access.enabled false", l.MaxCalls))
	}
	if l.CallsPerSecond < 1 || l.CallsPerSecond > maxCallsPerSecond {
		problems = append(problems,
			config.Invalid("calls_per_second", "%d is not between 1 and %d", l.CallsPerSecond, maxCallsPerSecond))
	}
	return errors.Join(problems...)
}

package principalconfig

import (
	"errors"

	"github.com/argomesh/argomesh/cmd/internal/config"
)

// Tunnel bounds the connections to services of spokes. Key: tunnel.
type Tunnel struct {
	MaxStreams      int `koanf:"max_streams" help:"open tunnel streams of all agents at a time, spare or in use; each agent has its first four beyond it"`
	MaxAgentStreams int `koanf:"max_agent_streams" help:"open tunnel streams of one agent at a time, spare or in use"`
}

// DefaultTunnel serves a thousand callers of one agent, and 16 such agents.
func DefaultTunnel() Tunnel { return Tunnel{MaxStreams: 16384, MaxAgentStreams: 1024} }

// Validate reports every problem.
func (t Tunnel) Validate() error {
	var problems []error
	if t.MaxStreams < 1 {
		problems = append(problems, config.Invalid("max_streams", "%d streams are too few: use 1 or more", t.MaxStreams))
	}
	if t.MaxAgentStreams < 2 {
		problems = append(problems,
			config.Invalid("max_agent_streams", "%d leaves nothing beside a spare stream: use 2 or more", t.MaxAgentStreams))
	}
	return errors.Join(problems...)
}

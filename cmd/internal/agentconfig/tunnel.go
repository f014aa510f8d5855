package agentconfig

import (
	"errors"

	"github.com/argomesh/argomesh/cmd/internal/config"
)

// Tunnel bounds the connections by which the hub reaches services of the spoke.
// Key: tunnel.
type Tunnel struct {
	MaxStreams int `koanf:"max_streams" help:"open tunnel streams at a time, spare or in use; more connections of the hub wait, and fail after 5 s"`
	MinSpares  int `koanf:"min_spares" help:"streams that are kept open for the next connections of the hub, at least"`
	MaxSpares  int `koanf:"max_spares" help:"streams that are kept open for the next connections of the hub, at most; demand decides"`
}

// DefaultTunnel serves a thousand callers.
func DefaultTunnel() Tunnel { return Tunnel{MaxStreams: 1024, MinSpares: 2, MaxSpares: 64} }

// Validate reports every problem.
func (t Tunnel) Validate() error {
	var problems []error
	if t.MinSpares < 1 {
		problems = append(problems, config.Invalid("min_spares", "%d leaves the hub no way in: use 1 or more", t.MinSpares))
	}
	if t.MaxSpares < t.MinSpares {
		problems = append(problems,
			config.Invalid("max_spares", "%d is less than tunnel.min_spares: use %d or more", t.MaxSpares, t.MinSpares))
	}
	if t.MaxStreams <= t.MinSpares {
		problems = append(problems,
			config.Invalid("max_streams", "%d leaves nothing beside tunnel.min_spares: use more than %d", t.MaxStreams,
				t.MinSpares))
	}
	return errors.Join(problems...)
}

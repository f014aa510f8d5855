package principalconfig

import (
	"errors"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/listen"
	"github.com/argomesh/argomesh/mesh"
)

// RedisProxy is what the hub's Argo CD uses as its Redis, so that it sees what the
// Argo CD of a spoke keeps there. Key: redis_proxy.
type RedisProxy struct {
	Listen            string `koanf:"listen" help:"unix socket or loopback address on which the hub's Argo CD comes from Envoy, such as unix:///run/argomesh/redis-proxy.sock; empty for no redis proxy"`
	MaxConnections    int    `koanf:"max_connections" help:"open connections at a time; more are told so and closed"`
	MaxSubscriptions  int    `koanf:"max_subscriptions" help:"channels of one connection; more are an error"`
	MaxAgentCalls     int    `koanf:"max_agent_calls" help:"reads from one spoke under way at a time; more wait"`
	LastKnownBytes    int64  `koanf:"last_known_bytes" help:"room in the hub's Redis for the last values of spokes, which are shown for 7 days while a spoke is away; 0 for none"`
	LastKnownMax      int    `koanf:"last_known_max" help:"longest such value, in bytes"`
	LastKnownUnopened bool   `koanf:"last_known_unopened" help:"read such values of Applications that were not opened, too: after an agent has connected, and when resources have changed, at most 5 values a second of one agent and 100 of all"`
}

// DefaultRedisProxy takes no connections.
func DefaultRedisProxy() RedisProxy {
	return RedisProxy{
		MaxConnections: 4096, MaxSubscriptions: 1024, MaxAgentCalls: 64, LastKnownBytes: 512 << 20, LastKnownMax: 1 << 20,
		LastKnownUnopened: true,
	}
}

// Validate reports every problem.
func (p RedisProxy) Validate() error {
	var problems []error
	if p.Listen != "" {
		_, _, err := listen.Parse(p.Listen)
		address, addressErr := mesh.ParseAddress(p.Listen)
		if err != nil || addressErr != nil || !address.IsLocal() {
			problems = append(problems,
				config.Invalid("listen",
					"%q is not for this pod alone: use a unix socket, such as unix:///run/argomesh/redis-proxy.sock, or a loopback address", p.Listen))
		}
	}
	for key, n := range map[string]int{"max_connections": p.MaxConnections, "max_subscriptions": p.MaxSubscriptions,
		"max_agent_calls": p.MaxAgentCalls, "last_known_max": p.LastKnownMax} {
		if n < 1 {
			problems = append(problems, config.Invalid(key, "%d admits none: use 1 or more", n))
		}
	}
	if p.LastKnownBytes < 0 {
		problems = append(problems, config.Invalid("last_known_bytes", "%d is not a size: use 0 or more", p.LastKnownBytes))
	}
	return errors.Join(problems...)
}

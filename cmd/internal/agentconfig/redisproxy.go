package agentconfig

import (
	"github.com/argomesh/argomesh/cmd/internal/config"
)

// RedisProxy lets the hub read what this spoke's Argo CD keeps of its Applications: the
// trees, the managed resources, and that they changed. Nothing else in Redis can be
// reached, and nothing be written. Key: redis_proxy.
type RedisProxy struct {
	Enabled        bool `koanf:"enabled" help:"let the hub show the resources of this spoke's Applications, from the Redis of redis.address"`
	MaxConnections int  `koanf:"max_connections" help:"connections of the hub to Redis at a time; more are refused"`
}

// DefaultRedisProxy lets the hub read nothing.
func DefaultRedisProxy() RedisProxy { return RedisProxy{MaxConnections: 256} }

// Validate reports every problem.
func (p RedisProxy) Validate() error {
	if p.MaxConnections < 1 {
		return config.Invalid("max_connections", "%d admits none: use 1 or more, or leave redis_proxy.enabled false",
			p.MaxConnections)
	}
	return nil
}

package config

import (
	"errors"
	"net"
	"strings"
)

// Redis is the one that an Argo CD uses, and how that Argo CD keeps values in it.
// Key: redis.
type Redis struct {
	Address      string   `koanf:"address" help:"host:port or unix:///path of the Redis of this side's Argo CD; empty leaves Redis alone"`
	Username     string   `koanf:"username" help:"user of Redis; empty for its default user"`
	PasswordFile string   `koanf:"password_file" help:"file with the password of Redis, read for each connection; empty for none"`
	Database     int      `koanf:"database" help:"number of the database, Argo CD's --redisdb"`
	TLS          RedisTLS `koanf:"tls"`
	CacheVersion string   `koanf:"cache_version" help:"last part of Argo CD's keys, a constant of each of its releases (CacheVersion)"`
	Compression  string   `koanf:"compression" help:"gzip or none, Argo CD's --redis-compress"`
}

// RedisTLS is how Redis proves who it is. Key: redis.tls.
type RedisTLS struct {
	Enabled    bool   `koanf:"enabled" help:"speak TLS with Redis"`
	CAFile     string `koanf:"ca_file" help:"PEM file of the authorities to trust, read for each connection; empty for the system's"`
	ServerName string `koanf:"server_name" help:"name in the certificate of Redis; empty for the host of redis.address"`
}

// The values of [Redis.Compression].
const (
	CompressionGzip = "gzip"
	CompressionNone = "none"
)

// DefaultRedis leaves Redis alone; an address given, it is read as an Argo CD of
// that cache version keeps it by default.
func DefaultRedis(cacheVersion string) Redis {
	return Redis{CacheVersion: cacheVersion, Compression: CompressionGzip}
}

// Validate reports every problem.
func (r Redis) Validate() error {
	var problems []error
	path, isUnix := strings.CutPrefix(r.Address, "unix://")
	if isUnix {
		if !strings.HasPrefix(path, "/") {
			problems = append(problems,
				Invalid("address", "%q is not unix:///path: give the absolute path of the socket", r.Address))
		}
	} else if r.Address != "" {
		if host, port, err := net.SplitHostPort(r.Address); err != nil || host == "" || port == "" {
			problems = append(problems,
				Invalid("address",
					"%q is not host:port: give the address of Argo CD's Redis, such as argocd-redis:6379, or unix:///path", r.Address))
		}
	}
	if r.Database < 0 {
		problems = append(problems, Invalid("database", "%d is not a database: use 0 or more", r.Database))
	}
	if r.CacheVersion == "" || strings.ContainsAny(r.CacheVersion, "| \t\r\n") {
		problems = append(problems,
			Invalid("cache_version",
				"%q is not the last part of a key: leave it out, or give CacheVersion of your Argo CD's release", r.CacheVersion))
	}
	if r.Compression != CompressionGzip && r.Compression != CompressionNone {
		problems = append(problems,
			Invalid("compression", "%q is not a compression: use %s or %s", r.Compression, CompressionGzip, CompressionNone))
	}
	switch {
	case r.TLS.Enabled && isUnix && r.TLS.ServerName == "":
		problems = append(problems,
			Invalid("tls.server_name", "is not set: a unix socket has no host name to check the certificate against"))
	case !r.TLS.Enabled && (r.TLS.CAFile != "" || r.TLS.ServerName != ""):
		problems = append(problems,
			Invalid("tls.enabled",
				"is false, so the other settings of redis.tls would do nothing: set it to true, or leave them out"))
	}
	return errors.Join(problems...)
}

package config_test

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/cmd/internal/config"
)

func TestRedis(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*config.Redis)
		want   string // the key of the problem; empty for none
	}{
		"none":                     {func(*config.Redis) {}, ""},
		"host and port":            {func(r *config.Redis) { r.Address = "argocd-redis:6379" }, ""},
		"a socket":                 {func(r *config.Redis) { r.Address = "unix:///run/redis.sock" }, ""},
		"a socket with TLS":        {func(r *config.Redis) { r.Address, r.TLS = "unix:///r", config.RedisTLS{Enabled: true, ServerName: "r"} }, ""},
		"a host":                   {func(r *config.Redis) { r.Address = "argocd-redis" }, "address:"},
		"a port":                   {func(r *config.Redis) { r.Address = ":6379" }, "address:"},
		"a URL":                    {func(r *config.Redis) { r.Address = "redis://argocd-redis:6379" }, "address:"},
		"a socket without path":    {func(r *config.Redis) { r.Address = "unix://run" }, "address:"},
		"no database":              {func(r *config.Redis) { r.Database = -1 }, "database:"},
		"no version":               {func(r *config.Redis) { r.CacheVersion = "" }, "cache_version:"},
		"a version with a bar":     {func(r *config.Redis) { r.CacheVersion = "1|2" }, "cache_version:"},
		"an unknown compression":   {func(r *config.Redis) { r.Compression = "zstd" }, "compression:"},
		"a CA without TLS":         {func(r *config.Redis) { r.TLS.CAFile = "/ca.crt" }, "tls.enabled:"},
		"a socket without a name":  {func(r *config.Redis) { r.Address, r.TLS.Enabled = "unix:///r", true }, "tls.server_name:"},
		"no compression, for once": {func(r *config.Redis) { r.Compression = config.CompressionNone }, ""},
	} {
		r := config.DefaultRedis("1.8.3")
		tt.change(&r)
		err := config.Validate(&r)
		if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: Validate() = %v, want %q", name, err, tt.want)
		}
	}
}

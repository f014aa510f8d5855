package argoredis

import (
	"context"
	"net"

	"github.com/argomesh/argomesh/cmd/internal/config"
)

// Dial opens a connection on which nothing was said yet, over TLS where that is
// configured.
func Dial(ctx context.Context, cfg config.Redis) (net.Conn, error) {
	return dialer{cfg: cfg}.dial(ctx, "", "")
}

// Credentials returns who we are to Redis; nothing for no one. The password is read
// again each time.
func Credentials(ctx context.Context, cfg config.Redis) (username, password string, err error) {
	return dialer{cfg: cfg}.credentials(ctx)
}

package client

import (
	"context"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// tokenRetry is the pause after a token that cannot be had, while a connection is
// open.
const tokenRetry = 2 * time.Second

// renew proves who we are again and again on an open connection, each time before
// the proof expires, until ctx is done or the connection is over.
func (c *Client) renew(ctx context.Context, conn *Conn, token string, renewAt time.Time) {
	timer := time.NewTimer(time.Until(renewAt))
	defer timer.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next, at, err := c.cfg.Token(ctx)
		if err != nil {
			if !failing && ctx.Err() == nil {
				c.cfg.Log.Warn().Err(err).
					Msg("no new token for the connection to the principal, which ends when the last one has expired")
			}
			failing = true
			timer.Reset(tokenRetry)
			continue
		}
		failing = false
		timer.Reset(time.Until(at))
		if next == token {
			continue
		}
		if err := conn.Send(stream.Credential{Token: next}); err != nil {
			return // Serve learns why
		}
		token = next
		c.cfg.Log.Debug().Msg("identity proven again")
	}
}

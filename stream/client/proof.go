package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
)

// tokenRetry is the pause after a token that cannot be had, while a connection is
// open.
const tokenRetry = 2 * time.Second

// newNonce returns a nonce for one connection, or none where TLS shows the
// principal.
func (c *Client) newNonce() stream.Nonce {
	if c.cfg.Verify == nil {
		return ""
	}
	random := make([]byte, stream.NonceBytes)
	_, _ = rand.Read(random) // it never fails, says its documentation
	return stream.Nonce(random)
}

// proven checks that w comes from the principal, as far as TLS has not.
func (c *Client) proven(w stream.Welcome, nonce stream.Nonce) error {
	if c.cfg.Verify == nil {
		return nil
	}
	if w.Proof == "" || w.Nonce != nonce {
		return fmt.Errorf("%w: its welcome has no proof for this connection", call.ErrImpostor)
	}
	if err := c.cfg.Verify(w.Proof, nonce); err != nil {
		return fmt.Errorf("%w: %w", call.ErrImpostor, err)
	}
	return nil
}

// authorized returns ctx for a call that carries our token, where there is one, and
// when to send the next.
func (c *Client) authorized(ctx context.Context) (withToken context.Context, token string, renewAt time.Time, err error) {
	if c.cfg.Token == nil {
		return ctx, "", time.Time{}, nil
	}
	if token, renewAt, err = c.cfg.Token(ctx); err != nil {
		return nil, "", time.Time{}, err
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), token, renewAt, nil
}

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
				c.cfg.Log.Warn().Err(err).Msg("no new token for the connection to the principal, which ends when the last one has expired")
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

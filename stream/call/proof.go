package call

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/argomesh/argomesh/stream"
)

// Proof is what the first message of a principal says of who it is, as far as TLS
// does not show it, and of how long its caller is believed. The zero value says
// nothing.
type Proof struct {
	// Token is a JWT-SVID of the principal for its caller and Nonce. Empty when there
	// was no nonce.
	Token string
	Nonce stream.Nonce // that of the caller
	// ProveAgain is after how long the caller should prove itself by a new connection,
	// in whole seconds, at most stream.MaxProveAgain. Zero means that it knows when its
	// proof ends.
	ProveAgain time.Duration
}

// Prove returns what the first answer to a caller says of the principal. Errors wrap
// ErrUnproven.
func (g *Admission) Prove(ctx context.Context, c Caller, nonce stream.Nonce) (Proof, error) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.HelloTimeout)
	defer cancel()
	p, err := g.cfg.Prove(ctx, c, nonce)
	if err != nil {
		return Proof{}, fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	return p, nil
}

// Mutual is how an agent proves itself in its calls, and has its principal prove
// itself, where TLS does not do it. The zero value leaves both to TLS.
type Mutual struct {
	// Token returns a JWT-SVID that proves us to the principal, and when to ask for
	// the next. Nil means that TLS proves us.
	Token func(ctx context.Context) (token string, renewAt time.Time, err error)
	// Verify returns nil when proof shows that the principal itself answers to nonce.
	// Until then nothing but hello is sent, and nothing obeyed. Nil means that TLS has
	// shown it.
	Verify func(proof string, nonce stream.Nonce) error
}

// Authorize returns ctx for a call that carries our token, where there is one, and
// when to prove ourselves by the next.
func (m Mutual) Authorize(ctx context.Context) (withToken context.Context, token string, renewAt time.Time, err error) {
	if m.Token == nil {
		return ctx, "", time.Time{}, nil
	}
	if token, renewAt, err = m.Token(ctx); err != nil {
		return nil, "", time.Time{}, err
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), token, renewAt, nil
}

// NewNonce returns a nonce for one connection, or none where TLS shows the principal.
func (m Mutual) NewNonce() stream.Nonce {
	if m.Verify == nil {
		return ""
	}
	random := make([]byte, stream.NonceBytes)
	_, _ = rand.Read(random) // it never fails, says its documentation
	return stream.Nonce(random)
}

// Check returns nil when the first message of the answer to nonce comes from the
// principal, as far as TLS has not shown that. Errors wrap ErrImpostor.
func (m Mutual) Check(p Proof, nonce stream.Nonce) error {
	if m.Verify == nil {
		return nil
	}
	if p.Token == "" || p.Nonce != nonce {
		return fmt.Errorf("%w: its welcome has no proof for this connection", ErrImpostor)
	}
	if err := m.Verify(p.Token, nonce); err != nil {
		return fmt.Errorf("%w: %w", ErrImpostor, err)
	}
	return nil
}

package server

import (
	"context"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
)

const (
	// tokensPerSecond is how many proofs of this process one agent has signed in a second,
	// after as many at once. Each nonce is an audience of its own, so that no proof comes
	// from a cache of the Workload API, and who signs there bounds this process and not
	// the agent that asks.
	tokensPerSecond = 10
	// maxCachedTokens is how many of its last proofs an agent has again without a signature:
	// each of its TCP connections has one nonce for all its calls.
	maxCachedTokens = 32
	// tokenAge is for how long: a JWT-SVID outlives it.
	tokenAge = 30 * time.Second
)

// signatures bounds what agents have signed, each for itself.
type signatures struct {
	mu      sync.Mutex // guards what follows
	byAgent map[identity.AgentName]*signatory
	swept   time.Time
}

// signatory is one agent.
type signatory struct {
	bucket *rate.Limiter

	mu     sync.Mutex // guards tokens
	tokens []cachedToken
}

type cachedToken struct {
	to    spiffeid.ID
	nonce stream.Nonce
	token string
	at    time.Time
}

func newSignatures() *signatures {
	return &signatures{byAgent: map[identity.AgentName]*signatory{}}
}

// token returns what sign does, which it returned of late for the same connection, or
// waits where the agent has had as many as it may. Who would wait beyond the end of ctx is refused.
func (s *signatures) token(
	ctx context.Context, sign func(context.Context, spiffeid.ID, stream.Nonce) (string, error), to call.Caller,
	nonce stream.Nonce,
) (string, error) {
	a := s.agent(to.Agent.Name)
	if token := a.cached(to.Peer.ID, nonce); token != "" {
		return token, nil
	}
	if err := a.bucket.Wait(ctx); err != nil {
		return "", err
	}
	token, err := sign(ctx, to.Peer.ID, nonce)
	if err != nil {
		return "", err
	}
	a.cache(cachedToken{to.Peer.ID, nonce, token, time.Now()})
	return token, nil
}

func (s *signatures) agent(name identity.AgentName) *signatory {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.byAgent[name]; a != nil {
		return a
	}
	if time.Since(s.swept) >= tokenAge {
		s.swept = time.Now()
		for name, a := range s.byAgent {
			if a.isIdle() {
				delete(s.byAgent, name)
			}
		}
	}
	a := &signatory{bucket: rate.NewLimiter(tokensPerSecond, tokensPerSecond)}
	s.byAgent[name] = a
	return a
}

// isIdle reports whether nothing is lost when the agent is forgotten.
func (a *signatory) isIdle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bucket.Tokens() >= tokensPerSecond &&
		(len(a.tokens) == 0 || time.Since(a.tokens[len(a.tokens)-1].at) >= tokenAge)
}

// cached returns the newest token for a connection; empty when there is none of late.
func (a *signatory) cached(to spiffeid.ID, nonce stream.Nonce) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range a.tokens {
		if k.to == to && k.nonce == nonce && time.Since(k.at) < tokenAge {
			return k.token
		}
	}
	return ""
}

func (a *signatory) cache(k cachedToken) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.tokens) == maxCachedTokens {
		a.tokens = append(a.tokens[:0], a.tokens[1:]...)
	}
	a.tokens = append(a.tokens, k)
}

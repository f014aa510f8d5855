package call

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/argomesh/argomesh/identity"
)

// sweepInterval is how often those are forgotten that have all of theirs again.
const sweepInterval = time.Minute

// AgentLimiter bounds how often something happens on account of each agent: so often at once,
// and so often in a second from then on. It remembers those to whom something happened of late,
// and those are registered. It may be used by several goroutines at once.
type AgentLimiter struct {
	perSecond rate.Limit
	atOnce    int

	mu      sync.Mutex // guards what follows
	byAgent map[identity.AgentName]*rate.Limiter
	swept   time.Time
}

// NewAgentLimiter returns one that has counted nothing.
func NewAgentLimiter(perSecond, atOnce int) *AgentLimiter {
	return &AgentLimiter{perSecond: rate.Limit(perSecond), atOnce: atOnce,
		byAgent: map[identity.AgentName]*rate.Limiter{}}
}

// Allow counts one more, and reports whether it may be, which it may not when there were too many.
func (l *AgentLimiter) Allow(agent identity.AgentName, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) >= sweepInterval {
		l.swept = now
		for name, bucket := range l.byAgent {
			if bucket.TokensAt(now) >= float64(l.atOnce) {
				delete(l.byAgent, name)
			}
		}
	}
	bucket := l.byAgent[agent]
	if bucket == nil {
		bucket = rate.NewLimiter(l.perSecond, l.atOnce)
		l.byAgent[agent] = bucket
	}
	return bucket.AllowN(now, 1)
}

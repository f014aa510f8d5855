package call

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/argomesh/argomesh/identity"
)

// paceSweep is how often those are forgotten that have all of theirs again.
const paceSweep = time.Minute

// Pace bounds how often something happens on account of each agent: so often at once, and
// so often in a second from then on. It remembers those to whom something happened of late,
// and those are registered. It may be used by several goroutines at once.
type Pace struct {
	perSecond rate.Limit
	atOnce    int

	mu    sync.Mutex // guards what follows
	of    map[identity.AgentName]*rate.Limiter
	swept time.Time
}

// NewPace returns one by which all have all of theirs.
func NewPace(perSecond, atOnce int) *Pace {
	return &Pace{perSecond: rate.Limit(perSecond), atOnce: atOnce, of: map[identity.AgentName]*rate.Limiter{}}
}

// Take counts one more, unless there were too many of the agent's.
func (p *Pace) Take(agent identity.AgentName, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.swept) >= paceSweep {
		p.swept = now
		for name, bucket := range p.of {
			if bucket.TokensAt(now) >= float64(p.atOnce) {
				delete(p.of, name)
			}
		}
	}
	bucket := p.of[agent]
	if bucket == nil {
		bucket = rate.NewLimiter(p.perSecond, p.atOnce)
		p.of[agent] = bucket
	}
	return bucket.AllowN(now, 1)
}

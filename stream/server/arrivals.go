package server

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/argomesh/argomesh/identity"
)

const (
	// arrivalsAtOnce is how often an agent may begin its sync stream in a row, and
	// arrivalsPerSecond how often it may in a second from then on. Each begin costs the hub
	// reads of its API server, a write of the agent's Agent, lines in its log, and a digest
	// of all that the agent has.
	arrivalsAtOnce    = 100
	arrivalsPerSecond = 1
	// arrivalsSweep is how often those are forgotten that have all of theirs again.
	arrivalsSweep = time.Minute
)

// arrivals bounds how often agents begin their sync streams, each for itself.
type arrivals struct {
	mu    sync.Mutex // guards what follows
	of    map[identity.AgentName]*rate.Limiter
	swept time.Time
}

func newArrivals() *arrivals { return &arrivals{of: map[identity.AgentName]*rate.Limiter{}} }

// enter counts one more at a time, unless the agent has begun too often.
func (a *arrivals) enter(agent identity.AgentName, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.swept) >= arrivalsSweep {
		a.swept = now
		for name, bucket := range a.of {
			if bucket.TokensAt(now) >= arrivalsAtOnce {
				delete(a.of, name)
			}
		}
	}
	bucket := a.of[agent]
	if bucket == nil {
		bucket = rate.NewLimiter(arrivalsPerSecond, arrivalsAtOnce)
		a.of[agent] = bucket
	}
	return bucket.AllowN(now, 1)
}

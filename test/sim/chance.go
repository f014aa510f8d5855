package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// chance is where everything random comes from while a command runs: a source of
// its own for each actor, seeded by the command and the actor's name, so that
// what one actor draws does not change what another does.
type chance struct {
	mu     sync.Mutex // guards what follows
	seed   uint64
	actors map[string]*rand.Rand
}

func newChance(seed uint64) *chance {
	return &chance{seed: seed, actors: map[string]*rand.Rand{}}
}

// begin goes on with the chance of another command.
func (c *chance) begin(seed uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seed = seed
	clear(c.actors)
}

// n returns a number from 0 to limit-1.
func (c *chance) n(actor string, limit int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.actors[actor]
	if r == nil {
		name := fnv.New64a()
		_, _ = name.Write([]byte(actor)) // a hash takes everything
		r = rand.New(rand.NewPCG(c.seed, name.Sum64()))
		c.actors[actor] = r
	}
	return r.IntN(limit)
}

// upTo returns a duration of at least a nanosecond and at most limit.
func (c *chance) upTo(actor string, limit time.Duration) time.Duration {
	return 1 + time.Duration(c.n(actor, int(limit)))
}

package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// chance is where everything random comes from while a command runs. A draw
// follows from the command's seed, from the name of what is drawn and from the
// instant, and from nothing else: so what one actor draws does not change what
// another does, and neither does how often someone drew before.
type chance struct{ seed atomic.Uint64 }

// begin goes on with the chance of another command.
func (c *chance) begin(seed uint64) { c.seed.Store(seed) }

// n returns a number from 0 to limit-1. Two draws of one instant need two names.
func (c *chance) n(what string, limit int) int {
	name := fnv.New64a()
	_, _ = name.Write([]byte(what)) // a hash takes everything
	instant := uint64(time.Now().UnixNano())
	return rand.New(rand.NewPCG(c.seed.Load()^instant, name.Sum64())).IntN(limit)
}

// upTo returns a duration of at least a nanosecond and at most limit.
func (c *chance) upTo(what string, limit time.Duration) time.Duration {
	return 1 + time.Duration(c.n(what, int(limit)))
}

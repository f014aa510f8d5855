package sim

import (
	"math/rand/v2"
	"time"
)

// mixed is Generate with about share of a hundred commands that are drawn by draw, for a
// place of the history.
func mixed(seed, kind uint64, share int, draw func(r *rand.Rand, place string) Command) Trace {
	t := Generate(seed)
	r := rand.New(rand.NewPCG(seed, kind))
	for i := range t.Commands {
		if r.IntN(100) >= share {
			continue
		}
		c := draw(r, place(r, t.Agents[r.IntN(len(t.Agents))]))
		c.Seed, c.Wait = uint64(r.Uint32()), time.Duration(r.IntN(400))*time.Millisecond
		t.Commands[i] = c
	}
	return t
}

// upToSeconds draws a time.
func upToSeconds(r *rand.Rand, n int) time.Duration { return time.Duration(1+r.IntN(n)) * time.Second }

// GenerateTwins is Generate with processes that live on beside their successors.
func GenerateTwins(seed uint64) Trace {
	return mixed(seed, 10, 10, func(r *rand.Rand, place string) Command {
		return Command{Verb: Twin, Place: place, For: upToSeconds(r, 20)}
	})
}

// GenerateFrozen is Generate with processes that are frozen, some until long after their
// role went to another.
func GenerateFrozen(seed uint64) Trace {
	t := mixed(seed, 11, 10, func(r *rand.Rand, place string) Command {
		life := upToSeconds(r, 20)
		if r.IntN(3) == 0 {
			life = upToSeconds(r, 300)
		}
		return Command{Verb: Freeze, Place: place, For: life}
	})
	t.Fields = true // automated sync
	return t
}

// GenerateClocks is Generate with clocks that jump, ahead and back.
func GenerateClocks(seed uint64) Trace {
	return mixed(seed, 12, 15, func(r *rand.Rand, place string) Command {
		c := Command{Verb: []Verb{Clock, APIClock}[r.IntN(2)], Place: place}
		if c.For = []time.Duration{0, upToSeconds(r, 10), upToSeconds(r, 600), 24 * time.Hour, 10 * 365 * 24 * time.Hour}[r.IntN(5)]; r.IntN(2) == 0 {
			c.For = -c.For
		}
		return c
	})
}

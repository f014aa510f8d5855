package sim

import (
	"math/rand/v2"
	"time"
)

// GenerateDepartures is Generate with one or two Agents that are deleted in between, with
// their Applications or without, and spokes that are rebuilt now and
// then, and people who accept what is held, or do not.
func GenerateDepartures(seed uint64) Trace {
	t := Generate(seed)
	r := rand.New(rand.NewPCG(seed, 21))
	if r.IntN(4) == 0 {
		t = GenerateClusters(seed)
	}
	for i := range t.Commands {
		if r.IntN(100) < 7 {
			t.Commands[i] = Command{
				Verb: []Verb{Rebuild, Accept, Accept}[r.IntN(3)], Place: t.Agents[r.IntN(len(t.Agents))].Name,
				Seed: t.Commands[i].Seed, Wait: time.Duration(r.IntN(400)) * time.Millisecond,
			}
		}
	}
	for _, a := range t.Agents[:1+r.IntN(2)] {
		i := 20 + r.IntN(steps-20)
		t.Commands[i] = Command{
			Verb: Depart, Place: a.Name, Cascade: r.IntN(2) == 0, Seed: t.Commands[i].Seed, Wait: time.Duration(r.IntN(10)) * time.Second,
		}
	}
	return t
}

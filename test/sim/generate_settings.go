package sim

import (
	"math/rand/v2"
	"time"
)

// GenerateSettings is Generate with settings of principal and Agents that change: whether the
// AppProject default is shared, and adopted where it is there before, and whether the
// projects of autonomous agents have their roles on the hub. In every third history spokes have
// no AppProject default at first, and in every second one a mass cascade waits for a person,
// who lets it go or keeps the workloads.
func GenerateSettings(seed uint64) Trace {
	t := Generate(seed)
	t.Default, t.Holds = seed%3 > 0, seed%2 == 0
	r := rand.New(rand.NewPCG(seed, 13))
	for i := range t.Commands {
		if r.IntN(100) >= 30 {
			continue
		}
		c := settings(r, t)
		c.Seed, c.Wait = t.Commands[i].Seed, t.Commands[i].Wait
		t.Commands[i] = c
	}
	if t.Holds {
		t.Commands[40].Wait += 6 * time.Minute // what is younger than five does not count
	}
	return t
}

// settings draws one command of these.
func settings(r *rand.Rand, t Trace) Command {
	a := t.Agents[r.IntN(len(t.Agents))]
	n := 1 + r.IntN(1000)
	switch k := r.IntN(20); {
	case k < 3:
		return Command{Verb: Share, Off: r.IntN(2) == 0}
	case k < 6:
		return Command{Verb: Set, Place: a.Name, Says: setAdoptDefault, Off: r.IntN(4) == 0}
	case k < 8:
		return Command{Verb: Default, Place: place(r, a), N: n, Off: r.IntN(4) == 0}
	case k < 11:
		return Command{Verb: Set, Place: a.Name, Says: setRoles, Off: r.IntN(3) == 0}
	case k < 15 || !t.Holds:
		return Command{Verb: Project, Place: a.Name, N: n, Off: r.IntN(6) == 0}
	case k < 18:
		return Command{Verb: Keep, Place: a.Name}
	}
	return Command{Verb: Accept, Place: a.Name}
}

// GenerateOlderRestores is GenerateBreaks, or GenerateRestoredSpokes, with backups of a newer
// Argo CD that are restored to an older one, and with an Argo CD that becomes older and newer
// between a backup and its restore.
func GenerateOlderRestores(seed uint64) Trace {
	t := GenerateBreaks(seed)
	if seed%2 == 0 {
		t = GenerateRestoredSpokes(seed)
	}
	t.Fields = true
	r := rand.New(rand.NewPCG(seed, 15))
	for i := range t.Commands {
		c := &t.Commands[i]
		switch {
		case c.Verb == Restore:
			c.Older = r.IntN(2) == 0
		case r.IntN(100) < 4:
			*c = Command{Verb: Schema, Place: place(r, t.Agents[r.IntN(len(t.Agents))]), Off: r.IntN(2) == 0, Seed: c.Seed, Wait: c.Wait}
		}
	}
	return t
}

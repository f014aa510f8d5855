package sim

import (
	"math/rand/v2"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// GenerateSeam is Generate with what API servers and others do at the seam to Argo CD:
// spokes whose Argo CD becomes older and newer, refusals, namespaces that are deleted,
// objects that were there before, second writers, confirmations, and settings that
// change. In every second history the controllers write as Argo CD's do, and in every
// second one a mass cascade waits for a person.
func GenerateSeam(seed uint64) Trace {
	t := Generate(seed)
	r := rand.New(rand.NewPCG(seed, 3))
	t.Fields, t.ArgoCD = r.IntN(4) > 0, r.IntN(2) == 0
	for i := range t.Commands {
		if r.IntN(100) >= 25 {
			continue
		}
		c := seam(r, t, t.Commands[i])
		c.Seed, c.Wait = uint64(r.Uint32()), time.Duration(r.IntN(400))*time.Millisecond
		t.Commands[i] = c
	}
	if t.Holds = r.IntN(2) == 0; t.Holds {
		t.Commands[40].Wait += 6 * time.Minute // what is younger than five does not count
	}
	for i := range t.Commands {
		if t.Holds && r.IntN(100) < 4 {
			t.Commands[i] = Command{Verb: Accept, Place: t.Agents[r.IntN(len(t.Agents))].Name, Seed: t.Commands[i].Seed, Wait: t.Commands[i].Wait}
		}
	}
	return t
}

// seam draws one command of these.
func seam(r *rand.Rand, t Trace, was Command) Command {
	a := t.Agents[r.IntN(len(t.Agents))]
	app := was.App
	if app == "" {
		app = "app-0"
	}
	c := Command{Place: a.Name, App: app, N: was.N}
	of := func(list ...string) string { return list[r.IntN(len(list))] }
	switch k := r.IntN(24); {
	case k < 4:
		c = Command{Verb: Schema, Place: place(r, a), Off: r.IntN(2) == 0}
	case k < 7:
		c = Command{Verb: Refuse, Place: place(r, a), Off: r.IntN(2) == 0}
	case k < 8:
		c = Command{Verb: Doom, Place: a.Name, On: stream.Side(1 + r.IntN(2)), Off: r.IntN(2) == 0}
	case k < 13:
		c.Verb, c.Cascade = Found, r.IntN(3) == 0
		c.Kind, c.Marks, c.Says = of("", "", kindProject, kindRepository), of("", "", marksHub, marksAgent), of("", adoptAlways, adoptNever)
	case k < 14:
		c.Verb, c.Kind, c.Says = Adopt, of("", kindProject, kindRepository), of("", adoptAlways, adoptNever)
	case k < 15:
		c.Verb, c.For = Fight, []time.Duration{0, 10 * time.Second}[r.IntN(2)]
	case k < 19:
		c.Verb, c.N = Approve, 0
	default:
		c = Command{Verb: Set, Place: a.Name, Says: settingNames[r.IntN(len(settingNames))], Off: r.IntN(2) == 0}
		if c.Says == setAdopt && a.Mode == stream.Autonomous {
			c.On = stream.Hub
		}
	}
	return c
}

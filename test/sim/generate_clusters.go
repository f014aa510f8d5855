package sim

import (
	"math/rand/v2"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// GenerateClusters is Generate with two or three agents on one Kubernetes cluster, between
// which Applications go to and fro, in a cluster that is rebuilt or restored now and then.
func GenerateClusters(seed uint64) Trace {
	t := Generate(seed)
	r := rand.New(rand.NewPCG(seed, 20))
	if t.Agents[0].Mode != stream.Managed && t.Agents[1].Mode != stream.Managed {
		t.Agents[r.IntN(2)].Mode = stream.Managed
	}
	shared := r.IntN(4) > 0
	for i := range t.Agents {
		t.Agents[i].Shared = shared && t.Agents[i].Mode == stream.Managed
	}
	t.Agents[1].Beside = t.Agents[0].Name
	if r.IntN(2) == 0 {
		t.Agents[2].Beside = t.Agents[0].Name
	}
	for i, was := range t.Commands {
		if r.IntN(100) >= 25 {
			continue
		}
		a := t.Agents[r.IntN(len(t.Agents))]
		c := Command{Place: a.Name, App: "app-0", N: i + 1}
		if was.App != "" {
			c.App = was.App
		}
		switch k := r.IntN(24); {
		case k < 10:
			if c.Verb = Handover; !a.Shared {
				c.Verb = Edit
			}
		case k < 12:
			c.Verb, c.Cascade = Remove, r.IntN(2) == 0
		case k < 15:
			c = Command{Verb: Kill, Place: place(r, a)}
		case k < 18:
			c.Verb, c.Kind, c.Marks = Found, []string{"", kindProject, kindRepository}[r.IntN(3)], []string{"", marksAgent}[r.IntN(2)]
		case k < 20:
			c = Command{Verb: Set, Place: a.Name, Says: setAdopt, Off: r.IntN(2) == 0}
		case k < 21:
			c = Command{Verb: Rebuild, Place: a.Name}
		case k < 22:
			c = Command{Verb: Snapshot, Place: a.Name, Wait: 5 * tokenTime}
		case k < 23:
			c = Command{Verb: Restore, Place: a.Name}
		default:
			c = Command{Verb: Accept, Place: a.Name}
		}
		c.Seed, c.Wait = uint64(r.Uint32()), c.Wait+time.Duration(r.IntN(400))*time.Millisecond
		t.Commands[i] = c
	}
	return t
}

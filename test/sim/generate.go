package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// steps is how many commands a drawn history has.
const steps = 120

// Generate draws a history of three agents from a seed. In every second one the managed
// ones share a namespace, and in every second one they have delete hooks.
func Generate(seed uint64) Trace {
	r := rand.New(rand.NewPCG(seed, 0))
	t := Trace{Seed: seed}
	for i := range 3 {
		mode := stream.Managed
		if r.IntN(2) == 0 {
			mode = stream.Autonomous
		}
		t.Agents = append(t.Agents, Agent{Name: fmt.Sprint("edge-", i+1), Mode: mode})
	}
	if r.IntN(2) == 0 {
		for i := range t.Agents {
			t.Agents[i].Shared = t.Agents[i].Mode == stream.Managed
		}
	}
	// A clock that is set wrong is part of life, on either side.
	t.Clock = []time.Duration{0, 0, 10 * 365 * 24 * time.Hour, -10 * 365 * 24 * time.Hour}[r.IntN(4)]
	t.Hooks = rand.New(rand.NewPCG(seed, 2)).IntN(2) == 0
	for n := range steps {
		c := draw(r, t, n+1)
		c.Seed = uint64(r.Uint32())
		c.Wait = time.Duration(r.IntN(400)) * time.Millisecond
		t.Commands = append(t.Commands, c)
	}
	return t
}

// GenerateBreaks is Generate with a hub that is restored and spokes that are
// rebuilt, and people who accept what is held, or do not.
func GenerateBreaks(seed uint64) Trace {
	t := Generate(seed)
	r := rand.New(rand.NewPCG(seed, 1))
	t.Commands[5].Wait += 10 * tokenTime // a past to break
	for i := range t.Commands {
		c := Command{Seed: uint64(r.Uint32()), Wait: time.Duration(r.IntN(400)) * time.Millisecond}
		a := t.Agents[r.IntN(len(t.Agents))]
		switch k := r.IntN(100); {
		case k < 4:
			c.Verb = Snapshot
			c.Wait += 5 * tokenTime // what is not older than a token is not seen
		case k < 7:
			c.Verb, c.Count = Restore, []int{0, 1_000_000}[r.IntN(2)]
		case k < 9:
			c.Verb, c.Place = Rebuild, a.Name
		case k < 13:
			c.Verb, c.Place = Accept, a.Name
		default:
			continue
		}
		t.Commands[i] = c
	}
	return t
}

// GenerateRestoredSpokes is Generate with spokes whose etcd is restored while their
// agents live, and people who accept what is held, or do not.
func GenerateRestoredSpokes(seed uint64) Trace {
	t := Generate(seed)
	r := rand.New(rand.NewPCG(seed, 2))
	t.Commands[5].Wait += 10 * tokenTime // a past to break
	for i := range t.Commands {
		c := Command{Seed: uint64(r.Uint32()), Wait: time.Duration(r.IntN(400)) * time.Millisecond, Place: t.Agents[r.IntN(len(t.Agents))].Name}
		switch k := r.IntN(100); {
		case k < 4:
			c.Verb = Snapshot
			c.Wait += 5 * tokenTime // what is not older than the tokens that the hub keeps is not seen
		case k < 10:
			c.Verb, c.Count = Restore, []int{0, 1_000_000}[r.IntN(2)]
		case k < 14:
			c.Verb = Accept
		default:
			continue
		}
		t.Commands[i] = c
	}
	return t
}

// draw draws one command.
func draw(r *rand.Rand, t Trace, n int) Command {
	a := t.Agents[r.IntN(len(t.Agents))]
	c := Command{Place: a.Name, App: fmt.Sprint("app-", r.IntN(5)), N: n}
	other := stream.Spoke
	if a.owner() == stream.Spoke {
		other = stream.Hub
	}
	switch k := r.IntN(55); {
	case k < 10:
		c.Verb, c.Cascade = Edit, r.IntN(2) == 0
	case k < 13:
		c.Verb, c.Cascade = Remove, r.IntN(2) == 0
	case k < 15:
		c.Verb, c.On = Edit, other
	case k < 16:
		c.Verb, c.On = Remove, other
	case k < 17:
		c.Verb = Recreate
	case k < 18:
		c.Verb = Move
	case k < 19:
		c.Verb = Ignore
	case k < 23:
		c.Verb = Status
	case k < 27:
		c.Verb = Sync
	case k < 28:
		c.Verb = Terminate
	case k < 29:
		c.Verb = Refresh
	case k < 30:
		c.Verb = Hydrate
	case k < 31:
		c.Verb = AutoSync
	case k < 33:
		c = Command{Verb: Cut, Place: a.Name}
	case k < 35:
		c = Command{Verb: Renew, Place: a.Name}
	case k < 38:
		c = Command{Verb: Kill, Place: place(r, a), Calls: r.IntN(12), After: r.IntN(2) == 0}
		c.After = c.After && c.Calls > 0
	case k < 40:
		c = Command{Verb: Failing, Place: place(r, a), Off: r.IntN(2) == 0}
	case k < 42:
		c = Command{Verb: Slow, Place: place(r, a), For: []time.Duration{0, 300 * time.Millisecond, 4 * time.Second}[r.IntN(3)]}
	case k < 43:
		c = Command{Verb: Pause, For: time.Duration(r.IntN(40)) * time.Second} // longer than a peer may be silent
	case k < 46:
		if c.Verb = Handover; !a.Shared {
			c.Verb = Edit
		}
	case k < 54:
		if c.Verb = Edit; a.Mode != stream.Managed {
			break
		}
		c.Verb, c.Off = []Verb{Project, Repository, Repository, Trust}[r.IntN(4)], r.IntN(4) == 0
		if c.Verb != Project && r.IntN(3) == 0 {
			c.On = stream.Spoke
		}
	default:
		c = Command{Verb: Burst, Place: a.Name, N: n, Count: 100 + r.IntN(300)}
	}
	return c
}

func place(r *rand.Rand, a Agent) string {
	if r.IntN(2) == 0 {
		return hubPlace
	}
	return a.Name
}

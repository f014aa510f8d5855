package stale

import (
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// batch is how many Applications of an agent are looked at before it is seen again
// whose turn it is.
const batch = 20

// plan decides which Applications are looked at next: those of agents that are away,
// to say so, and those of others, and of no one, to say so no more. It keeps no state of an
// Application: what it shows is looked at when it has its turn.
type plan struct {
	away   map[identity.AgentName]Absence
	agents map[identity.AgentName]*agentLine // of those with something to look at
	begun  uint64                            // counts lines
}

// agentLine is what there is to look at of an agent; of no one, for the zero name.
type agentLine struct {
	order     uint64
	whole     bool // all that the agent has
	keys      map[stream.ResourceKey]bool
	notBefore time.Time // it has no turn before
}

func newPlan() *plan {
	return &plan{away: map[identity.AgentName]Absence{}, agents: map[identity.AgentName]*agentLine{}}
}

// see takes over which agents are away now. All Applications of an agent of which there is
// something else to say than before are looked at.
func (p *plan) see(away map[identity.AgentName]Absence) {
	before := p.away
	p.away = away
	for name, absence := range away {
		if was, known := before[name]; !known || was.Message != absence.Message {
			p.whole(name)
		}
	}
	for name := range before {
		if _, still := away[name]; !still {
			p.whole(name)
		}
	}
}

func (p *plan) whole(name identity.AgentName) {
	s := p.lineOf(name)
	s.whole, s.notBefore = true, time.Time{}
	clear(s.keys)
}

func (p *plan) lineOf(name identity.AgentName) *agentLine {
	s := p.agents[name]
	if s == nil {
		p.begun++
		s = &agentLine{order: p.begun, keys: map[stream.ResourceKey]bool{}}
		p.agents[name] = s
	}
	return s
}

// add has an Application of an agent, or of no one, looked at.
func (p *plan) add(name identity.AgentName, key stream.ResourceKey) {
	if s := p.lineOf(name); !s.whole {
		s.keys[key] = true
	}
}

// next returns the agent whose turn it is among those that are away, or among the others,
// and some of its Applications; none when there is nothing to look at now. Who is away for
// the longest goes first: what a short outage of many says waits. List returns all
// Applications of an agent.
func (p *plan) next(away bool, now time.Time,
	list func(identity.AgentName) []stream.ResourceKey) (identity.AgentName, []stream.ResourceKey) {
	for {
		name, s := p.nextAgent(away, now)
		if s == nil {
			return identity.AgentName{}, nil
		}
		if s.whole {
			s.whole = false
			for _, key := range list(name) {
				s.keys[key] = true
			}
		}
		var keys []stream.ResourceKey
		for key := range s.keys {
			if len(keys) == batch {
				break
			}
			keys = append(keys, key)
			delete(s.keys, key)
		}
		if len(s.keys) == 0 {
			delete(p.agents, name)
		}
		if len(keys) > 0 {
			return name, keys
		}
	}
}

// nextAgent returns whose turn it is; nil for no one's.
func (p *plan) nextAgent(away bool, now time.Time) (name identity.AgentName, turn *agentLine) {
	for candidate, s := range p.agents {
		if _, isAway := p.away[candidate]; isAway != away || now.Before(s.notBefore) {
			continue
		}
		if turn == nil || p.before(candidate, name) {
			name, turn = candidate, s
		}
	}
	return name, turn
}

// before reports whether a's turn comes before b's: who is away for longer, and else who
// waits for longer.
func (p *plan) before(a, b identity.AgentName) bool {
	if c := p.away[a].Since.Compare(p.away[b].Since); c != 0 {
		return c < 0
	}
	return p.agents[a].order < p.agents[b].order
}

// postpone gives Applications back, which have their turn again from then on.
func (p *plan) postpone(name identity.AgentName, keys []stream.ResourceKey, until time.Time) {
	for _, key := range keys {
		p.add(name, key)
	}
	p.lineOf(name).notBefore = until
}

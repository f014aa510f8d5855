package sim

import (
	"github.com/argomesh/argomesh/backends/cascades"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// holdLimit is of how many Applications of an agent on they are too many that are asked to
// go with their workloads: few, since a history has five of each agent.
const holdLimit = 2

// hold has a principal count them, where histories have that, and begin with what the one
// before it had kept.
func (p *process) hold() {
	if !p.fleet.trace.Holds {
		return
	}
	p.cascades = cascades.New(func(identity.AgentName) {})
	before := p.site.cascades.Swap(p.cascades)
	for _, a := range p.site.agents {
		name, err := identity.ParseAgentName(a.Name)
		if err != nil || a.Mode != stream.Managed {
			continue
		}
		var kept cascades.State
		if before != nil {
			kept, _ = before.State(name)
		}
		_, departs, _ := p.fleet.spokes[a.Name].departure.now()
		p.cascades.Limit(name, holdLimit, departs, kept)
	}
}

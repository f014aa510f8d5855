package sim

import (
	"encoding/json"
	"time"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/presence"
	"github.com/argomesh/argomesh/fleet/continuity"
	"github.com/argomesh/argomesh/stream"
)

// linked is what an Agent says of its link.
type linked struct {
	Link       *v1alpha1.AgentLink `json:"link"`
	ObservedAt time.Time           `json:"observedAt"`
}

func linkOf(o backends.Object) linked {
	var agent struct {
		Status linked `json:"status"`
	}
	if err := json.Unmarshal(o.Raw, &agent); err != nil {
		panic("sim: " + err.Error()) // a store holds JSON
	}
	return agent.Status
}

// informed tells the links what a principal's watch of the Agents shows.
func (p *process) informed(key stream.ResourceKey) {
	m := p.mirrors[key.Name]
	o, ok := p.client.Get(key)
	if key.Kind != agentKind || m == nil || !ok {
		return
	}
	kept, accepted := keptOf(o)
	m.Accept(accepted)
	m.Announce(continuity.HistoryOf(kept, 0))
	says := presence.LinkState{ObservedAt: linkOf(o).ObservedAt}
	if link := linkOf(o).Link; link != nil {
		says.Epoch = link.Epoch
	}
	m.ShowLink(says)
}

// observes reports whether it is time to write again that an agent is connected: not soon
// after a clock wrote it, unless that was ahead.
func observes(have, now time.Time) bool {
	return now.Sub(have) >= tokenTime || have.Sub(now) >= tokenTime
}

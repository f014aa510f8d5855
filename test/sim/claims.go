package sim

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/presence"
	"github.com/argomesh/argomesh/fleet"
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

// claimAttempts bounds the reads for one claim.
const claimAttempts = 5

// claim has the Agent name the connection, and returns it as one read shows it.
func (h *historian) claim(ctx context.Context, peer mirror.Peer) (o backends.Object, epoch int64, err error) {
	name := h.process.name
	want := v1alpha1.AgentLink{
		Replica: name, Life: name, Connection: peer.Connection, Process: peer.Hello.Process, Turn: int64(peer.Hello.Turn),
	}
	for range claimAttempts {
		o, err = h.store().Read(ctx, h.agent.agentKey())
		if errors.Is(err, stream.ErrNotFound) { // keep was not there yet
			o, err = h.store().Create(ctx, h.agent.agentKey(), recordOf(h.agent.agentKey(), nil))
		}
		if err != nil {
			return o, 0, err
		}
		has := linkOf(o).Link
		h.meet(has)
		next := fleet.ClaimLink(has, want)
		switch next {
		case nil:
			return o, 0, mirror.ErrSuperseded
		case has:
			return o, has.Epoch, nil
		}
		agent := parse(o.Raw)
		agent.ensure("status")["link"] = next
		if _, err = h.store().Update(ctx, o, agent.raw()); err == nil || !errors.Is(err, stream.ErrConflict) {
			return o, next.Epoch, err
		}
	}
	return o, 0, err
}

// meet notes whether the Agent names another process.
func (h *historian) meet(has *v1alpha1.AgentLink) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if has != nil && has.Life != h.process.name {
		h.other = has.Epoch
	}
}

func (h *historian) otherEpoch() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.other
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
	m.Announce(stands(kept, 0))
	says := presence.LinkState{ObservedAt: linkOf(o).ObservedAt}
	if link := linkOf(o).Link; link != nil {
		says.Epoch = link.Epoch
	}
	m.ShowLink(says)
}

// observes reports whether it is time to write anew that an agent is connected: not soon
// after a clock wrote it, unless that was ahead.
func observes(have, now time.Time) bool {
	return now.Sub(have) >= tokenTime || have.Sub(now) >= tokenTime
}

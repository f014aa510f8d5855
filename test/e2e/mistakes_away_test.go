//go:build linux

package e2e

import (
	"context"
	"errors"
	"time"
)

// toldStale is how soon an Application says that its agent is away: that is a minute, in which
// agents come back by themselves, and ten seconds.
const toldStale = 70 * time.Second

// saysStale is told for condition ArgomeshStaleWarning of an Application, whose own time is
// that since which the agent is away.
func (h *mistakenHub) saysStale(name string) func(*scene) (string, time.Time, error) {
	return func(s *scene) (string, time.Time, error) {
		text, _, err := inCondition(s, h.onHub(), name, staleCondition)
		return text, time.Time{}, err
	}
}

// isBack is nil when the agent is, and an Application says nothing else any more.
func (h *mistakenHub) isBack(ctx context.Context, name string) error {
	return errors.Join(field(ctx, h.w.hub.Resource(agents, mistaken), mistakenAgent, true, "status", "connected"), unsaid(ctx, h.onHub(), name))
}

func (h *mistakenHub) stopped() mistake {
	const name = "left-alone"
	return mistake{
		person: "an agent that was stopped",
		does: func(s *scene) {
			create(s.T, h.onHub(), aimedAt(mistakenAgent, name))
			s.discard(h.onHub(), name)
			s.must(h.agent.Stop(s.Context()))
		},
		on: "condition `ArgomeshStaleWarning` of its Applications", within: toldStale, told: h.saysStale(name),
		says: "agent mistaken-1 is away since …: what is shown here is what its Argo CD said last; agentctl agent get mistaken-1 says more",
		cure: func(s *scene) {
			s.said = s.run(h.w.h, h.w.hub, mistaken, s.find(`(agentctl agent get \S+) says more`))
			s.find("start the agent on its spoke")
			s.must(h.agent.Start(s.Context()))
		},
		cured: func(s *scene) error { return h.isBack(s.Context(), name) },
	}
}

func (h *mistakenHub) suspended() mistake {
	const name = "forgotten"
	return mistake{
		person: "an agent that was suspended, and is forgotten",
		does: func(s *scene) {
			create(s.T, h.onHub(), aimedAt(mistakenAgent, name))
			s.discard(h.onHub(), name)
			_, err := h.w.h.Agentctl(s.Context(), h.w.hub, "--namespace", mistaken, "agent", "suspend", mistakenAgent)
			s.must(err)
		},
		on: "condition `ArgomeshStaleWarning` of its Applications", within: toldStale, told: h.saysStale(name),
		says: "agent mistaken-1 is suspended, and away since …: what is shown here is what its Argo CD said last; agentctl agent resume mistaken-1 lets it come back",
		cure: func(s *scene) {
			s.run(h.w.h, h.w.hub, mistaken, s.find(`(agentctl agent resume \S+) lets it`))
		},
		cured: func(s *scene) error { return h.isBack(s.Context(), name) },
	}
}

//go:build linux

package mistakes

import (
	"context"
	"errors"
	"time"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/e2e/internal/mistake"
)

// toldStale is how soon an Application says that its agent is away: that is a minute, in which
// agents come back by themselves, and ten seconds.
const toldStale = 70 * time.Second

// saysStale is told for condition ArgomeshStaleWarning of an Application, whose own time is
// that since which the agent is away.
func (h *mistakenHub) saysStale(name string) func(*mistake.Scene) (string, time.Time, error) {
	return func(s *mistake.Scene) (string, time.Time, error) {
		text, _, err := inCondition(s, h.onHub(), name, env.StaleCondition)
		return text, time.Time{}, err
	}
}

// isBack is nil when the agent is, and an Application says nothing else any more.
func (h *mistakenHub) isBack(ctx context.Context, name string) error {
	return errors.Join(env.FieldIs(ctx, h.w.Hub.Resource(env.Agents, mistaken), mistakenAgent, true, "status", "connected"), env.NotStale(ctx, h.onHub(), name))
}

func (h *mistakenHub) stopped() mistake.Mistake {
	const name = "left-alone"
	return mistake.Mistake{
		Person: "an agent that was stopped",
		Does: func(s *mistake.Scene) {
			env.Create(s.T, h.onHub(), aimedAt(mistakenAgent, name))
			discard(s, h.onHub(), name)
			s.Must(h.agent.Stop(s.Context()))
		},
		On: "condition `ArgomeshStaleWarning` of its Applications", Within: toldStale, Told: h.saysStale(name),
		Says: "agent mistaken-1 is away since …: what is shown here is what its Argo CD said last; agentctl agent get mistaken-1 says more",
		Cure: func(s *mistake.Scene) {
			s.Said = run(s, h.w.Harness, h.w.Hub, mistaken, s.Find(`(agentctl agent get \S+) says more`))
			s.Find("start the agent on its spoke")
			s.Must(h.agent.Start(s.Context()))
		},
		Cured: func(s *mistake.Scene) error { return h.isBack(s.Context(), name) },
	}
}

func (h *mistakenHub) suspended() mistake.Mistake {
	const name = "forgotten"
	return mistake.Mistake{
		Person: "an agent that was suspended, and is forgotten",
		Does: func(s *mistake.Scene) {
			env.Create(s.T, h.onHub(), aimedAt(mistakenAgent, name))
			discard(s, h.onHub(), name)
			_, err := h.w.Harness.Agentctl(s.Context(), h.w.Hub, "--namespace", mistaken, "agent", "suspend", mistakenAgent)
			s.Must(err)
		},
		On: "condition `ArgomeshStaleWarning` of its Applications", Within: toldStale, Told: h.saysStale(name),
		Says: "agent mistaken-1 is suspended, and away since …: what is shown here is what its Argo CD said last; agentctl agent resume mistaken-1 lets it come back",
		Cure: func(s *mistake.Scene) {
			run(s, h.w.Harness, h.w.Hub, mistaken, s.Find(`(agentctl agent resume \S+) lets it`))
		},
		Cured: func(s *mistake.Scene) error { return h.isBack(s.Context(), name) },
	}
}

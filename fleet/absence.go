package fleet

import (
	"fmt"
	"time"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

// StaleAfter is how long an agent is away before its Applications say so. An agent that is
// replaced, or a principal that is, is back well before.
const StaleAfter = time.Minute

// observedSlack is more than status.observedAt is behind while an agent is connected.
const observedSlack = 2 * time.Minute

// Absence is that of an agent that is away for longer than StaleAfter.
type Absence struct {
	// Since is when the hub last heard of it. It stays the same for as long as it is away.
	Since time.Time
	// Message says what that means for its Applications on the hub.
	Message string
}

// Absences returns the agents that are away for longer than StaleAfter, by what the status
// of their Agents says now; false while the Agents are not known.
func (r *Registry) Absences(now time.Time) (map[identity.AgentName]Absence, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := map[identity.AgentName]Absence{}
	for name, a := range r.agents {
		if absence, away := absenceOf(name, &a, now); away {
			out[name] = absence
		}
	}
	return out, r.known
}

// AwaySince returns since when an agent is away, however short that is: the Since of its
// Absence. False for one that is not, was never there, or is not known.
func (r *Registry) AwaySince(name identity.AgentName) (time.Time, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	a, known := r.agents[name]
	if !known || a.Status.ObservedAt == nil && a.Status.Versions.Agent == "" {
		return time.Time{}, false
	}
	return awaySince(&a)
}

func awaySince(a *v1alpha1.Agent) (time.Time, bool) {
	s := a.Status
	if leaving(a) || s.Connected || s.Since == nil {
		return time.Time{}, false
	}
	if s.ObservedAt != nil && s.Since.Sub(s.ObservedAt.Time) > observedSlack {
		return s.ObservedAt.UTC(), true // the hub was away itself when the agent went
	}
	return s.Since.UTC(), true
}

func absenceOf(name identity.AgentName, a *v1alpha1.Agent, now time.Time) (Absence, bool) {
	s := a.Status
	since, away := awaySince(a)
	if !away || now.Sub(s.Since.Time) < StaleAfter {
		return Absence{}, false
	}
	const stale = ": what is shown here is what its Argo CD said last; "
	at := since.Format(time.RFC3339)
	var text string
	switch {
	case s.ObservedAt == nil && s.Versions.Agent == "":
		text = fmt.Sprintf("agent %s has never connected, and what is shown here did not come from it; agentctl agent get %s says what is missing", name, name)
	case a.Spec.Suspended:
		text = fmt.Sprintf("agent %s is suspended, and away since %s%sagentctl agent resume %s lets it come back", name, at,
			stale, name)
	default:
		text = fmt.Sprintf("agent %s is away since %s%sagentctl agent get %s says more", name, at, stale, name)
	}
	return Absence{Since: since, Message: text}, true
}

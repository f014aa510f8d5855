package resource

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
)

// activeCall is a call under way, and by what it was let through.
type activeCall struct {
	token   string
	request access.Request
	target  Target
	tracked bool        // the agent was told to let only tracked objects through
	masked  bool        // no values of Secrets are told
	end     func(error) // the call, for a reason
}

// withdrawnError is why a call under way ends that would be refused now.
type withdrawnError struct{ rule string }

func (e withdrawnError) Error() string { return "no longer allowed by rule " + e.rule }

// activeCalls are the calls under way by agent, which end when what let them through is
// withdrawn: a rule that is narrowed, or a key that is deleted, holds for a watch or a
// session of an hour as well. The mere end of a token's life does not end them, as with
// Kubernetes.
type activeCalls struct {
	agents Registry
	tokens Verifier

	mu      sync.Mutex // guards byAgent
	byAgent map[identity.AgentName]map[*activeCall]struct{}
}

func newActiveCalls(agents Registry, tokens Verifier) *activeCalls {
	return &activeCalls{agents: agents, tokens: tokens, byAgent: map[identity.AgentName]map[*activeCall]struct{}{}}
}

// add has g reviewed until the returned function is called.
func (a *activeCalls) add(name identity.AgentName, g *activeCall) (remove func()) {
	a.mu.Lock()
	of := a.byAgent[name]
	if of == nil {
		of = map[*activeCall]struct{}{}
		a.byAgent[name] = of
	}
	of[g] = struct{}{}
	a.mu.Unlock()
	// A change since it was decided may have found nothing to end.
	a.revoke(g)
	a.review(name, g)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if delete(of, g); len(of) == 0 {
			delete(a.byAgent, name)
		}
	}
}

// run reviews all calls after each change of the registry, and their tokens after each
// of the keys, until ctx is done.
func (a *activeCalls) run(ctx context.Context) {
	rotated := a.tokens.Changed()
	for {
		changed, keys := a.agents.Changed(), false // before the read, so that no change is missed
		select {
		case <-rotated:
			rotated, keys = a.tokens.Changed(), true
		default:
		}
		for name, calls := range a.all() {
			if keys {
				a.revoke(calls...)
			}
			a.review(name, calls...)
		}
		select {
		case <-changed:
		case <-rotated:
		case <-ctx.Done():
			return
		}
	}
}

// all returns the calls under way by agent.
func (a *activeCalls) all() map[identity.AgentName][]*activeCall {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make(map[identity.AgentName][]*activeCall, len(a.byAgent))
	for name, calls := range a.byAgent {
		all[name] = slices.Collect(maps.Keys(calls))
	}
	return all
}

// revoke ends calls whose tokens are revoked.
func (a *activeCalls) revoke(calls ...*activeCall) {
	for _, g := range calls {
		if a.tokens.Revoked(g.token) {
			g.end(withdrawnError{ruleToken})
		}
	}
}

// review ends calls to an agent that would be refused now.
func (a *activeCalls) review(name identity.AgentName, calls ...*activeCall) {
	target, err := a.agents.Target(name)
	if err != nil && !errors.Is(err, identity.ErrDenied) {
		return // no one knows
	}
	for _, g := range calls {
		if rule := g.withdrawn(target, err != nil); rule != "" {
			g.end(withdrawnError{rule})
		}
	}
}

// withdrawn returns the rule by which a call would be refused now; empty when it would
// be let through as it was.
func (g *activeCall) withdrawn(now Target, denied bool) (rule string) {
	switch {
	case denied || now.UID != g.target.UID:
		return ruleRegistry
	case now.TokenGeneration != g.target.TokenGeneration:
		return ruleToken
	case now.Policy == g.target.Policy:
		return ""
	}
	decision := now.Policy.Decide(g.request)
	if decision.Allowed && (g.tracked || !decision.Tracked) && (g.masked || !decision.Masked) {
		return ""
	}
	return decision.Rule
}

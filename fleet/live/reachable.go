package live

import (
	"sync"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/resource"
	"github.com/argomesh/argomesh/proxies/token"
)

// Reachable is resource.Registry: the registry with each agent's policy of the hub.
type Reachable struct {
	registry *fleet.Registry
	log      zerolog.Logger

	mu       sync.Mutex // guards policies
	policies map[identity.AgentName]ruled
}

// ruled is the policy of one generation of an Agent.
type ruled struct {
	uid        types.UID
	generation int64
	policy     *access.Policy
}

// NewReachable lets agents of the registry be reached by the policies of their Agents.
func NewReachable(registry *fleet.Registry, log zerolog.Logger) *Reachable {
	return &Reachable{registry: registry, log: log, policies: map[identity.AgentName]ruled{}}
}

// Changed implements resource.Registry.
func (r *Reachable) Changed() <-chan struct{} { return r.registry.Changed() }

// Target implements resource.Registry.
func (r *Reachable) Target(name identity.AgentName) (resource.Target, error) {
	agent, err := r.registry.Reach(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		delete(r.policies, name)
		return resource.Target{}, err
	}
	known, found := r.policies[name]
	if !found || known.uid != agent.UID || known.generation != agent.Generation {
		policy, err := access.New(access.Hub, access.OfAgent(agent.Spec))
		if err != nil {
			// The API server has checked the same, but for an Agent of a later release.
			r.log.Warn().Err(err).Stringer("agent", name).Msg("spec.access is not valid, so nothing is allowed")
			policy = &access.Policy{}
		}
		known = ruled{uid: agent.UID, generation: agent.Generation, policy: policy}
		r.policies[name] = known
	}
	return resource.Target{
		UID: string(agent.UID), Created: agent.CreationTimestamp.Time, TokenGeneration: agent.Spec.TokenGeneration,
		Policy:     known.policy,
		Kubernetes: agent.Status.Versions.Kubernetes,
	}, nil
}

// Bearers is resource.Verifier.
type Bearers struct{ *token.Keys }

// Bound implements it.
func (b Bearers) Bound(text string, of resource.Target) bool {
	return b.Keys.Bound(text, token.Holder{UID: of.UID, Generation: of.TokenGeneration, Created: of.Created})
}

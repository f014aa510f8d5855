package fleet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

// The cluster in which an Argo CD itself runs, as each Argo CD knows it.
const (
	ownClusterName   = "in-cluster"
	ownClusterServer = "https://kubernetes.default.svc"
)

// Deployer is what else on a hub deploys Applications: its own Argo CD.
type Deployer struct {
	// Controller says that the hub has an application controller.
	Controller bool
	// Names and Servers are those of the cluster Secrets that are not of agents.
	Names, Servers map[string]bool
}

// knows reports whether a destination is the hub's own cluster, or one of a cluster Secret
// that is not an agent's.
func (d Deployer) knows(app Placement) (own, other bool) {
	server := strings.TrimRight(app.Server, "/") // as Argo CD compares them
	if app.Name != "" {
		return app.Name == ownClusterName, d.Names[app.Name]
	}
	return server == ownClusterServer, server != "" && d.Servers[server]
}

// Untaken is what there is to say of an Application that no agent takes. The zero value
// says that someone takes it, or that it is not ours to say.
type Untaken struct {
	// Message says why no one takes it, and what cures that.
	Message string
	// EndsSync says that an operation of it would wait for ever, and is ours to end.
	EndsSync bool
}

// Untaken returns what says of an Application of the hub why no agent takes it, by the
// Agents of this moment. The Application has that name, and is no mirror of an agent's.
//
// It is ours to say where the destination is the cluster of an agent; where it is no
// cluster that the hub's Argo CD knows, and there is no controller; and in a namespace of
// an agent, unless another cluster is meant, or the hub that deploys itself. What an agent
// has its own link speaks for, but for what people make in a namespace of an autonomous one.
func (r *Registry) Untaken(hub Deployer) func(name string, app Placement) Untaken {
	owner := r.OwnerOf()
	r.mu.RLock()
	defer r.mu.RUnlock()
	return untaken{hub: hub, mapping: r.Mapping, owner: owner, agents: r.registered, namespaces: r.namespaces}.verdict
}

// untaken is a state of the registry, beside what else deploys. Set replaces the maps, and
// no one changes them.
type untaken struct {
	hub        Deployer
	mapping    Mapping
	owner      func(Placement) (identity.AgentName, bool)
	agents     map[identity.AgentName]v1alpha1.Agent
	namespaces map[string]identity.AgentName
}

func (u untaken) verdict(name string, app Placement) Untaken {
	if has, owned := u.owner(app); owned && u.agents[has].Spec.Mode == v1alpha1.ModeManaged {
		return Untaken{}
	}
	own, other := u.hub.knows(app)
	if other {
		return Untaken{} // even where an agent has that name: see condition ClusterSecretConflict
	}
	if agent, named := u.mapping.cluster(app); named {
		if a, registered := u.agents[agent]; registered {
			return Untaken{Message: "no agent takes it: " + u.elsewhere(name, app, agent, a), EndsSync: true}
		}
	}
	within, inside := u.namespaces[app.Namespace]
	unknown := !own && !u.hub.Controller
	switch {
	case inside && (!own || !u.hub.Controller):
		return Untaken{Message: "no agent takes it: " + u.misplaced(app, within), EndsSync: unknown}
	case unknown:
		return Untaken{Message: "nothing deploys it: Argo CD does not know the cluster of its destination, and this hub has no application controller; " +
			"make an agent its destination (destination.name; agentctl agent list shows them)", EndsSync: true}
	}
	return Untaken{}
}

// elsewhere says of an Application whose destination is an agent's cluster why the agent
// does not have it.
func (u untaken) elsewhere(name string, app Placement, agent identity.AgentName, a v1alpha1.Agent) string {
	says := "its destination is agent " + agent.String()
	has := u.namespacesOf(agent, a)
	switch {
	case a.Spec.Mode == v1alpha1.ModeAutonomous:
		return says + ", which is autonomous: delete it here and create it on that spoke, from where it is shown"
	case u.mapping.ByDestination:
		return fmt.Sprintf("%s, and namespace %s is none where Applications of agents may be; create it in namespace %s, or add %s to mapping.namespaces of the principal",
			says, app.Namespace, u.mapping.Namespace, app.Namespace)
	case len(has) == 0:
		return says + ", which has no namespace on this hub: see condition Conflict of its Agent"
	}
	return fmt.Sprintf("%s, whose Applications are in namespace %s, and it is in %s; delete it here and create it there (argocd app create %s/%s)",
		says, strings.Join(has, " or "), app.Namespace, has[0], name)
}

// misplaced says of an Application in a namespace of an agent why that does not have it.
func (u untaken) misplaced(app Placement, agent identity.AgentName) string {
	a := u.agents[agent]
	says := "it is in a namespace of agent " + agent.String()
	switch {
	case a.Spec.Mode == v1alpha1.ModeAutonomous:
		return says + ", which is autonomous: delete it here and create it on that spoke, from where it is shown"
	case u.mapping.Admits != nil && u.mapping.Admits(app.Namespace):
		return fmt.Sprintf("%s, and its destination is not: set destination.name to %s", says, agent)
	}
	return fmt.Sprintf("%s, and its destination is not; create it in namespace %s with destination.name %s", says,
		u.mapping.Namespace, agent)
}

// namespacesOf are the hub namespaces that an agent has.
func (u untaken) namespacesOf(name identity.AgentName, a v1alpha1.Agent) []string {
	var has []string
	for _, mapped := range NamespacesOf(&a) {
		if u.namespaces[mapped.Hub] == name && !slices.Contains(has, mapped.Hub) {
			has = append(has, mapped.Hub)
		}
	}
	return has
}

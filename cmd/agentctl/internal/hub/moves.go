package hub

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/admission"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/fleet"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/identity"
)

// mapped is a hub as its principal sees it by one mapping.
type mapped struct {
	cfg      principalconfig.Config
	registry *fleet.Registry
	agents   map[identity.AgentName]v1alpha1.Agent
	owner    func(fleet.Placement) (identity.AgentName, bool)
	untaken  func(string, fleet.Placement) fleet.Untaken
}

func mappedBy(m hubstate.Mapping, cfg principalconfig.Config, agents []v1alpha1.Agent) mapped {
	registry := &fleet.Registry{Mapping: cfg.Owners(m)}
	registry.Set(agents)
	return mapped{
		cfg: cfg, registry: registry, agents: registry.Agents(), owner: registry.OwnerOf(),
		untaken: registry.Untaken(fleet.Deployer{Controller: true}),
	}
}

// location is where an Application of the hub is deployed. The zero value is nowhere.
type location struct {
	agent     identity.AgentName
	namespace string // on the spoke; empty for that of its Argo CD
}

func (s location) String() string {
	switch {
	case s == location{}:
		return "no agent"
	case s.namespace == "":
		return "agent " + s.agent.String() + ", namespace of Argo CD"
	}
	return "agent " + s.agent.String() + ", namespace " + s.namespace
}

// seen is what a mapping makes of an Application.
type seen struct {
	at location
	// busy and barred say why it may not move now, and why its AppProject keeps it on the hub.
	busy, barred string
}

func placementOf(app *unstructured.Unstructured) fleet.Placement {
	text := func(path ...string) string { s, _, _ := unstructured.NestedString(app.Object, path...); return s }
	return fleet.Placement{Namespace: app.GetNamespace(), Name: text("spec", "destination", "name"),
		Server: text("spec", "destination", "server")}
}

func (m mapped) see(app *unstructured.Unstructured, projects admission.HubProjects) seen {
	name, owned := m.owner(placementOf(app))
	agent, known := m.agents[name]
	if !owned || !known || agent.Spec.Mode != v1alpha1.ModeManaged {
		return seen{}
	}
	rules := m.cfg.Rules(m.registry, hubstate.Hub{}, name, agent)
	place, sent := rules.LocationOnSpoke(app.Object)
	if !sent {
		return seen{}
	}
	return seen{at: location{name, place.Namespace}, busy: place.Busy, barred: rules.ReviewHub(app.Object, projects)}
}

// move is an Application that another mapping has in another place.
type move struct {
	name     string // with its namespace
	from, to location
	// lost says what would be lost by it, and what helps; empty for nothing.
	lost string
}

// does says what becomes of it.
func (m move) does() string {
	switch {
	case m.lost != "":
		return m.lost
	case m.from == location{}:
		return "the agent gets it and deploys it"
	case m.from.agent == m.to.agent:
		return "the spoke's copy is released there and created again, with another tracking id; its workloads stay"
	}
	return "released on the one spoke, where its workloads stay, and deployed on the other"
}

// movesOf returns what moves when a hub maps by after and no longer by before, by name, and
// how many Applications of agents stay where they are. No two meet in one place: the Agent
// CRD refuses two namespaces of the hub for one of the spoke.
func movesOf(apps []*unstructured.Unstructured, before, after mapped,
	projects admission.HubProjects) (moves []move, stay int) {
	for _, app := range apps {
		was, is := before.see(app, projects), after.see(app, projects)
		if was.at == (location{}) && is.at == (location{}) {
			continue
		}
		m := move{name: app.GetNamespace() + "/" + app.GetName(), from: was.at, to: is.at}
		switch {
		case is.at == location{}:
			m.lost = after.unownedReason(app)
		case was.at != is.at && is.barred != "":
			m.lost = "its AppProject keeps it on the hub, so it would leave the one place and not come to the other: " +
				is.barred
		case was.at != is.at && was.busy != "":
			m.lost = was.busy + ": wait until that is over"
		}
		if m.from == m.to && m.lost == "" {
			stay++
			continue
		}
		moves = append(moves, m)
	}
	slices.SortFunc(moves, func(a, b move) int { return strings.Compare(a.name, b.name) })
	return moves, stay
}

// unownedReason says why no agent would have an Application, and what helps.
func (m mapped) unownedReason(app *unstructured.Unstructured) string {
	if says := m.untaken(app.GetName(), placementOf(app)).Message; says != "" {
		return says
	}
	return "no agent would take it, and nothing would manage its workloads any more"
}

// leavings are for each agent how many of its Applications leave its spoke.
func leavings(moves []move) map[identity.AgentName]int {
	out := map[identity.AgentName]int{}
	for _, m := range moves {
		if m.from != (location{}) {
			out[m.from.agent]++
		}
	}
	return out
}

// spokeNamespaces are for each agent the namespaces, beside that of Argo CD, to which
// Applications of it move.
func spokeNamespaces(moves []move) map[identity.AgentName][]string {
	out := map[identity.AgentName][]string{}
	for _, m := range moves {
		if m.to.namespace != "" && !slices.Contains(out[m.to.agent], m.to.namespace) {
			out[m.to.agent] = append(out[m.to.agent], m.to.namespace)
		}
	}
	for _, namespaces := range out {
		slices.Sort(namespaces)
	}
	return out
}

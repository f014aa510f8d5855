package sim

import (
	"strings"

	"github.com/argomesh/argomesh/stream"
)

// Several agents may run on one Kubernetes cluster, each beside an Argo CD of its own in a
// namespace of its own. Those that share a namespace on the hub share one for Applications
// there, too: what one has the others see, and leave alone.

// place is the cluster of an agent: that of the agent it is beside, or its own.
func (a Agent) place() string {
	if a.Beside != "" {
		return a.Beside
	}
	return a.Name
}

// home is the namespace of the agent and its Argo CD on the spoke.
func (a Agent) home() string {
	if a.Beside != "" {
		return argocdNamespace + "-" + a.Name
	}
	return argocdNamespace
}

// at is where on a side an object is that the hub has beside its own Argo CD.
func (a Agent) at(side stream.Side, key stream.ResourceKey) stream.ResourceKey {
	if side == stream.Spoke {
		key.Namespace = a.home()
	}
	return key
}

// beside are the agents on one cluster, in the order of the trace.
func (w *Fleet) beside(s *spoke) []*spoke {
	var all []*spoke
	for _, a := range w.trace.Agents {
		if a.place() == s.place() {
			all = append(all, w.spokes[a.Name])
		}
	}
	return all
}

// onSpoke reports whether a command is about what is on the spoke.
func (c Command) onSpoke() bool {
	return c.On == stream.Spoke || c.Verb == Status || c.Verb == AutoSync || c.Verb == Fight || c.Verb == Approve
}

// holder is whose the Application on the spoke is, as its marks say: on a cluster of several
// agents that may be another one than the hub has it for.
func (w *Fleet) holder(s *spoke, name string) *spoke {
	if o, there := w.store(s, stream.Spoke, People).Get(s.key(stream.Spoke, name)); there {
		if other := w.spokes[parse(o.Raw).marks().agent]; other != nil && other.place() == s.place() {
			return other
		}
	}
	return s
}

// clientName is what a client of a cluster is called, and clientOf reads it.
func clientName(writer Writer, agent string) string {
	if writer == AgentSide {
		return string(writer) + " " + agent
	}
	return string(writer)
}

func clientOf(name string) (writer Writer, agent string) {
	first, agent, _ := strings.Cut(name, " ")
	return Writer(first), agent
}

// on are the agents whose spoke a place is.
func (c *checker) on(place string) []*view {
	var all []*view
	for _, v := range c.agents {
		if v.place() == place {
			all = append(all, v)
		}
	}
	return all
}

// tenant is whose a change on a cluster is: of several agents that of the one who wrote, or
// whose namespace it is in, or whose copy it is; nil for no one's.
func (c *checker) tenant(e Entry, o application) *view {
	agents := c.on(e.Place)
	if len(agents) == 1 {
		return agents[0]
	}
	for _, v := range agents {
		if e.Writer == AgentSide && e.Agent == v.Name || e.Writer != AgentSide && e.Key.Namespace == v.home() {
			return v
		}
	}
	if v := c.agent(o.marks().agent); e.Writer != AgentSide && v != nil && v.place() == e.Place {
		return v
	}
	return nil
}

// trespasses is I4 for several agents on one cluster: what another one has, and what is
// beside another one's Argo CD, none of them writes or deletes.
func (c *checker) trespasses(v *view, e Entry, before application) {
	if e.Writer != AgentSide || e.Agent == "" {
		return
	}
	for _, other := range c.on(e.Place) {
		has := before.marks()
		switch {
		case other == v:
		case e.Key.Namespace == other.home():
			c.breaks("I4", v, "it writes in the namespace of agent %s: %s", other.Name, e)
		case has.agent == other.Name && has.hub == hubUID:
			c.breaks("I4", v, "it writes what agent %s has: %s", other.Name, e)
		}
	}
}

// namesHolder reports whether a refusal names who has what is there, if that is another agent on the
// same cluster.
func (c *checker) namesHolder(v *view, m marks, message string) bool {
	other := c.agent(m.agent)
	return other == nil || other == v || other.place() != v.place() || m.hub != hubUID || strings.Contains(message, other.Name)
}

// several reports whether an agent is not the only one on its cluster.
func (t Trace) several(a Agent) bool {
	n := 0
	for _, other := range t.Agents {
		if other.place() == a.place() {
			n++
		}
	}
	return n > 1
}

package sim

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/stream"
)

// The settings that a history can switch, for one agent each. Those of a side take effect
// when its process starts again, as they do when an agent's configuration or an Agent
// changes.
const (
	setAdopt     = "adopt"     // On: what is there may be adopted: policy.adopt, spec.adopt
	setPolicy    = "policy"    // on the spoke: the owner does not allow AppProjects, cascades and terminations
	setSelector  = "selector"  // on the hub: Applications without label l0 stay at home
	setSuspended = "suspended" // on the hub: the agent's connections end, and none begins
	// On a managed agent's spoke: its AppProject default may be adopted.
	setAdoptDefault = "adopt-default"
	setRoles        = "roles" // on the hub: an autonomous agent's projects have their roles there
	setShare        = "share" // on the hub, of all managed agents: see default.go
)

var settingNames = []string{setAdopt, setPolicy, setSelector, setSuspended, setAdoptDefault, setRoles}

// setting is one switch of an agent.
type setting struct {
	name string
	side stream.Side
}

// set switches a setting of an agent and, where it is one of a process, starts that again.
func (w *Fleet) set(s *spoke, c Command) {
	side := stream.Hub
	if c.Says == setPolicy || c.Says == setAdoptDefault || c.Says == setAdopt && c.On != stream.Hub && s.Mode == stream.Managed {
		side = stream.Spoke
	}
	at := s.site
	if side == stream.Hub {
		at = w.hub
	}
	if !s.settings.set(setting{c.Says, side}, !c.Off) {
		return
	}
	w.journal.add(Entry{Place: s.Name, Note: Switched, Side: side, Setting: c.Says, On: !c.Off})
	if c.Says == setSuspended {
		s.cut()
		return
	}
	if p := at.process(); p != nil {
		p.die()
	}
}

// switches are the settings of an agent. Its methods may be called concurrently.
type switches struct {
	mu sync.Mutex // guards on
	on map[setting]bool
}

// set reports whether that is a change.
func (s *switches) set(one setting, on bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes := s.on[one] != on
	if changes {
		s.on[one] = on // else it is not known to have been on
	}
	return changes
}

// suspended reports whether the Agent of an agent's process is.
func (p *process) suspended() bool {
	return p.fleet.spokes[p.site.name].settings.is(setSuspended, stream.Hub)
}

// is reports whether a setting is on.
func (s *switches) is(name string, side stream.Side) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.on[setting{name, side}]
}

// apply gives a link's configuration what is set for its agent on this side.
func (s *spoke) apply(cfg *mirror.Config, side stream.Side) {
	r := &cfg.Rules
	if side == stream.Spoke {
		policy := policy.Default()
		policy.Projects = []string{"*", "default"} // the spoke's own, which Applications name
		if s.settings.is(setAdopt, side) {
			policy.Adopt = []string{"*/*"}
		}
		if s.settings.is(setAdoptDefault, side) {
			policy.Adopt = append(policy.Adopt, "appproject/default")
		}
		if s.settings.is(setPolicy, side) {
			none := func(list []string, not ...string) []string {
				return slices.DeleteFunc(slices.Clone(list), func(one string) bool { return slices.Contains(not, one) })
			}
			policy.Kinds, policy.Operations = none(policy.Kinds, "appproject"), none(policy.Operations, "cascade", "terminate")
		}
		r.Policy = &policy
		return
	}
	if s.settings.is(setAdopt, side) {
		r.Adopt = []string{"*/*"}
	}
	r.DefaultProject = s.settings.shared()
	r.ProjectRoles = s.Mode == stream.Autonomous && s.settings.is(setRoles, side)
	if s.settings.is(setSelector, side) && s.Mode == stream.Managed {
		r.Selector, _ = labels.Parse(selected)
	}
}

// selected is the label of what the selector selects.
const selected = "l0"

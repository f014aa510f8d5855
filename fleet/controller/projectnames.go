package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
)

// projectNamesOf is the index indexProjects.
func projectNamesOf(agent *v1alpha1.Agent) []string {
	if agent.Spec.Mode != v1alpha1.ModeAutonomous {
		return nil
	}
	names := []string{agent.Name}
	for _, name := range fleet.Prefixed(agent) {
		names = append(names, "-"+name)
	}
	return names
}

// projectRivals returns the Agents with which agent would share names of projects on the
// hub, if the longest name that fits did not have them.
func (l *loop) projectRivals(agent *v1alpha1.Agent) (shorter, longer []*v1alpha1.Agent) {
	if agent.Spec.Mode != v1alpha1.ModeAutonomous {
		return nil, nil
	}
	for _, name := range fleet.Prefixed(agent) {
		shorter = append(shorter, l.agents.By(indexProjects, name)...)
	}
	return shorter, l.agents.By(indexProjects, "-"+agent.Name)
}

// namedProjects is that, by name.
type namedProjects struct{ shorter, longer []string }

func (l *loop) namedProjects(agent *v1alpha1.Agent) namedProjects {
	names := func(agents []*v1alpha1.Agent) (out []string) {
		for _, a := range agents {
			out = append(out, a.Name)
		}
		slices.Sort(out)
		return out
	}
	shorter, longer := l.projectRivals(agent)
	return namedProjects{names(shorter), names(longer)}
}

// maxNamed is how many Agents a message names.
const maxNamed = 10

// setProjectNames says on an Agent which names of projects on the hub it has, or has not,
// since another Agent's name begins with its own, or the other way round. It keeps no one
// from anything.
func setProjectNames(conditions *[]metav1.Condition, agent *v1alpha1.Agent, p namedProjects, now time.Time) {
	var says []string
	for _, name := range p.longer[:min(len(p.longer), maxNamed)] {
		says = append(says,
			fmt.Sprintf("projects of the spoke that are called %s-… are not shown: on the hub their names are those of Agent %s",
				strings.TrimPrefix(name, agent.Name+"-"), name))
	}
	for _, name := range p.shorter[:min(len(p.shorter), maxNamed)] {
		says = append(says,
			fmt.Sprintf("mirrors of projects that are called %s-… are this Agent's, and not shown for Agent %s", agent.Name,
				name))
	}
	if len(says) == 0 {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionProjectNames)
		return
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: v1alpha1.ConditionProjectNames, Status: metav1.ConditionTrue, Reason: reasonSharedPrefix,
		Message:            strings.Join(says, "; "),
		ObservedGeneration: agent.Generation, LastTransitionTime: seconds(now),
	})
}

const reasonSharedPrefix = "SharedPrefix"

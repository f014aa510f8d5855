package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// Report is what is known of a hub and its spokes at one time.
type Report struct {
	Hub    Hub     `json:"hub"`
	Agents []Agent `json:"agents"`
	// Problems say what is not as it should be, each in a sentence.
	Problems []string `json:"problems"`
}

// Hub is the hub's side.
type Hub struct {
	Namespace  string `json:"namespace"`
	Kubernetes string `json:"kubernetes"`
	// Principal is its version; empty where no principal has said it yet.
	Principal string `json:"principal,omitempty"`
	// ArgoCD is the version of argocd-server, by the tag of its image; empty when that is not known.
	ArgoCD string `json:"argoCD,omitempty"`
	// Pods says how far the principal's Deployment is; empty where there is none.
	Pods string `json:"pods,omitempty"`
	// PodsReady says that the Deployment is as it should be, or that there is none.
	PodsReady bool `json:"podsReady"`
}

// Agent is one spoke.
type Agent struct {
	Name       string             `json:"name"`
	Mode       v1alpha1.AgentMode `json:"mode"`
	Summary    string             `json:"summary"`
	Agent      string             `json:"agent,omitempty"`
	Kubernetes string             `json:"kubernetes,omitempty"`
	// OK says that nothing has to be done: the agent is connected and its cluster is ready in Argo
	// CD, or it is suspended on purpose.
	OK bool `json:"ok"`
}

// newAgent returns what an Agent says of its spoke.
func newAgent(a *v1alpha1.Agent) Agent {
	ready := meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionReady)
	out := Agent{
		Name: a.Name, Mode: a.Spec.Mode, Summary: cmp.Or(a.Status.Summary, "no principal has looked at it"),
		Agent:      a.Status.Versions.Agent,
		Kubernetes: a.Status.Versions.Kubernetes, OK: a.Spec.Suspended || a.Status.Connected && ready,
	}
	switch c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady); {
	case out.OK || !a.Status.Connected:
	case c != nil && c.Status != metav1.ConditionTrue && c.Message != "":
		out.Summary += ", not ready: " + c.Message
	default:
		out.Summary += ", not ready"
	}
	return out
}

// finish names what is not as it should be.
func (r *Report) finish() {
	slices.SortFunc(r.Agents, func(a, b Agent) int { return strings.Compare(a.Name, b.Name) })
	r.Problems = []string{} // JSON has a list, also of none
	if !r.Hub.PodsReady {
		r.Problems = append(r.Problems, "the principal is not ready: "+r.Hub.Pods)
	}
	for _, a := range r.Agents {
		if !a.OK {
			r.Problems = append(r.Problems, fmt.Sprintf("agent %s: %s", a.Name, a.Summary))
		}
	}
}

// few are the agents that fit on a screen.
const few = 20

// print prints the report as two tables. Of many agents it shows those that need someone, unless
// wide is asked for.
func (r *Report) print(w io.Writer, wide bool) error {
	t := cli.NewTable(w, false)
	t.Row([]string{"HUB", "PRINCIPAL", "KUBERNETES", "ARGO CD", "PODS"})
	t.Row([]string{r.Hub.Namespace, r.Hub.Principal, r.Hub.Kubernetes, r.Hub.ArgoCD, r.Hub.Pods})
	t.Section()
	shown := r.Agents
	if !wide && len(shown) > few {
		shown = slices.DeleteFunc(slices.Clone(shown), func(a Agent) bool { return a.OK })
		shown = shown[:min(len(shown), few)]
	}
	if len(shown) > 0 {
		t.Row([]string{"AGENT", "MODE", "STATUS", "VERSION", "KUBERNETES"})
		for _, a := range shown {
			t.Row([]string{a.Name, string(a.Mode), a.Summary, a.Agent, a.Kubernetes})
		}
		t.Section()
	}
	if err := t.Flush(); err != nil {
		return err
	}
	good := 0
	for _, a := range r.Agents {
		if a.OK {
			good++
		}
	}
	line := fmt.Sprintf("%d of %d agents are as they should be", good, len(r.Agents))
	if hidden := len(r.Agents) - len(shown); hidden > 0 {
		line += fmt.Sprintf("; %d are not shown (-o wide)", hidden)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

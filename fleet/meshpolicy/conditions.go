package meshpolicy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

const (
	// statusManager is the field manager of condition MeshPolicy.
	statusManager = "argomesh-mesh-policy"
	// maxMessageBytes bounds the message of a condition.
	maxMessageBytes = 2048
)

// Reasons of condition MeshPolicy.
const (
	reasonAsExpected = "AsExpected"
	reasonRefused    = "Refused" // the mesh can keep nothing for this agent
	reasonFailed     = "Failed"  // objects cannot be read or written
	reasonDiffers    = "Differs"
)

// conditions writes condition MeshPolicy of the Agents.
type conditions struct {
	agents dynamic.ResourceInterface
	// known are those that the Agents have, by UID; nil until they were read.
	known map[types.UID]metav1.Condition
}

func newConditions(cfg Config) *conditions {
	return &conditions{agents: cfg.Client.Resource(v1alpha1.AgentResource).Namespace(cfg.Namespace)}
}

// writeAll writes the condition of every agent for which it is another one than before.
func (c *conditions) writeAll(ctx context.Context, agents map[identity.AgentName]v1alpha1.Agent,
	findings []finding) error {
	if err := c.read(ctx); err != nil {
		return err
	}
	there := make(map[types.UID]bool, len(agents))
	for _, agent := range agents {
		there[agent.UID] = true
	}
	maps.DeleteFunc(c.known, func(uid types.UID, _ metav1.Condition) bool { return !there[uid] })
	for _, name := range slices.SortedFunc(maps.Keys(agents),
		func(a, b identity.AgentName) int { return strings.Compare(a.String(), b.String()) }) {
		agent := agents[name]
		if err := c.write(ctx, &agent, conditionOf(name, &agent, findings)); err != nil {
			return err
		}
	}
	return nil
}

// read finds out once which conditions the Agents have.
func (c *conditions) read(ctx context.Context) error {
	if c.known != nil {
		return nil
	}
	list, err := c.agents.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list agents: %w", err)
	}
	known := make(map[types.UID]metav1.Condition, len(list.Items))
	for i := range list.Items {
		var agent v1alpha1.Agent
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &agent); err != nil {
			continue // anyone who watches the Agents says so
		}
		if condition := meta.FindStatusCondition(agent.Status.Conditions, v1alpha1.ConditionMeshPolicy); condition != nil {
			known[agent.UID] = *condition
		}
	}
	c.known = known
	return nil
}

// write writes the condition of one Agent unless it has it.
func (c *conditions) write(ctx context.Context, agent *v1alpha1.Agent, want metav1.Condition) error {
	have, had := c.known[agent.UID]
	want.LastTransitionTime = metav1.NewTime(time.Now().Truncate(time.Second))
	if had && have.Status == want.Status {
		want.LastTransitionTime = have.LastTransitionTime
	}
	if had && equality.Semantic.DeepEqual(have, want) {
		return nil
	}
	if err := c.apply(ctx, agent.Name, agent.UID, []metav1.Condition{want}); err != nil {
		return err
	}
	c.known[agent.UID] = want
	return nil
}

// withdraw takes back the condition of every Agent that has it.
func (c *conditions) withdraw(ctx context.Context) error {
	if c.known != nil {
		return nil // it was done
	}
	list, err := c.agents.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list agents: %w", err)
	}
	for i := range list.Items {
		if agent := &list.Items[i]; ownsCondition(agent) {
			if err := c.apply(ctx, agent.GetName(), agent.GetUID(), nil); err != nil {
				return err
			}
		}
	}
	c.known = map[types.UID]metav1.Condition{}
	return nil
}

// ownsCondition reports whether an Agent has a condition that we wrote.
func ownsCondition(agent *unstructured.Unstructured) bool {
	return slices.ContainsFunc(agent.GetManagedFields(),
		func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == statusManager })
}

// apply makes conditions those that we have in the status of an Agent.
func (c *conditions) apply(ctx context.Context, name string, uid types.UID, conditions []metav1.Condition) error {
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&struct {
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	}{conditions})
	if err != nil {
		return err
	}
	body := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	body.SetGroupVersionKind(v1alpha1.AgentGroupVersionKind)
	body.SetName(name)
	body.SetUID(uid) // never another Agent of the same name
	_, err = c.agents.ApplyStatus(ctx, name, body, metav1.ApplyOptions{FieldManager: statusManager, Force: true})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone
	}
	if err != nil {
		return fmt.Errorf("apply status of agent %s: %w", name, err)
	}
	return nil
}

// conditionOf returns the condition of an agent without its time.
func conditionOf(name identity.AgentName, agent *v1alpha1.Agent, findings []finding) metav1.Condition {
	out := metav1.Condition{
		Type: v1alpha1.ConditionMeshPolicy, Status: metav1.ConditionTrue, Reason: reasonAsExpected,
		ObservedGeneration: agent.Generation,
	}
	var refused, failed, own, general []string
	for _, f := range findings {
		if err := f.refused[name]; err != nil {
			refused = append(refused, oneLine(err))
		}
		if f.err != nil {
			failed = append(failed, oneLine(f.err))
		}
		for _, d := range f.differences {
			switch {
			case d.About == "":
				general = append(general, d.Text)
			case slices.Contains(agent.Spec.Identity.SPIFFEIDs, "spiffe://"+d.About):
				own = append(own, d.Text)
			}
		}
	}
	sentences := slices.Concat(refused, failed, own, general)
	if len(sentences) == 0 {
		return out
	}
	out.Status, out.Reason = metav1.ConditionFalse, reasonDiffers
	switch {
	case len(refused) > 0:
		out.Reason = reasonRefused
	case len(failed) > 0:
		out.Reason = reasonFailed
	}
	out.Message = message(sentences)
	return out
}

// message joins sentences, as many as fit.
func message(sentences []string) string {
	var b strings.Builder
	for i, sentence := range sentences {
		rest := fmt.Sprintf("And %d more: agentctl mesh verify.", len(sentences)-i)
		if b.Len()+len(sentence)+len(rest)+2 > maxMessageBytes {
			if b.Len() == 0 { // one that alone does not fit
				return strings.ToValidUTF8(sentence[:maxMessageBytes-len(rest)-1], "") + " " + rest
			}
			return b.String() + " " + rest
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(sentence)
	}
	return b.String()
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

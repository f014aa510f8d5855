package cli

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// ParseAgent returns the typed form of an object of the hub, with a status whose texts are
// one line each: spokes choose some of them.
func ParseAgent(obj *unstructured.Unstructured) (*v1alpha1.Agent, error) {
	clean := obj.DeepCopy()
	if status, found := clean.Object["status"]; found {
		clean.Object["status"] = cleanTree(status)
	}
	agent := &v1alpha1.Agent{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(clean.Object, agent); err != nil {
		return nil, fmt.Errorf("read agent %s: %w", obj.GetName(), err)
	}
	return agent, nil
}

// Agent reads one Agent, and returns it as it is on the hub too. doing is what an error says
// that the command was about.
func (h *Hub) Agent(ctx context.Context, name, doing string) (*v1alpha1.Agent, *unstructured.Unstructured, error) {
	obj, err := h.Agents.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, h.Explain(err, doing)
	}
	agent, err := ParseAgent(obj)
	return agent, obj, err
}

// ListAgents reads the Agents of a namespace of the hub.
func ListAgents(ctx context.Context, conn *Connection, namespace string) ([]v1alpha1.Agent, error) {
	h, err := conn.HubIn(namespace)
	if err != nil {
		return nil, err
	}
	list, err := h.Agents.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, h.Explain(err, "list agents")
	}
	agents := make([]v1alpha1.Agent, 0, len(list.Items))
	for i := range list.Items {
		agent, err := ParseAgent(&list.Items[i])
		if err != nil {
			return nil, err
		}
		agents = append(agents, *agent)
	}
	return agents, nil
}

package continuity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Agents reads the Agents of a namespace of the hub.
type Agents struct {
	Client    dynamic.Interface
	Namespace string
}

// Read returns Config.Read of one agent. The Agent is read from etcd; a consistent list an
// API server may answer from its own cache, which outlives a restore of etcd.
func (a Agents) Read(name identity.AgentName) func(ctx context.Context) (Record, error) {
	agents := a.Client.Resource(v1alpha1.AgentResource).Namespace(a.Namespace)
	return func(ctx context.Context) (Record, error) {
		var record Record
		stored, err := agents.Get(ctx, name.String(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return record, errors.New("the agent is no longer registered")
		}
		if err != nil {
			return record, fmt.Errorf("read agent: %w", err)
		}
		list, err := agents.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return record, fmt.Errorf("read the resourceVersion of the hub: %w", err)
		}
		if record.Revision, err = strconv.ParseUint(list.GetResourceVersion(), 10, 64); err != nil {
			return record, fmt.Errorf("resourceVersion of the hub: %w", err)
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, &record.Agent); err != nil {
			return record, fmt.Errorf("read agent: %w", err)
		}
		record.Claim = func(ctx context.Context, link v1alpha1.AgentLink) error {
			return write(ctx, agents, record.Agent, link)
		}
		return record, nil
	}
}

// write writes status.link of an Agent that has not changed since it was read.
func write(ctx context.Context, agents dynamic.ResourceInterface, read v1alpha1.Agent, link v1alpha1.AgentLink) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": read.UID, "resourceVersion": read.ResourceVersion},
		"status":   map[string]any{"link": link},
	})
	if err != nil {
		return err
	}
	_, err = agents.Patch(ctx, read.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "argomesh-principal-link"}, "status")
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("write the link of agent %s: %w: %w", read.Name, stream.ErrConflict, err)
	case err != nil:
		return fmt.Errorf("write the link of agent %s: %w", read.Name, err)
	}
	return nil
}

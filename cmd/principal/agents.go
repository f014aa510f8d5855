package main

import (
	"context"
	"fmt"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
)

// agentWatch keeps the registry equal to the Agents of the hub.
type agentWatch struct {
	client    dynamic.Interface
	namespace string
	registry  *fleet.Registry
	log       zerolog.Logger
}

// Run watches until ctx is done.
func (w *agentWatch) Run(ctx context.Context) error {
	informer := dynamicinformer.NewFilteredDynamicInformer(
		w.client, v1alpha1.AgentResource, w.namespace, 0, cache.Indexers{}, nil).Informer()
	dirty := make(chan struct{}, 1)
	mark := func() {
		select {
		case dirty <- struct{}{}:
		default:
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { mark() },
		UpdateFunc: func(before, after any) {
			if relevant(before, after) {
				mark()
			}
		},
		DeleteFunc: func(any) { mark() },
	})
	if err != nil {
		return fmt.Errorf("watch agents: %w", err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		informer.RunWithContext(ctx)
	}()
	defer func() { <-stopped }()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	mark()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-dirty:
			w.registry.Set(w.agents(informer.GetStore().List()))
		}
	}
}

func (w *agentWatch) agents(items []any) []v1alpha1.Agent {
	agents := make([]v1alpha1.Agent, 0, len(items))
	for _, item := range items {
		u, ok := item.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		var a v1alpha1.Agent
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &a); err != nil {
			w.log.Error().Err(err).Str("agent", u.GetName()).Msg("agent object is not as its definition says")
			continue
		}
		agents = append(agents, a)
	}
	return agents
}

// relevant reports whether a change of an Agent is more than one of its status
// that we wrote ourselves.
func relevant(before, after any) bool {
	b, okB := before.(*unstructured.Unstructured)
	a, okA := after.(*unstructured.Unstructured)
	return !okA || !okB || a.GetGeneration() != b.GetGeneration() || a.GetUID() != b.GetUID() ||
		(a.GetDeletionTimestamp() == nil) != (b.GetDeletionTimestamp() == nil) || secretReady(a) != secretReady(b)
}

func secretReady(u *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == v1alpha1.ConditionClusterSecretReady {
			return m["status"] == "True"
		}
	}
	return false
}

// clusterSecretReady says whether Argo CD knows the agent's cluster. Before it
// does, nothing is sent, so that no hub controller takes an Application of the
// agent for its own.
func clusterSecretReady(a v1alpha1.Agent) bool {
	return meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionClusterSecretReady)
}

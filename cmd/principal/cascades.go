package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/cascades"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

// limitCascades says for each managed agent how many of its Applications may be asked to
// go with their workloads.
func (l *links) limitCascades(agents map[identity.AgentName]v1alpha1.Agent) {
	for name, a := range agents {
		if a.Spec.Mode == v1alpha1.ModeManaged {
			departing := a.DeletionTimestamp != nil && fleet.Cascades(&a)
			l.cascades.Limit(name, fleet.CascadeHold(&a), departing, stateOf(a.Status.Cascades))
		}
	}
}

// stateOf is what an Agent keeps of its cascades, and keptOf the other way round.
func stateOf(kept *v1alpha1.AgentCascades) cascades.State {
	if kept == nil {
		return cascades.State{}
	}
	s := cascades.State{Held: kept.Held}
	if kept.AcceptedUntil != nil {
		s.Accepted = kept.AcceptedUntil.Time
	}
	for _, g := range kept.Gone {
		s.Gone = append(s.Gone, cascades.GoneCount{At: g.At.Time, Asked: int(g.WithWorkloads), Others: int(g.Others)})
	}
	return s
}

func keptOf(s cascades.State) *v1alpha1.AgentCascades {
	kept := &v1alpha1.AgentCascades{Held: s.Held}
	if !s.Accepted.IsZero() {
		kept.AcceptedUntil = new(metav1.NewTime(s.Accepted))
	}
	for _, g := range s.Gone {
		kept.Gone = append(kept.Gone, v1alpha1.GoneApplications{At: metav1.NewTime(g.At), WithWorkloads: int64(g.Asked), Others: int64(g.Others)})
	}
	return kept
}

// The places whose deletion takes along what nobody named: namespaces, and definitions
// with all their objects.
var (
	namespaceResource  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

const (
	applicationDefinition = "applications.argoproj.io"
	agentDefinition       = "agents.argomesh.io"
	// placesTime bounds the reads of one judgement.
	placesTime = 10 * time.Second
)

// places says for one link, by reads of the API server itself, which namespaces are being
// deleted, or all Applications that there are.
type places struct {
	client metadata.Interface
	// namespace is that of the Agents, and departing says that the Agent is being deleted
	// with all that it has: then it is the Agent's place that counts.
	namespace string
	departing bool
}

// doomed is mirror.Config.Places.
func (p places) doomed(ctx context.Context, namespaces []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, placesTime)
	defer cancel()
	doomed := map[string]string{}
	if p.departing {
		why, err := p.either(ctx, agentDefinition, p.namespace)
		for _, namespace := range namespaces {
			doomed[namespace] = why
		}
		return doomed, err
	}
	for _, namespace := range namespaces {
		why, err := p.either(ctx, applicationDefinition, namespace)
		if err != nil {
			return nil, err
		}
		doomed[namespace] = why
	}
	return doomed, nil
}

// either says why a definition or a namespace takes all along; empty when neither does.
func (p places) either(ctx context.Context, definition, namespace string) (string, error) {
	why, err := p.going(ctx, namespaceResource, "namespace", namespace)
	if err != nil || why != "" {
		return why, err
	}
	return p.going(ctx, definitionResource, "CustomResourceDefinition", definition)
}

// going says that one of them is being deleted, or that nobody knows.
func (p places) going(ctx context.Context, resource schema.GroupVersionResource, what, name string) (string, error) {
	o, err := p.client.Resource(resource).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		// An error would hold it back as well, and name it nowhere but in the log.
		return fmt.Sprintf("the principal may not read whether %s %s is being deleted", what, name), nil
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("%s %s is gone", what, name), nil
	case err != nil:
		return "", fmt.Errorf("read %s %s: %w", what, name, err)
	case o.DeletionTimestamp != nil:
		return fmt.Sprintf("%s %s is being deleted, with all that is in it", what, name), nil
	}
	return "", nil
}

package links

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// The places whose deletion takes along what no one named: namespaces, and definitions
// with all their objects.
var (
	namespaceResource  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
)

const (
	applicationDefinition = "applications.argoproj.io"
	agentDefinition       = "agents.argomesh.io"
	// placesTime bounds the reads of one check.
	placesTime = 10 * time.Second
)

// places says for one link, by reads of the API server itself, which namespaces are being
// deleted, or all Applications that there are.
type places struct {
	client metadata.Interface
	// namespace is that of the Agents, and departing says that the Agent is being deleted
	// with all that it has: then it is the Agent's place that counts.
	namespace   string
	terminating bool
}

// doomed is mirror.Config.Places.
func (p places) doomed(ctx context.Context, namespaces []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, placesTime)
	defer cancel()
	doomed := map[string]string{}
	if p.terminating {
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

// going says that one of them is being deleted, or that no one knows.
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

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

// What takes along, when it is deleted, what no one named: namespaces, and definitions
// with all their objects.
var (
	namespaceResource  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
)

const (
	applicationDefinition = "applications.argoproj.io"
	agentDefinition       = "agents.argomesh.io"
	// terminationTime bounds the reads of one check.
	terminationTime = 10 * time.Second
)

// terminationCheck says for one link, by reads of the API server itself, which namespaces are being
// deleted, or all Applications that there are.
type terminationCheck struct {
	client metadata.Interface
	// namespace is that of the Agents, and terminating says that the Agent is being deleted
	// with all that it has: then it is the Agent's namespace that counts.
	namespace   string
	terminating bool
}

// run is mirror.Config.TerminatingNamespaces.
func (c terminationCheck) run(ctx context.Context, namespaces []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, terminationTime)
	defer cancel()
	doomed := map[string]string{}
	if c.terminating {
		why, err := c.either(ctx, agentDefinition, c.namespace)
		for _, namespace := range namespaces {
			doomed[namespace] = why
		}
		return doomed, err
	}
	for _, namespace := range namespaces {
		why, err := c.either(ctx, applicationDefinition, namespace)
		if err != nil {
			return nil, err
		}
		doomed[namespace] = why
	}
	return doomed, nil
}

// either says why a definition or a namespace takes all along; empty when neither does.
func (c terminationCheck) either(ctx context.Context, definition, namespace string) (string, error) {
	why, err := c.reason(ctx, namespaceResource, "namespace", namespace)
	if err != nil || why != "" {
		return why, err
	}
	return c.reason(ctx, definitionResource, "CustomResourceDefinition", definition)
}

// reason says that one of them is being deleted, or that no one knows.
func (c terminationCheck) reason(ctx context.Context, resource schema.GroupVersionResource,
	what, name string) (string, error) {
	o, err := c.client.Resource(resource).Get(ctx, name, metav1.GetOptions{})
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

package access

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// KubernetesObjects are the Objects of a Kubernetes API server, read for each
// question: nothing is kept that could be out of date. Its calls end with their
// context and are bounded by the client's own limits.
type KubernetesObjects struct {
	Client metadata.Interface
	// Mapper knows the kinds of the API server. One that reads discovery again for a
	// kind it does not know is right.
	Mapper meta.RESTMapper
}

// Object implements Objects.
func (k KubernetesObjects) Object(ctx context.Context, resource schema.GroupVersionResource, name types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	kind, err := k.Mapper.KindFor(resource)
	if err != nil {
		return nil, fmt.Errorf("kind of %s: %w", resource.GroupResource(), err)
	}
	return k.get(ctx, resource, kind, name)
}

// Owner implements Objects.
func (k KubernetesObjects) Owner(ctx context.Context, namespace string, reference metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	version, err := schema.ParseGroupVersion(reference.APIVersion)
	if err != nil {
		return nil, err
	}
	mapping, err := k.Mapper.RESTMapping(schema.GroupKind{Group: version.Group, Kind: reference.Kind}, version.Version)
	if err != nil {
		return nil, fmt.Errorf("resource of %s: %w", reference.Kind, err)
	}
	name := types.NamespacedName{Namespace: namespace, Name: reference.Name}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		name.Namespace = ""
	}
	return k.get(ctx, mapping.Resource, mapping.GroupVersionKind, name)
}

func (k KubernetesObjects) get(ctx context.Context, resource schema.GroupVersionResource, kind schema.GroupVersionKind, name types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	got, err := k.Client.Resource(resource).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	object := *got // what answers calls itself PartialObjectMetadata
	object.SetGroupVersionKind(kind)
	return &object, nil
}

// Package objects reads the metadata of objects of a spoke, for the rules of live access.
package objects

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

const (
	// objectTime bounds one look at an object's metadata.
	objectTime = 10 * time.Second
	// kindsTime is how long it is remembered which kinds an API version has, kindsAge
	// how long at least before one that is missing is asked for again, and maxKinds of
	// how many API versions.
	kindsTime = 5 * time.Minute
	kindsAge  = 5 * time.Second
	maxKinds  = 256
)

// Reader reads the metadata of the spoke's objects with the agent's own service
// account: access.Objects.
type Reader struct {
	metadata  metadata.Interface
	discovery rest.Interface

	mu    sync.Mutex // guards kinds
	kinds map[schema.GroupVersion]knownKinds
}

// knownKinds are the kinds of an API version.
type knownKinds struct {
	at        time.Time
	resources []metav1.APIResource
}

// New reads from the API server of a REST config.
func New(config *rest.Config) (*Reader, error) {
	reader, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for metadata: %w", err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for discovery: %w", err)
	}
	return &Reader{metadata: reader, discovery: client.RESTClient(), kinds: map[schema.GroupVersion]knownKinds{}}, nil
}

// Object implements access.Objects.
func (o *Reader) Object(ctx context.Context, resource schema.GroupVersionResource,
	name types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, objectTime)
	defer cancel()
	object, err := o.metadata.Resource(resource).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	// The API server names the kind of an answer, PartialObjectMetadata, and not that
	// of the object.
	kind, err := o.find(ctx, resource.GroupVersion(),
		func(r metav1.APIResource) bool { return r.Name == resource.Resource })
	if err != nil {
		return nil, err
	}
	object.SetGroupVersionKind(resource.GroupVersion().WithKind(kind.Kind))
	return object, nil
}

// Owner implements access.Objects.
func (o *Reader) Owner(ctx context.Context, namespace string,
	reference metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	version, err := schema.ParseGroupVersion(reference.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("owner reference: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, objectTime)
	defer cancel()
	kind, err := o.find(ctx, version, func(r metav1.APIResource) bool { return r.Kind == reference.Kind })
	if err != nil {
		return nil, err
	}
	if !kind.Namespaced {
		namespace = ""
	}
	object, err := o.metadata.Resource(version.WithResource(kind.Name)).Namespace(namespace).
		Get(ctx, reference.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	object.SetGroupVersionKind(version.WithKind(reference.Kind))
	return object, nil
}

// find returns the resource of an API version that is meant.
func (o *Reader) find(ctx context.Context, version schema.GroupVersion,
	is func(metav1.APIResource) bool) (metav1.APIResource, error) {
	for _, oldest := range []time.Duration{kindsTime, kindsAge} {
		kinds, err := o.kindsOf(ctx, version, oldest)
		if err != nil {
			return metav1.APIResource{}, err
		}
		if i := slices.IndexFunc(kinds, is); i >= 0 {
			return kinds[i], nil
		}
	}
	return metav1.APIResource{}, fmt.Errorf("%s does not have the kind", version)
}

// kindsOf returns the resources of an API version, as they were no longer ago than
// oldest. The caller does not change them.
func (o *Reader) kindsOf(ctx context.Context, version schema.GroupVersion,
	oldest time.Duration) ([]metav1.APIResource, error) {
	o.mu.Lock()
	known, found := o.kinds[version]
	o.mu.Unlock()
	if found && time.Since(known.at) < oldest {
		return known.resources, nil
	}
	path := []string{"/apis", version.Group, version.Version}
	if version.Group == "" {
		path = []string{"/api", version.Version}
	}
	var list metav1.APIResourceList
	if err := o.discovery.Get().AbsPath(path...).Do(ctx).Into(&list); err != nil {
		return nil, fmt.Errorf("kinds of %s: %w", version, err)
	}
	known = knownKinds{at: time.Now(), resources: slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool {
		return strings.Contains(r.Name, "/") // a subresource
	})}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.kinds) >= maxKinds {
		clear(o.kinds) // more API versions than any API server has
	}
	o.kinds[version] = known
	return known.resources, nil
}

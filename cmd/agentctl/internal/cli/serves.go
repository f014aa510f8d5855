package cli

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Serves reports whether an API server knows a resource.
func Serves(client discovery.DiscoveryInterface, resource schema.GroupVersionResource) (bool, error) {
	list, err := client.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, r := range list.APIResources {
		if r.Name == resource.Resource {
			return true, nil
		}
	}
	return false, nil
}

package links

import (
	"errors"

	"github.com/argomesh/argomesh/backends/admission"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

// argoKinds are the kinds that are mirrored from Argo CD's own namespace on the hub.
var argoKinds = []stream.Kind{stream.AppProject, stream.Secret, stream.ConfigMap}

// Watched are the kinds that the principal's store holds, and in which namespaces.
func Watched(namespace string) map[stream.Kind][]string {
	watch := map[stream.Kind][]string{stream.Application: nil}
	for _, kind := range argoKinds {
		watch[kind] = []string{namespace}
	}
	return watch
}

// WatchedOnly narrows that to the Secrets and ConfigMaps that may be mirrored, and the
// settings of Argo CD, of which projects hang: the principal reads no other.
func WatchedOnly() map[stream.Kind][]kube.Selector {
	only := map[stream.Kind][]kube.Selector{stream.Secret: {{Labels: object.RepositorySelector()}}}
	for _, name := range append(object.TrustConfigMaps(), admission.SettingsConfigMap()) {
		only[stream.ConfigMap] = append(only[stream.ConfigMap], kube.Selector{Name: name})
	}
	return only
}

// Synced returns nil once the store has listed what the hub has.
func Synced(store *kube.Store) error {
	select {
	case <-store.Synced():
		return nil
	default:
		return errors.New("the Applications of the hub are not known yet: its API server has not answered")
	}
}

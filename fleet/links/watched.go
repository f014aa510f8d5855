package links

import (
	"errors"
	"slices"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/admission"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

// argoKinds are the kinds that are mirrored from Argo CD's own namespace on the hub.
func argoKinds() []stream.Kind {
	var kinds []stream.Kind
	for _, c := range stream.Collections() {
		if kind := c.Kind(); kind != stream.Application && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Watched are the kinds that the principal's store holds, and in which namespaces.
func Watched(namespace string) map[stream.Kind][]string {
	watch := map[stream.Kind][]string{stream.Application: nil}
	for _, kind := range argoKinds() {
		watch[kind] = []string{namespace}
	}
	return watch
}

// WatchedOnly narrows that to what may be mirrored, and the settings of Argo CD, of which
// projects hang: the principal reads no other Secret and ConfigMap.
func WatchedOnly() map[stream.Kind][]backends.Selector {
	only := map[stream.Kind][]backends.Selector{}
	for _, kind := range argoKinds() {
		if selectors := object.SelectorsOf(kind); len(selectors) > 0 {
			only[kind] = selectors
		}
	}
	only[stream.ConfigMap] = append(only[stream.ConfigMap], backends.Selector{Name: admission.SettingsConfigMap()})
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

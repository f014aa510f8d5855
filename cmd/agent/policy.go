package main

import (
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/admission"
	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/stream"
)

// watched are the kinds that the agent's store holds in its namespace, and, where it
// is not all of a kind, which of it: what the mode and the policy leave to the hub,
// and nothing else. Of Secrets that is those of repositories.
func watched(cfg agentconfig.Config) (map[stream.Kind][]string, map[stream.Kind][]backends.Selector) {
	here := []string{cfg.Namespace}
	watch := map[stream.Kind][]string{stream.Application: cfg.Mapping.Watched(cfg.Namespace), stream.AppProject: here}
	only := map[stream.Kind][]backends.Selector{}
	if cfg.Mode != stream.Managed {
		// Its projects go to the hub, with what the settings of Argo CD merge into them.
		watch[stream.ConfigMap] = here
		only[stream.ConfigMap] = []backends.Selector{{Name: admission.SettingsConfigMap()}}
		return watch, only
	}
	for _, c := range stream.Collections() {
		kind := c.Kind()
		if selectors, allowed := cfg.Policy.Selectors(kind); c.ByName() && allowed {
			watch[kind], only[kind] = here, selectors
		}
	}
	return watch, only
}

// capabilities are those that the agent offers to the hub, some by its policy.
func capabilities(cfg agentconfig.Config) stream.Capabilities {
	offered := []stream.Capability{stream.GiveUp, stream.SeenDeletes, stream.ShowEvents}
	if cfg.Mode == stream.Managed && cfg.Policy.WriteCredentials() {
		offered = append(offered, stream.WriteCredentials)
	}
	return stream.NewCapabilities(offered...)
}

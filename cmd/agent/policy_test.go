package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/stream"
)

// An agent reads no Secret and no ConfigMap that its mode and its policy do not leave
// to the hub.
func TestWatched(t *testing.T) {
	here := []string{"argocd"}
	two, settings := map[stream.Kind][]string{stream.Application: here, stream.AppProject: here}, []backends.Selector{{Name: "argocd-cm"}}
	tests := map[string]struct {
		mode  stream.Mode
		kinds []string
		watch map[stream.Kind][]string
		only  map[stream.Kind][]backends.Selector
		write bool
	}{
		"autonomous": {stream.Autonomous, policy.Default().Kinds,
			map[stream.Kind][]string{stream.Application: here, stream.AppProject: here, stream.ConfigMap: here},
			map[stream.Kind][]backends.Selector{stream.ConfigMap: settings}, false},
		"the default": {stream.Managed, policy.Default().Kinds,
			map[stream.Kind][]string{stream.Application: here, stream.AppProject: here, stream.Secret: here, stream.ConfigMap: here},
			map[stream.Kind][]backends.Selector{
				stream.Secret: {{Labels: object.RepositorySelector()}},
				stream.ConfigMap: {
					{Name: "argocd-gpg-keys-cm"}, {Name: "argocd-ssh-known-hosts-cm"}, {Name: "argocd-tls-certs-cm"},
				},
			}, false},
		"Applications alone": {stream.Managed, []string{"application"}, two, map[stream.Kind][]backends.Selector{}, false},
		"write credentials and certificates": {stream.Managed, []string{"repository-write", "tls-certificates"},
			map[stream.Kind][]string{stream.Application: here, stream.AppProject: here, stream.Secret: here, stream.ConfigMap: here},
			map[stream.Kind][]backends.Selector{
				stream.Secret: {{Labels: object.RepositorySelector()}}, stream.ConfigMap: {{Name: "argocd-tls-certs-cm"}},
			}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := agentconfig.Config{Mode: test.mode, Namespace: "argocd", Policy: policy.Policy{Kinds: test.kinds}}
			watch, only := watched(cfg)
			if diff := cmp.Diff(test.watch, watch); diff != "" {
				t.Errorf("watched (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.only, only); diff != "" {
				t.Errorf("selected (-want +got):\n%s", diff)
			}
			if got := capabilities(cfg).Has(stream.WriteCredentials); got != test.write {
				t.Errorf("write credentials are offered: %t, want %t", got, test.write)
			}
		})
	}
}

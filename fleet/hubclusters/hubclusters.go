// Package hubclusters knows the clusters of the hub's Argo CD that are no agents'.
package hubclusters

import (
	"context"
	"encoding/base64"
	"strings"
	"sync"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends/kube/reflector"
	"github.com/argomesh/argomesh/internal/notify"
)

// Secrets is the resource of Secrets.
var Secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// Clusters are the clusters that the hub's Argo CD knows and that are not agents': of
// each cluster Secret the name and the server, and nothing else is kept. It is the store of
// a client-go reflector.
type Clusters struct {
	client    dynamic.Interface
	namespace string
	log       zerolog.Logger

	mu       sync.Mutex // guards what follows
	listed   bool
	clusters map[string]hubCluster // by the Secret's name
	signal   notify.Broadcast      // closed when the rest changes
}

type hubCluster struct{ name, server string }

// New knows nothing before Run has listed.
func New(client dynamic.Interface, namespace string, log zerolog.Logger) *Clusters {
	return &Clusters{client: client, namespace: namespace, log: log}
}

// Run watches until ctx is done.
func (h *Clusters) Run(ctx context.Context) error {
	reflector.Run(ctx, reflector.Config{
		Resource: h.client.Resource(Secrets).Namespace(h.namespace), What: "cluster secrets",
		Selector: "argocd.argoproj.io/secret-type=cluster", Streams: h.client,
		Answered: func(ctx context.Context, err error) {
			if err != nil && ctx.Err() == nil {
				h.log.Debug().Err(err).Msg("the hub's cluster Secrets cannot be read, trying again")
			}
		},
	}, h)
	return nil
}

// Known returns names and servers; false before they were read.
func (h *Clusters) Known() (names, servers map[string]bool, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	names, servers = map[string]bool{}, map[string]bool{}
	for _, c := range h.clusters {
		if c.name != "" {
			names[c.name] = true
		}
		if c.server != "" {
			servers[c.server] = true
		}
	}
	return names, servers, h.listed
}

// Changed returns a channel that is closed at the next change.
func (h *Clusters) Changed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.signal.Next()
}

// change is called with what changes the clusters, under the lock, and reports whether it did.
func (h *Clusters) change(do func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if do() {
		h.signal.Tell()
	}
}

// Add implements cache.ReflectorStore.
func (h *Clusters) Add(obj any) error { return h.Update(obj) }

// Update implements cache.ReflectorStore.
func (h *Clusters) Update(obj any) error {
	secret, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil // the dynamic client returns nothing else
	}
	h.change(func() bool {
		before, there := h.clusters[secret.GetName()]
		now, others := clusterOf(secret)
		switch {
		case others:
			h.clusters[secret.GetName()] = now
		default:
			delete(h.clusters, secret.GetName())
		}
		return there != others || before != now
	})
	return nil
}

// Delete implements cache.ReflectorStore.
func (h *Clusters) Delete(obj any) error {
	if secret, ok := obj.(*unstructured.Unstructured); ok {
		h.change(func() bool {
			_, there := h.clusters[secret.GetName()]
			delete(h.clusters, secret.GetName())
			return there
		})
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (h *Clusters) Replace(list []any, _ string) error {
	clusters := map[string]hubCluster{}
	for _, obj := range list {
		if secret, ok := obj.(*unstructured.Unstructured); ok {
			if c, others := clusterOf(secret); others {
				clusters[secret.GetName()] = c
			}
		}
	}
	h.change(func() bool {
		h.clusters, h.listed = clusters, true
		return true
	})
	return nil
}

// Resync implements cache.ReflectorStore.
func (h *Clusters) Resync() error { return nil }

// clusterOf is the cluster that a Secret of Argo CD's names; false for one of an agent's.
func clusterOf(secret *unstructured.Unstructured) (c hubCluster, others bool) {
	if secret.GetAnnotations()["managed-by"] == "argomesh" {
		return hubCluster{}, false
	}
	text := func(key string) string {
		encoded, _, _ := unstructured.NestedString(secret.Object, "data", key)
		plain, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return ""
		}
		return string(plain)
	}
	return hubCluster{name: text("name"), server: strings.TrimRight(text("server"), "/")}, true
}

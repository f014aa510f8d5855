// Package hubclusters knows the clusters of the hub's Argo CD that are no agents'.
package hubclusters

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends/kube/collection"
	"github.com/argomesh/argomesh/backends/kube/reflector"
	"github.com/argomesh/argomesh/internal/notify"
)

// Secrets is the resource of Secrets.
var Secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// Clusters are the clusters that the hub's Argo CD knows and that are not agents': of
// each cluster Secret the name and the server, and nothing else is kept.
type Clusters struct {
	known  *collection.Collection[hubCluster]
	signal notify.Broadcast
}

type hubCluster struct{ name, server string }

// New knows nothing before Run has listed.
func New(client dynamic.Interface, namespace string, log zerolog.Logger) *Clusters {
	h := &Clusters{}
	h.known = collection.New(collection.Config[hubCluster]{
		Reflect: reflector.Config{
			Resource: client.Resource(Secrets).Namespace(namespace), What: "cluster secrets",
			Selector: "argocd.argoproj.io/secret-type=cluster", Streams: client,
		},
		Value: func(secret *unstructured.Unstructured) (hubCluster, bool, error) {
			c, others := clusterOf(secret)
			return c, others, nil
		},
		Changed: h.changed,
		Readable: func(err error) {
			if err != nil {
				log.Debug().Err(err).Msg("the hub's cluster Secrets cannot be read, retrying")
			}
		},
	})
	return h
}

// Run watches until ctx is done.
func (h *Clusters) Run(ctx context.Context) error {
	h.known.Run(ctx)
	return nil
}

// changed tells who waits of what is another cluster now, and of a list.
func (h *Clusters) changed(changes []collection.Change[hubCluster]) {
	if len(changes) == 1 && changes[0].Had == changes[0].Has && changes[0].Before == changes[0].After {
		return
	}
	h.signal.Notify()
}

// Known returns names and servers; false before they were read.
func (h *Clusters) Known() (names, servers map[string]bool, known bool) {
	select {
	case <-h.known.Listed():
		known = true
	default:
	}
	names, servers = map[string]bool{}, map[string]bool{}
	for _, c := range h.known.All() {
		if c.name != "" {
			names[c.name] = true
		}
		if c.server != "" {
			servers[c.server] = true
		}
	}
	return names, servers, known
}

// Changed returns a channel that is closed at the next change.
func (h *Clusters) Changed() <-chan struct{} { return h.signal.Next() }

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

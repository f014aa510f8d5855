// Package children finds what keeps the child applications of agents from being shown.
package children

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Where Argo CD's settings say in which namespaces it takes Applications. Flags and
// variables of its processes may say otherwise, which no one can read here.
const (
	paramsConfigMap = "argocd-cmd-params-cm"
	namespacesParam = "application.namespaces"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// childrenTime is how long what was found of an agent's children, and of Argo CD's settings,
// is taken for what is so. A pass over an Agent may come each second, and may not read all
// of its children then.
const childrenTime = 20 * time.Second

// Review finds what keeps the child applications of agents from being shown by
// destination.
type Review struct {
	client    dynamic.Interface
	namespace string // of the hub's Argo CD
	registry  *fleet.Registry
	store     backends.Store
	now       func() time.Time

	mu       sync.Mutex // guards what follows
	asked    time.Time
	watches  func(namespace string) bool            // nil while it is not known
	projects map[identity.AgentName]projectsOfChild // at most one more than there are Agents
}

type projectsOfChild struct {
	found time.Time
	names []string
}

// New reviews the children of the agents in the registry. namespace is that of Argo CD on the
// hub.
func New(client dynamic.Interface, namespace string, registry *fleet.Registry, store backends.Store) *Review {
	return &Review{
		client: client, namespace: namespace, registry: registry, store: store, now: time.Now,
		projects: map[identity.AgentName]projectsOfChild{},
	}
}

// Of is controller.Config.Children.
func (c *Review) Of(ctx context.Context, name identity.AgentName) controller.Children {
	if owner, taken := c.registry.ChildNamespaceTaken(name); taken {
		return controller.Children{Taken: true, Owner: owner}
	}
	found := controller.Children{Namespace: c.registry.ChildNamespace(name)}
	if found.Namespace == "" {
		return found
	}
	watches := c.watched(ctx)
	found.Unwatched = watches != nil && !watches(found.Namespace)
	found.Projects = c.barring(name, found.Namespace)
	return found
}

// watched returns which namespaces Argo CD's ConfigMap names; nil when it cannot be read.
func (c *Review) watched(ctx context.Context) func(string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); c.asked.IsZero() || now.Sub(c.asked) >= childrenTime {
		c.asked = now
		o, err := c.client.Resource(configMaps).Namespace(c.namespace).Get(ctx, paramsConfigMap, metav1.GetOptions{})
		switch {
		case err == nil:
			c.watches = watchedBy(o)
		case apierrors.IsNotFound(err):
			c.watches = watchedBy(&unstructured.Unstructured{})
		default:
			c.watches = nil
		}
	}
	return c.watches
}

// watchedBy reads which namespaces a ConfigMap of Argo CD's parameters names.
func watchedBy(params *unstructured.Unstructured) func(namespace string) bool {
	text, _, _ := unstructured.NestedString(params.Object, "data", namespacesParam)
	var patterns []string
	for pattern := range strings.SplitSeq(text, ",") {
		if pattern = strings.TrimSpace(pattern); pattern != "" {
			patterns = append(patterns, pattern)
		}
	}
	return mapping.NamespaceMatcher(patterns)
}

// barring are AppProjects of an agent's children that do not admit the namespace.
func (c *Review) barring(name identity.AgentName, namespace string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := c.projects[name]
	if now := c.now(); !known || now.Sub(last.found) >= childrenTime {
		if !known && len(c.projects) > len(c.registry.Agents()) {
			clear(c.projects) // of Agents that are gone
		}
		last = projectsOfChild{now, barredProjects(c.store, c.namespace, name, namespace)}
		c.projects[name] = last
	}
	return last.names
}

// barredProjects are the AppProjects that mirrors of an agent's children in a namespace
// name, and that do not admit it, by name, at most controller.MaxNamed. One that does not
// exist is another matter.
func barredProjects(store backends.Store, argocd string, name identity.AgentName, namespace string) []string {
	seen := map[string]bool{}
	var barring []string
	for _, o := range store.List(stream.Application, namespace) {
		var app struct {
			Spec struct {
				Project string `json:"project"`
			} `json:"spec"`
		}
		if mapping.PlacementOf(o).Child != name || json.Unmarshal(o.Raw, &app) != nil {
			continue
		}
		project := cmp.Or(app.Spec.Project, "default")
		if !seen[project] {
			seen[project] = true
			if bars(store, argocd, project, namespace) {
				barring = append(barring, project)
			}
		}
	}
	slices.Sort(barring)
	return barring[:min(len(barring), controller.MaxNamed)]
}

// bars reports whether an AppProject does not admit Applications of a namespace.
func bars(store backends.Store, argocd, project, namespace string) bool {
	o, there := store.Get(stream.ResourceKey{Kind: stream.AppProject, Namespace: argocd, Name: project})
	var read struct {
		Spec struct {
			SourceNamespaces []string `json:"sourceNamespaces"`
		} `json:"spec"`
	}
	return there && json.Unmarshal(o.Raw, &read) == nil && !mapping.MatchesNamespace(read.Spec.SourceNamespaces, namespace)
}

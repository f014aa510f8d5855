// Package meshpolicy keeps the objects of a hub's service mesh in step with the Agents,
// or says how they differ. What the objects are is given to it; it decides when to look,
// writes by server-side apply, takes back what others change, deletes only what it made
// itself, and tells each Agent in condition MeshPolicy. The registry stays the last word
// on who may connect, so an error here shuts no one in or out by itself.
//
//	c, err := meshpolicy.New(meshpolicy.Config{Client: client, Namespace: "argocd", Registry: registry, Parts: parts, ...})
//	err = c.Run(ctx) // under the hub's Lease
package meshpolicy

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh/objects"
)

// Part is what one product, such as Istio, has on the hub.
type Part struct {
	// Name is for logs and metrics.
	Name string
	// Apply says that the objects are written. Otherwise they are only looked at.
	Apply bool
	// Places are where its objects are.
	Places []objects.Scope
	// Render returns the objects for the agents that may connect, in no order. It is
	// pure, and an error is about what it was given.
	Render func(agents map[identity.AgentName][]spiffeid.ID) ([]*unstructured.Unstructured, error)
	// Verify says how have differs from what was rendered. Have is all that there is in
	// Places.
	Verify func(want, have []*unstructured.Unstructured, manager string) []objects.Difference
}

// Config holds what a Controller needs. All fields but Parts are required.
type Config struct {
	// Client reaches the hub's Kubernetes API. Agents are listed and their status is
	// patched; objects of Parts are listed and watched, and where one applies, written
	// and deleted.
	Client dynamic.Interface
	// Namespace is that of the hub's Argo CD.
	Namespace string
	// Parts are looked after. With none, only what an earlier run said in the Agents is
	// taken back.
	Parts    []Part
	Registry *fleet.Registry
	Metrics  prometheus.Registerer
	Log      zerolog.Logger
}

// Controller looks after the mesh of one hub. One at a time runs.
type Controller struct {
	cfg     Config
	metrics *metrics
}

// New checks cfg and registers metrics; it starts nothing.
func New(cfg Config) (*Controller, error) {
	var problems []error
	for _, field := range []struct {
		name    string
		missing bool
	}{
		{"client", cfg.Client == nil},
		{"namespace", cfg.Namespace == ""},
		{"registry", cfg.Registry == nil},
		{"metrics registerer", cfg.Metrics == nil},
	} {
		if field.missing {
			problems = append(problems, errors.New(field.name+" is missing"))
		}
	}
	for _, part := range cfg.Parts {
		if part.Name == "" || len(part.Places) == 0 || part.Render == nil || part.Verify == nil {
			problems = append(problems, fmt.Errorf("part %q is not complete", part.Name))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("mesh policy: %w", err)
	}
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	return &Controller{cfg: cfg, metrics: m}, nil
}

// Run looks after the objects until ctx is done, and returns nil then. It waits for an
// API server that is away, for definitions that are not installed yet, and for the
// registry, before which nothing is written. It is called again in a later term of the
// Lease, after the one before has returned.
func (c *Controller) Run(ctx context.Context) error {
	newLoop(c.cfg, c.metrics).run(ctx)
	return nil
}

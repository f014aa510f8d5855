//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/harness"
)

// crowd is many simulated agents of a real principal.
type crowd struct {
	agents []*simulated

	mu        sync.Mutex // guards connected
	connected *arrivals
}

// newCrowd makes agents that dial the principal of a world once they run.
func newCrowd(w *world, ca authority, all []string) (*crowd, error) {
	c := &crowd{connected: newArrivals(len(all))}
	metrics, err := mirror.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		creds, err := ca.credentials(name)
		if err != nil {
			return nil, err
		}
		a, err := newSimulated(name, w.principal.Address, memory.New(memory.Config{}), creds, metrics, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.connected.add(name)
		})
		if err != nil {
			return nil, err
		}
		c.agents = append(c.agents, a)
	}
	return c, nil
}

// run lets the agents run until ctx is done.
func (c *crowd) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, a := range c.agents {
		g.Go(func() error { return a.run(ctx) })
	}
	return g.Wait()
}

// reconnect waits for a connection of every agent from now on.
func (c *crowd) reconnect() *arrivals {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connected = newArrivals(len(c.agents))
	return c.connected
}

// expect waits until every agent has some of its Applications at a revision.
func (c *crowd) expect(apps []string, revision string) *arrivals {
	there, marker := newArrivals(len(c.agents)*len(apps)), marked(revision)
	of := make(map[string]bool, len(apps))
	for _, name := range apps {
		of[name] = true
	}
	for _, a := range c.agents {
		a.store.Subscribe(func(key stream.ResourceKey) {
			if o, ok := a.store.Get(key); ok && of[key.Name] && bytes.Contains(o.Raw, marker) {
				there.add(a.name.String() + "/" + key.Name)
			}
		})
	}
	return there
}

// compare returns an error when an agent does not hold what the hub does.
func (c *crowd) compare(ctx context.Context, client dynamic.Interface) error {
	list, err := client.Resource(harness.Applications).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	hub := make(map[string]map[string]map[string]any, len(c.agents))
	for i := range list.Items {
		o := &list.Items[i]
		if hub[o.GetNamespace()] == nil {
			hub[o.GetNamespace()] = map[string]map[string]any{}
		}
		hub[o.GetNamespace()][o.GetName()] = o.Object
	}
	for _, a := range c.agents {
		spoke, err := parsed(a.store.List(stream.Application, ""))
		if err != nil {
			return err
		}
		if err := lost(differences(hub[a.name.String()], spoke)); err != nil {
			return fmt.Errorf("agent %s: %w", a.name, err)
		}
	}
	return nil
}

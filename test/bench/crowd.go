//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/harness"
)

// crowd is many simulated agents of a real principal.
type crowd struct {
	agents []*simulated

	mu        sync.Mutex // guards connected
	connected *arrivals
}

// newCrowd makes agents that dial the principal of a benchEnv once they run, and that keep what
// it says of its history.
func newCrowd(w *benchEnv, ca authority, all []string) (*crowd, error) {
	return newCrowdWith(w, ca, all, func() (backends.Store, *past) { return memory.New(memory.Config{}), &past{} })
}

// newCrowdOf is newCrowd with agents that keep bytes alone, and nothing of a history: each
// says that it continues that of a hub, if it is not empty.
func newCrowdOf(w *benchEnv, ca authority, all []string, hub string) (*crowd, error) {
	return newCrowdWith(w, ca, all, func() (backends.Store, *past) { return newByteStore(), &past{hub: hub, forgets: true} })
}

// newCrowdWith is told what each agent has when it begins.
func newCrowdWith(w *benchEnv, ca authority, all []string, has func() (backends.Store, *past)) (*crowd, error) {
	c := &crowd{connected: newArrivals(len(all))}
	metrics, err := linkmetrics.New(prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		creds, err := ca.credentials(name)
		if err != nil {
			return nil, err
		}
		store, past := has()
		a, err := newSimulated(name, w.principal.Address, past, store, nil, creds, metrics, func() {
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

// expectAll waits until the agents together have n Applications at a revision.
func (c *crowd) expectAll(n int, revision string) *arrivals {
	there, marker := newArrivals(n), marked(revision)
	for _, a := range c.agents {
		a.store.Subscribe(func(key stream.ResourceKey) {
			if o, ok := a.store.Get(key); ok && bytes.Contains(o.Raw, marker) {
				there.add(a.name.String() + "/" + key.Name)
			}
		})
	}
	return there
}

// compare returns how many Applications the hub has, and an error when an agent does not
// hold what the hub does. tell is told how many were compared so far.
func (c *crowd) compare(ctx context.Context, b *bench, client dynamic.Interface, tell func(int)) (compared int, err error) {
	agents := make(map[string]*simulated, len(c.agents))
	held := 0 // by the agents
	for _, a := range c.agents {
		agents[a.name.String()] = a
		held += len(a.store.List(stream.Application, ""))
	}
	var found []string
	opts := metav1.ListOptions{Limit: 500} // many would be in the way of what is measured
	for {
		var page *unstructured.UnstructuredList
		var expired error // what was read so far is too old for the rest of it
		if err := b.persistently(ctx, func(ctx context.Context) (err error) {
			if page, err = client.Resource(harness.Applications).List(ctx, opts); apierrors.IsResourceExpired(err) {
				expired, err = err, nil
			}
			return err
		}); err != nil || expired != nil {
			return compared, errors.Join(err, expired)
		}
		for i := range page.Items {
			hub := &page.Items[i]
			destination, _, _ := unstructured.NestedString(hub.Object, "spec", "destination", "name") // each has one
			a := agents[destination]
			if a == nil {
				return compared, fmt.Errorf("%s/%s is of agent %q, which there is not", hub.GetNamespace(), hub.GetName(), destination)
			}
			spoke := map[string]map[string]any{}
			if o, there := a.store.Get(a.key(hub.GetName())); there {
				if spoke, err = parsed([]backends.Object{o}); err != nil {
					return compared, fmt.Errorf("agent %s: %w", a.name, err)
				}
			}
			for _, difference := range differences(map[string]map[string]any{hub.GetName(): hub.Object}, spoke) {
				found = append(found, "agent "+destination+": "+difference)
			}
		}
		compared += len(page.Items)
		tell(compared)
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			break
		}
	}
	if held > compared {
		found = append(found, fmt.Sprintf("%d are too much", held-compared))
	}
	return compared, lost(found)
}

package main

import (
	"context"

	"github.com/argomesh/argomesh/backends/adopted"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/backends/projects"
	"github.com/argomesh/argomesh/cmd/internal/admin"
	"github.com/argomesh/argomesh/fleet/children"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/fleet/sessions"
)

// leaderTasks are what one replica of a hub does for all of them, under the Lease.
type leaderTasks struct {
	hub    *hub.State
	parts  []func(context.Context) error
	checks []admin.Check
}

// newLeaderTasks starts nothing.
func newLeaderTasks(c *hubCore, f *proxies) (*leaderTasks, error) {
	cfg, log, registry := c.cfg, c.base.Log, c.base.Metrics
	agents, err := controller.New(controller.Config{
		Client: c.base.Dynamic, Namespace: cfg.Namespace, ProxyURL: cfg.ResourceProxy.URL,
		ClusterConfig: f.credentials.config, ConfigChanged: f.credentials.changed,
		Mapping: func() controller.Mapping {
			kept, _ := c.hub.Now()
			return controller.Mapping{InForce: string(kept.Mapping), Asked: cfg.Mapping.By}
		},
		Children: children.New(c.base.Dynamic, cfg.Namespace, c.agents, c.store).Of,
		Sessions: c.sessions, Teardown: c.links.Teardown, Metrics: registry, Log: log,
	})
	if err != nil {
		return nil, err
	}
	meshPolicy, err := newMeshPolicy(cfg, c.base.Dynamic, c.agents, registry, log)
	if err != nil {
		return nil, err
	}
	showClusters, err := clusterInfoWriter(cfg, sessions.Clusters{Sessions: c.sessions, Registry: c.agents}, registry, log)
	if err != nil {
		return nil, err
	}
	projects := &projects.Collector{Store: c.store, Namespace: cfg.Namespace, Log: log}
	remains := &adopted.Remains{
		Store: c.store, Namespace: cfg.Namespace, List: kube.SecretsOfType(c.base.Metadata, cfg.Namespace, adopted.FoundType),
		Log: log,
	}
	saveBudget := func(ctx context.Context) error { return c.budgets.Save(ctx, c.hub.Store, log) }
	saveVersion := func(ctx context.Context) error { return c.hub.SaveVersion(ctx, c.build.Version) }
	untaken, err := newUntaken(c)
	if err != nil {
		return nil, err
	}
	stale, err := newStale(c)
	if err != nil {
		return nil, err
	}
	s := &leaderTasks{hub: c.hub,
		parts: []func(context.Context) error{agents.Run, projects.Run, remains.Run, meshPolicy.Run, showClusters,
			f.credentials.rotate, saveBudget, saveVersion, untaken.Run, stale.Run}}
	people, err := newAccessRequests(c, f.credentials)
	if err != nil {
		return nil, err
	}
	if people != nil {
		s.parts = append(s.parts, people.Run)
	}
	push, err := newBundlePusher(cfg.SPIRE, c.source, registry, log)
	if err != nil {
		return nil, err
	}
	if push != nil {
		s.parts = append(s.parts, push.Run)
		s.checks = append(s.checks, admin.Check{Name: "spire", Ready: always, Degraded: push.Degraded})
	}
	return s, nil
}

// Run works until ctx is done, from when it is known what the hub has decided.
func (s *leaderTasks) Run(ctx context.Context) error {
	return s.hub.Then(func(ctx context.Context) error { return together(ctx, s.parts...) })(ctx)
}

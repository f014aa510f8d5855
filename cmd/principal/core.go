package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/backends/keyset"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/cmd/internal/admin"
	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	"github.com/argomesh/argomesh/cmd/internal/lease"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/cmd/internal/process"
	"github.com/argomesh/argomesh/cmd/internal/start"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/agentwatch"
	"github.com/argomesh/argomesh/fleet/division"
	"github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/fleet/links"
	"github.com/argomesh/argomesh/fleet/sessions"
	"github.com/argomesh/argomesh/fleet/strangers"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/inspect"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/stream/tunnel/dialer"
)

// hubCore is what the other parts of a principal stand on: who it is itself, which agents
// there are, what the hub has for them, and the links and tunnels to them.
type hubCore struct {
	cfg   principalconfig.Config
	build buildinfo.Info
	base  *start.Base

	hub      *hub.State
	source   *workload.Source
	store    *kube.Store
	agents   *fleet.Registry
	watch    *agentwatch.Watch
	sessions *sessions.Sessions
	links    *links.Links
	tunnels  *dialer.Dialer
	quota    *quota.Quota
	unknown  *strangers.Recorder
	schemas  *kube.Definitions
	witness  *kube.Witness
	budgets  *links.Budgets
	restores *links.Restores
	owners   *division.Division // once it is known what the hub has decided
	lease    *lease.Lease       // the hub's, held or not; set before Run
}

// newHubCore starts nothing.
func newHubCore(cfg principalconfig.Config, build buildinfo.Info, base *start.Base) (*hubCore, error) {
	log, registry := base.Log, base.Metrics
	source, err := workload.New(workload.Config{
		Socket: cfg.Identity.Socket, SPIFFEID: cfg.Identity.SPIFFEID, Hint: cfg.Identity.Hint,
		JWTBundles: cfg.Stream.NeedsTokens(),
		Metrics:    registry, Log: log,
	})
	if err != nil {
		return nil, err
	}
	restores := links.NewRestores(log)
	store, err := kube.New(kube.Config{
		Client: base.Dynamic, Writes: base.Writes, Watch: links.Watched(cfg.Namespace), Only: links.WatchedOnly(),
		Metrics: registry, Log: log,
		Restored: restores.Listed,
	})
	if err != nil {
		return nil, err
	}
	mirrors, err := linkmetrics.New(registry)
	if err != nil {
		return nil, err
	}
	room, err := quota.New(registry)
	if err != nil {
		return nil, err
	}
	tunnels, err := dialer.New(dialer.Config{
		MaxStreams: cfg.Tunnel.MaxAgentStreams, MaxTotalStreams: cfg.Tunnel.MaxStreams, Quota: room, Metrics: registry,
		Log: log,
	})
	if err != nil {
		return nil, err
	}
	budgets, err := links.NewBudgets(cfg.Limits.Common(), registry)
	if err != nil {
		return nil, err
	}
	agents := &fleet.Registry{}
	sessions := sessions.New(replica())
	unknown, err := strangers.New(strangers.Config{Client: base.Dynamic, Namespace: cfg.Namespace, Known: agents.Owns,
		Metrics: registry, Log: log})
	if err != nil {
		return nil, err
	}
	c := &hubCore{
		cfg: cfg, build: build, base: base,
		source: source, store: store, agents: agents, sessions: sessions, tunnels: tunnels, quota: room, unknown: unknown,
		schemas: kube.NewDefinitions(base.Dynamic, log), witness: kube.NewWitness(store, base.Metadata, log),
		budgets: budgets, restores: restores,
	}
	c.link(mirrors)
	return c, registry.Register(agentwatch.NewGauges(c.watch.All))
}

// link makes what runs the links, and what tells them of Agents.
func (c *hubCore) link(metrics *linkmetrics.Metrics) {
	cfg, base, log := c.cfg, c.base, c.base.Log
	// Nothing is mapped before it is known by what.
	c.hub = hub.NewState(hub.Store{
		Client: base.Dynamic, Namespace: cfg.Namespace, ShareDefault: cfg.Projects.ShareDefault,
		Mapping: hub.Mapping(cfg.Mapping.By),
	}, func(kept hub.Hub) {
		c.agents.Map(cfg.Owners(kept.Mapping))
		c.owners = division.New(c.agents, c.store)
	}, log)
	dirty := keyset.New[identity.AgentName]()
	c.watch = agentwatch.New(agentwatch.Config{Client: base.Dynamic, Namespace: cfg.Namespace, Registry: c.agents,
		StatusChanged: dirty.Add, Log: log})
	c.links = links.New(links.Config{
		Namespace: cfg.Namespace, Replica: replica(), Life: uuid.NewString(),
		Rules: func(decided hub.Hub, name identity.AgentName, a v1alpha1.Agent) ownership.Rules {
			return cfg.Rules(c.agents, decided, name, a)
		},
		Owners: func() *division.Division { return c.owners },
		Client: base.Dynamic, Writes: base.Writes, Reads: base.Metadata,
		Confirm: func(ctx context.Context) error { return c.lease.Confirm(ctx) }, NotHeld: lease.ErrNotHeld,
		Store: c.store, Schemas: c.schemas, Consistency: kube.NewConsistencyChecker(c.store, base.Metadata),
		Witness: c.witness, Registry: c.agents, Sessions: c.sessions, Hub: c.hub, Restores: c.restores,
		Budgets: c.budgets, Dirty: dirty, EventRate: appevents.NewCommon(), Quota: c.quota,
		Metrics: metrics, Tracer: base.Tracer, Log: log,
	})
}

// Run keeps the core up to date until ctx is done.
func (c *hubCore) Run(ctx context.Context, only *lease.Lease) error {
	c.lease = only
	return together(ctx, c.followHub, c.source.Run, c.store.Run, c.witness.Run, c.schemas.Run, c.hub.Then(c.watch.Run),
		c.unknown.Run, c.links.Run)
}

// followHub ends the process's work, to start over, when the hub maps otherwise.
func (c *hubCore) followHub(ctx context.Context) error {
	err := c.hub.Run(ctx)
	if errors.Is(err, hub.ErrRemapped) {
		return fmt.Errorf("%w: %w", err, process.ErrRestart)
	}
	return err
}

// admin returns the admin server of the process, with the checks of its other parts.
func (c *hubCore) admin(others ...[]admin.Check) (*admin.Server, error) {
	return admin.New(admin.Config{
		Checks: slices.Concat(append([][]admin.Check{c.checks()}, others...)...), Identity: c.identity,
		Metrics: c.base.Metrics, Log: c.base.Log,
	})
}

func (c *hubCore) checks() []admin.Check {
	return []admin.Check{
		{Name: "identity", Ready: c.source.Ready, Degraded: c.source.Degraded},
		{Name: "agents", Ready: c.agents.Ready},
		{Name: "store", Ready: func() error { return links.Synced(c.store) }},
		{Name: "hub", Ready: c.links.Identified},
	}
}

// identity says of our SVID, and of the bundles of the trust domains of agents, how they are.
func (c *hubCore) identity() any {
	svid, jwt := c.source.Held()
	return inspect.DiagnoseHeld(svid, jwt, c.agents.TrustDomains(), time.Now())
}

// dials returns what connects to a service of an agent's spoke.
func (c *hubCore) dials(to stream.Service) func(context.Context, identity.AgentName) (net.Conn, error) {
	return func(ctx context.Context, agent identity.AgentName) (net.Conn, error) {
		return c.tunnels.Dial(ctx, agent, to)
	}
}

package main

import (
	"context"
	"errors"
	"net"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/backends/keyset"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/cmd/internal/admin"
	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	"github.com/argomesh/argomesh/cmd/internal/lease"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/cmd/internal/start"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/fleet/strangers"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/stream/tunnel"
)

// core is what the other parts of a principal stand on: who it is itself, which agents
// there are, what the hub has for them, and the links and tunnels to them.
type core struct {
	cfg   principalconfig.Config
	build buildinfo.Info
	base  *start.Base

	hub      *hubState
	source   *workload.Source
	store    *kube.Store
	agents   *fleet.Registry
	watch    *agentWatch
	sessions *sessions
	links    *links
	tunnels  *tunnel.Dialer
	quota    *quota.Quota
	unknown  *strangers.Keeper
}

// newCore starts nothing.
func newCore(cfg principalconfig.Config, build buildinfo.Info, base *start.Base) (*core, error) {
	log, registry := base.Log, base.Metrics
	source, err := workload.New(workload.Config{
		Socket: cfg.Identity.Socket, SPIFFEID: cfg.Identity.SPIFFEID, Hint: cfg.Identity.Hint,
		JWTBundles: cfg.Stream.NeedsTokens(),
		Metrics:    registry, Log: log,
	})
	if err != nil {
		return nil, err
	}
	went := newRestores(log)
	store, err := kube.New(kube.Config{
		Client: base.Dynamic, Writes: base.Writes, Watch: watched(cfg.Namespace), Only: watchedOnly(), Metrics: registry, Log: log,
		Restored: went.listed,
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
	tunnels, err := tunnel.NewDialer(tunnel.DialerConfig{
		MaxStreams: cfg.Tunnel.MaxAgentStreams, MaxTotalStreams: cfg.Tunnel.MaxStreams, Quota: room, Metrics: registry, Log: log,
	})
	if err != nil {
		return nil, err
	}
	budgets, err := newBudgets(cfg.Limits, registry)
	if err != nil {
		return nil, err
	}
	agents := &fleet.Registry{}
	sessions := newSessions(replica())
	unknown, err := strangers.New(strangers.Config{Client: base.Dynamic, Namespace: cfg.Namespace, Known: agents.Owns, Metrics: registry, Log: log})
	if err != nil {
		return nil, err
	}
	links := &links{
		cfg: cfg, life: uuid.NewString(), client: base.Dynamic, writes: base.Writes, store: store, schemas: kube.NewDefinitions(base.Dynamic, log), census: kube.NewCensus(store, base.Metadata), witness: kube.NewWitness(store, base.Metadata, log), registry: agents, sessions: sessions,
		cascades: sessions.cascades, budgets: budgets, events: appevents.NewCommon(), quota: room, reads: base.Metadata, metrics: mirrors, tracer: base.Tracer, log: log,
		running: map[identity.AgentName]*runningLink{}, retired: map[types.UID]bool{}, retire: make(chan struct{}, 1),
		noted: keyset.New[identity.AgentName](), judged: keyset.New[identity.AgentName](), restores: went,
	}
	// Nothing is mapped before it is known by what.
	links.hub = newHubState(cfg, base.Dynamic, func(kept hub.Hub) {
		agents.Map(cfg.Owners(kept.Mapping))
		links.owners = newDivision(agents, store)
	}, log)
	watch := &agentWatch{client: base.Dynamic, namespace: cfg.Namespace, registry: agents, note: links.noted.Add, log: log}
	if err := registry.Register(newAgentGauges(watch.all)); err != nil {
		return nil, err
	}
	return &core{
		cfg: cfg, build: build, base: base, hub: links.hub,
		source: source, store: store, agents: agents, sessions: sessions, tunnels: tunnels,
		links: links, quota: room, unknown: unknown, watch: watch,
	}, nil
}

// Run keeps the core up to date until ctx is done.
func (c *core) Run(ctx context.Context, singly *lease.Lease) error {
	c.links.lease = singly
	return together(ctx, c.hub.Run, c.source.Run, c.store.Run, c.links.witness.Run, c.links.schemas.Run, c.hub.then(c.watch.Run), c.unknown.Run, c.links.Run)
}

func (c *core) checks() []admin.Check {
	return []admin.Check{
		{Name: "identity", Ready: c.source.Ready, Degraded: c.source.Degraded},
		{Name: "agents", Ready: c.agents.Ready},
		{Name: "store", Ready: func() error { return synced(c.store) }},
		{Name: "hub", Ready: c.links.identified},
	}
}

func synced(store *kube.Store) error {
	select {
	case <-store.Synced():
		return nil
	default:
		return errors.New("the Applications of the hub are not known yet: its API server has not answered")
	}
}

// dials returns what connects to a service of an agent's spoke.
func (c *core) dials(to stream.Service) func(context.Context, identity.AgentName) (net.Conn, error) {
	return func(ctx context.Context, agent identity.AgentName) (net.Conn, error) {
		return c.tunnels.Dial(ctx, agent, to)
	}
}

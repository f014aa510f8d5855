package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/argomesh/argomesh/stream/tunnel/acceptor"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/backends/adopted"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	"github.com/argomesh/argomesh/cmd/internal/lease"
	"github.com/argomesh/argomesh/cmd/internal/start"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/client"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/stream/tunnel"
)

// withdrawalGrace is how long what our identity opened outlasts its withdrawal: as long
// as connections outlast their peers' proofs.
const withdrawalGrace = 30 * time.Second

// writers bounds the writes to the spoke's API server that are under way: others wait there behind
// each of them. It still makes 400 changes a second where one takes 10 ms, four times what a hub
// may have us write in the long run.
const writers = 4

// uplink is what only one agent of a spoke does at a time: it keeps the
// connection to the principal and mirrors over it, and lets the hub reach services
// of the spoke.
type uplink struct {
	cfg      agentconfig.Config
	build    buildinfo.Info
	base     *start.Base
	source   *workload.Source
	store    *kube.Store
	schemas  *kube.Definitions
	services map[stream.Service]tunnel.Handler // what the hub may reach of this spoke
	mirror   mirror.Config
	history  *historyStore
	active   prometheus.Gauge
	// described is whether we know what the principal is told of the spoke.
	described description

	// Of Run, before the first session, as is mirror.Fence.
	begun  atomic.Bool // client and tunnel are there
	client *client.Client
	tunnel *acceptor.Acceptor
	lease  *lease.Lease
	works  atomic.Bool // a session is under way

	mu   sync.Mutex        // guards what follows
	link *mirror.Mirror    // of this session; the client's runs begin after it is set
	info *stream.SpokeInfo // the newest; nil before the first
}

// newUplink starts nothing.
func newUplink(cfg agentconfig.Config, build buildinfo.Info, base *start.Base, source *workload.Source,
	store *kube.Store) (*uplink, error) {
	metrics, err := linkmetrics.New(base.Metrics)
	if err != nil {
		return nil, err
	}
	room, err := quota.New(base.Metrics)
	if err != nil {
		return nil, err
	}
	writes, err := newBudget(cfg.Limits, cfg.Name, base.Metrics)
	if err != nil {
		return nil, err
	}
	active := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "argomesh_agent_active",
		Help: "1 while this process holds the Lease and works for the agent, 0 while it stands by.",
	})
	if err := base.Metrics.Register(active); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	services, err := newServices(cfg, base)
	if err != nil {
		return nil, err
	}
	history := newHistoryStore(base.Dynamic, cfg.Namespace, writes, base.Log)
	schemas := kube.NewDefinitions(base.Dynamic, base.Log)
	return &uplink{
		cfg: cfg, build: build, base: base, source: source, store: store, schemas: schemas, services: services,
		history: history, active: active,
		mirror: mirror.Config{
			Rules: ownership.Rules{
				Marks: copies.Marks{
					Map: mapping.Map{
						Side: stream.Spoke, Mode: cfg.Mode, Agent: cfg.Name, Namespace: cfg.Namespace, Namespaces: cfg.Mapping.Namespaces,
					},
				},
				Policy: &cfg.Policy,
			},
			Store: makesNamespaces(cfg, store, base.Dynamic), Schemas: schemas, SaveHistory: history.save, Quota: room,
			Budget: writes, Workers: writers, Bounds: cfg.Limits.Bounds(), Metrics: metrics, Tracer: base.Tracer, Log: base.Log,
		},
	}, nil
}

// newServices returns what the hub may reach of this spoke.
func newServices(cfg agentconfig.Config, base *start.Base) (map[stream.Service]tunnel.Handler, error) {
	live, liveErr := newLiveAccess(cfg, base)
	kept, keptErr := newRedisProxy(cfg, base)
	if err := errors.Join(liveErr, keptErr); err != nil {
		return nil, err
	}
	all := map[stream.Service]tunnel.Handler{stream.Kubernetes: live, stream.Redis: kept}
	maps.DeleteFunc(all, func(_ stream.Service, serve tunnel.Handler) bool { return serve == nil })
	return all, nil
}

// Run works whenever it has the Lease only, once all is known that the principal is told, until
// ctx is done.
func (u *uplink) Run(ctx context.Context, only *lease.Lease) error {
	spoke, known := describeSpoke(ctx, u.base.REST, u.base.Dynamic, &u.described, u.base.Log)
	identified := u.source.WaitReady(ctx) == nil
	if !known || !identified || !await(ctx, u.store.Synced()) {
		return nil // ctx is done
	}
	by, err := authenticate(u.cfg.Principal, u.source)
	if err != nil {
		return err
	}
	if u.client, err = client.New(client.Config{
		Target: u.cfg.Principal.Address, Credentials: by.credentials, Mutual: by.Mutual,
		Hello: stream.Hello{
			Protocol: stream.Protocol, Version: u.build.Version, Agent: u.cfg.Name, Mode: u.cfg.Mode,
			ClusterUID: spoke.uid, Kubernetes: spoke.version, Capabilities: capabilities(u.cfg), Process: uuid.NewString(),
		},
		History: u.history.forHello,
		Serve: func(ctx context.Context, w stream.Welcome, conn *client.Conn) error {
			ctx, stop := u.source.While(ctx, withdrawalGrace)
			defer stop()
			return u.serve(ctx, w, conn)
		},
		Updated: u.source.Updated,
		Proves:  by.proves,
		Ready:   u.source.Ready,
		Quota:   u.mirror.Quota, Metrics: u.base.Metrics, Log: u.base.Log,
	}); err != nil {
		return err
	}
	if u.tunnel, err = newTunnel(u.cfg, u.source, by, u.services, u.base.Metrics, u.base.Log); err != nil {
		return err
	}
	u.mirror.Fence = only.Confirm
	u.lease = only
	u.begun.Store(true)
	return only.Run(ctx, u.session)
}

// linkStatus is how this process stands to its principal now.
func (u *uplink) linkStatus() linkStatus {
	s := linkStatus{agent: u.cfg.Name.String(), begun: u.begun.Load()}
	if !s.begun {
		return s
	}
	s.active, s.standby = u.works.Load(), u.lease.Waiting()
	s.failure = u.client.Failure()
	return s
}

// session works until ctx is done. It is called again when the Lease is gained again, and begins
// with nothing of the last one: another agent may have worked since.
func (u *uplink) session(ctx context.Context) error {
	u.history.begin()
	left := budgetStore{client: u.base.Dynamic, namespace: u.cfg.Namespace, budget: u.mirror.Budget, log: u.base.Log}
	if err := u.history.retry(ctx, "cannot read what is left of the hub's budget, retrying",
		func() (bool, error) { return false, left.restore(ctx) }); err != nil {
		return nil // ctx is done
	}
	policy, known := u.history.policy(ctx, u.cfg.Mode, u.cfg.Policy)
	if !known {
		return nil // ctx is done
	}
	cfg := u.mirror
	cfg.Rules.Policy = &policy
	link, err := mirror.New(cfg)
	if err != nil {
		return err
	}
	u.mu.Lock()
	u.link = link
	if u.info != nil {
		link.SetSpokeInfo(*u.info)
	}
	u.mu.Unlock()
	u.active.Set(1)
	defer u.active.Set(0)
	u.works.Store(true)
	defer u.works.Store(false)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return link.Run(ctx) })
	g.Go(func() error { return u.client.Run(ctx) })
	g.Go(func() error { return left.Run(ctx) })
	g.Go(func() error { return u.remains().Run(ctx) })
	g.Go(func() error { return u.tunnel.Run(ctx) })
	said := controllerEvents{client: u.base.Dynamic, namespaces: u.cfg.Mapping.Watched(u.cfg.Namespace),
		report: link.Report, log: u.base.Log}
	g.Go(func() error { return said.Run(ctx) })
	return g.Wait()
}

// remains is what takes away what is kept of adopted objects that are gone.
func (u *uplink) remains() *adopted.Remains {
	return &adopted.Remains{
		Store: u.store, Namespace: u.cfg.Namespace,
		List: kube.SecretsOfType(u.base.Metadata, u.cfg.Namespace, adopted.FoundType), Log: u.base.Log,
	}
}

// setSpokeInfo hands the newest info on the spoke to the link of this and later sessions.
func (u *uplink) setSpokeInfo(info stream.SpokeInfo) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.info = &info
	if u.link != nil {
		u.link.SetSpokeInfo(info)
	}
}

// serve is client.Config.Serve.
func (u *uplink) serve(ctx context.Context, w stream.Welcome, conn *client.Conn) error {
	ctx, stop := u.history.during(ctx)
	defer stop()
	u.mu.Lock()
	link := u.link
	u.mu.Unlock()
	former, inherits := u.history.formerHubs(w.HubUID)
	return link.Serve(ctx, mirror.Peer{
		Connection: w.Connection, HubUID: w.HubUID, FormerHubs: former, Inherits: inherits, Children: w.Children,
		ShowsEvents: w.Capabilities.Has(stream.ShowEvents),
	}, conn)
}

// Command principal is the hub's end of Argomesh. It runs beside Argo CD, takes
// the connections of agents, and mirrors Applications and AppProjects between
// the hub's Kubernetes API and theirs. This package owns its configuration and
// the wiring; what is wired lives in the packages it imports.
//
//	principal --config principal.yaml
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/cmd/internal/admin"
	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/lease"
	"github.com/argomesh/argomesh/cmd/internal/listen"
	"github.com/argomesh/argomesh/cmd/internal/process"
	"github.com/argomesh/argomesh/cmd/internal/start"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/xds"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/stream/tunnel"
)

// leaseName names the Lease under which a hub's singleton controllers run.
const leaseName = "argomesh-principal"

func main() { process.Main("principal", run) }

func run(ctx context.Context, args []string) error {
	build := buildinfo.Read()
	cfg, err := config.Load(config.Program{
		Name:    "principal",
		Summary: "Hub end of Argomesh: takes agents' connections and mirrors Applications.",
		Version: build.String(),
	}, args, Default())
	if err != nil {
		return err
	}
	if err := cfg.Identity.CheckFolder(); err != nil {
		return err
	}
	base, err := start.New(ctx, start.Config{
		Program: "principal", Build: build, Output: os.Stderr,
		Log: cfg.Log, Tracing: cfg.Tracing, Kubernetes: cfg.Kubernetes,
	})
	if err != nil {
		return err
	}
	defer base.Close(ctx)
	log, registry := base.Log, base.Metrics

	source, err := workload.New(workload.Config{
		Socket: cfg.Identity.Socket, SPIFFEID: cfg.Identity.SPIFFEID, Hint: cfg.Identity.Hint,
		JWTBundles: cfg.Stream.needsTokens(),
		Metrics:    registry, Log: log,
	})
	if err != nil {
		return err
	}
	store, err := kube.New(kube.Config{
		Client: base.Dynamic, Watch: watched(cfg.Namespace), Only: watchedOnly(), Metrics: registry, Log: log,
	})
	if err != nil {
		return err
	}
	agents := &fleet.Registry{Mapping: mappingOf(cfg)}
	watch := &agentWatch{client: base.Dynamic, namespace: cfg.Namespace, registry: agents, log: log}
	sessions := newSessions(cfg.replica())
	mirrors, err := mirror.NewMetrics(registry)
	if err != nil {
		return err
	}
	links := &links{
		cfg: cfg, client: base.Dynamic, store: store, registry: agents, owners: newOwnership(agents, store), sessions: sessions,
		metrics: mirrors, tracer: base.Tracer, log: log,
		running: map[identity.AgentName]*runningLink{}, retired: map[types.UID]bool{}, retire: make(chan struct{}, 1),
	}
	envoy, err := xds.New(xds.Config{NodeID: cfg.Envoy.NodeID, Metrics: registry, Log: log})
	if err != nil {
		return err
	}
	var taken func(keyID string) bool
	if cfg.Envoy.Listen != "" {
		taken = acknowledged(envoy)
	}
	credentials, err := newLiveCredentials(cfg, base, source, taken)
	if err != nil {
		return err
	}
	agentController, err := controller.New(controller.Config{
		Client: base.Dynamic, Namespace: cfg.Namespace, ProxyURL: cfg.ResourceProxy.URL,
		ClusterConfig: credentials.config, ConfigChanged: credentials.changed,
		Sessions: sessions, Depart: links.depart, Metrics: registry, Log: log,
	})
	if err != nil {
		return err
	}
	meshPolicy, err := newMeshPolicy(cfg, base.Dynamic, agents, registry, log)
	if err != nil {
		return err
	}
	showClusters, err := clusterInfoWriter(cfg, clusterSessions{sessions: sessions, registry: agents}, registry, log)
	if err != nil {
		return err
	}
	tunnels, err := tunnel.NewDialer(tunnel.DialerConfig{
		MaxStreams: cfg.Tunnel.MaxAgentStreams, MaxTotalStreams: cfg.Tunnel.MaxStreams, Metrics: registry, Log: log,
	})
	if err != nil {
		return err
	}
	projects := &mirror.Projects{Store: store, Namespace: cfg.Namespace, Log: log}
	door := &frontDoor{cfg: cfg.Envoy, gateways: cfg.Stream.trusts(cfg.Envoy.StreamUpstream), self: svidID(source), registry: agents, server: envoy, log: log}
	live := func(context.Context) error { return nil }
	if cfg.ResourceProxy.Listen != "" {
		l, err := newLiveAccess(ctx, liveConfig{
			cfg: cfg.ResourceProxy, redis: cfg.Redis, name: cfg.replica(), build: build, base: base, agents: agents, tokens: credentials.keys,
			dial: func(ctx context.Context, to identity.AgentName) (net.Conn, error) {
				return tunnels.Dial(ctx, to, stream.Kubernetes)
			},
		})
		if err != nil {
			return err
		}
		live = l.Run
		if door.upstream, err = mesh.ParseAddress(cfg.ResourceProxy.Listen); err != nil {
			return fmt.Errorf("resource_proxy.listen: %w", err)
		}
		door.tokens = publishedTokens(credentials.keys)
	}
	showRedis := func(context.Context) error { return nil }
	if cfg.RedisProxy.Listen != "" {
		if showRedis, err = newRedisProxy(ctx, redisConfig{
			cfg: cfg.RedisProxy, redis: cfg.Redis, metrics: registry, log: log,
			owners: owners{registry: agents, store: store, namespace: cfg.Namespace, rules: links.rulesOf},
			found:  sessions.found,
			dial: func(ctx context.Context, to identity.AgentName) (net.Conn, error) {
				return tunnels.Dial(ctx, to, stream.Redis)
			},
		}); err != nil {
			return err
		}
		if door.redis, err = mesh.ParseAddress(cfg.RedisProxy.Listen); err != nil {
			return fmt.Errorf("redis_proxy.listen: %w", err)
		}
	}
	checks := []admin.Check{
		{Name: "identity", Ready: source.Ready, Degraded: source.Degraded},
		{Name: "agents", Ready: agents.Ready},
		{Name: "store", Ready: func() error { return synced(store) }},
		// Agents are served whatever becomes of the keys.
		{Name: "token keys", Ready: func() error { return nil }, Degraded: credentials.unusable},
	}
	push := func(context.Context) error { return nil }
	pusher, err := newBundlePusher(cfg.SPIRE, source, registry, log)
	if err != nil {
		return err
	}
	if pusher != nil {
		push = pusher.Run
		checks = append(checks, admin.Check{Name: "spire", Ready: func() error { return nil }, Degraded: pusher.Degraded})
	}
	adminServer, err := admin.New(admin.Config{Checks: checks, Metrics: registry, Log: log})
	if err != nil {
		return err
	}

	// Listeners first: an address that cannot be had ends the start at once.
	adminListener, err := listen.Open(ctx, "admin.listen", cfg.Admin.Listen)
	if err != nil {
		return err
	}
	streamListeners, err := cfg.Stream.open(ctx, source, log)
	if err != nil {
		_ = adminListener.Close() // never served
		return err
	}
	singletons, err := lease.New(lease.Config{
		Leases: base.Leases, Namespace: cfg.Namespace, Name: leaseName,
		Holder: cfg.replica() + "/" + streamListeners[0].Addr().String(), // the same again after a restart
		Log:    log,
	})
	if err != nil {
		return errors.Join(err, adminListener.Close(), closeAll(streamListeners))
	}
	log.Info().Str("version", build.Version).Msg("principal starts")

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return adminServer.Run(ctx, adminListener) })
	g.Go(func() error { return source.Run(ctx) })
	g.Go(func() error { return store.Run(ctx) })
	g.Go(func() error { return watch.Run(ctx) })
	g.Go(func() error {
		return singletons.Run(ctx, func(ctx context.Context) error {
			g, ctx := errgroup.WithContext(ctx)
			g.Go(func() error { return agentController.Run(ctx) })
			g.Go(func() error { return projects.Run(ctx) })
			g.Go(func() error { return meshPolicy.Run(ctx) })
			g.Go(func() error { return showClusters(ctx) })
			g.Go(func() error { return credentials.rotate(ctx) })
			g.Go(func() error { return push(ctx) })
			return g.Wait()
		})
	})
	g.Go(func() error { return credentials.run(ctx) })
	g.Go(func() error { return live(ctx) })
	g.Go(func() error { return showRedis(ctx) })
	g.Go(func() error { return links.Run(ctx) })
	g.Go(func() error { return door.Run(ctx) })
	if credentials.keys != nil {
		g.Go(func() error { return tellAcknowledged(ctx, envoy, credentials.keys) })
	}
	g.Go(func() error {
		hub, known := hubUID(ctx, base.Dynamic, cfg.Namespace, log)
		if !known {
			return closeAll(streamListeners) // ctx is done
		}
		links.hub.Store(&hub)
		srv, err := server.New(server.Config{
			Credentials:  source.ServerCredentials(log),
			Authenticate: workload.PeerFromContext,
			Registry:     admission{agents},
			Withdrawn:    source.Withdrawn, Updated: source.Updated,
			Serve:    links.serve,
			Opened:   sessions.open,
			Renewed:  sessions.renewed,
			Register: tunnels.Register,
			HubUID:   hub, Version: build.Version, Capabilities: stream.NewCapabilities(stream.WriteCredentials),
			MaxConnections: cfg.Stream.MaxConnections,
			Metrics:        registry, Log: log,
		})
		if err != nil {
			return err
		}
		return srv.Run(ctx, streamListeners...)
	})
	return g.Wait()
}

func synced(store *kube.Store) error {
	select {
	case <-store.Synced():
		return nil
	default:
		return fmt.Errorf("the Applications of the hub are not known yet: its API server has not answered")
	}
}

// admission is the registry as the stream server asks it.
type admission struct{ *fleet.Registry }

func (a admission) Admit(peer identity.Peer) (server.Agent, error) {
	agent, err := a.Registry.Admit(peer)
	if err != nil {
		return server.Agent{}, err
	}
	return server.Agent{Name: agent.Name, Mode: modeOf(agent.Mode), Children: agent.Children}, nil
}

func modeOf(m v1alpha1.AgentMode) stream.Mode {
	if m == v1alpha1.ModeAutonomous {
		return stream.Autonomous
	}
	return stream.Managed
}

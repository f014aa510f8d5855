// Command agent is a spoke's end of Argomesh. It runs beside an Argo CD
// application controller, dials its principal, and mirrors Applications and
// AppProjects between the two Kubernetes APIs, and takes credentials of repositories,
// keys and certificates from the hub. This package owns its
// configuration and the wiring; what is wired lives in the packages it imports.
//
//	agent --config agent.yaml
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/cmd/internal/admin"
	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/lease"
	"github.com/argomesh/argomesh/cmd/internal/listen"
	"github.com/argomesh/argomesh/cmd/internal/process"
	"github.com/argomesh/argomesh/cmd/internal/start"
	"github.com/argomesh/argomesh/identity/inspect"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
)

func main() { process.Main("agent", run) }

func run(ctx context.Context, args []string) error {
	build := buildinfo.Read()
	cfg, err := config.Load(config.Program{
		Name:    "agent",
		Summary: "Spoke end of Argomesh: dials its principal and mirrors Applications.",
		Version: build.String(),
	}, args, agentconfig.Default())
	if err != nil {
		return err
	}
	if err := cfg.Identity.CheckFolder(); err != nil {
		return err
	}
	leaveProcessors()
	base, err := start.New(ctx, start.Config{
		Program: "agent", Build: build, Output: os.Stderr,
		Fields: func(c zerolog.Context) zerolog.Context { return c.Stringer("agent", cfg.Name) },
		Log:    cfg.Log, Tracing: cfg.Tracing, Kubernetes: cfg.Kubernetes,
	})
	if err != nil {
		return err
	}
	defer base.Close(ctx)
	a, err := newAgent(cfg, build, base)
	if err != nil {
		return err
	}
	adminServer, err := admin.New(admin.Config{
		Checks: a.checks(), Identity: a.identity, Metrics: base.Metrics, Log: base.Log,
	})
	if err != nil {
		return err
	}
	adminListener, err := listen.Open(ctx, "admin.listen", cfg.Admin.Listen)
	if err != nil {
		return err
	}
	only, err := lease.New(lease.Config{
		Leases: base.Leases, Namespace: cfg.Namespace, Name: leaseName,
		Holder: holder(adminListener.Addr()), Log: base.Log,
	})
	if err != nil {
		return errors.Join(err, adminListener.Close())
	}
	base.Log.Info().Stringer("mode", cfg.Mode).Str("version", build.Version).Msg("agent starts")

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return adminServer.Run(ctx, adminListener) })
	g.Go(func() error { return a.run(ctx, only) })
	return g.Wait()
}

// parts are what an agent is made of.
type parts struct {
	source     *workload.Source
	peers      []spiffeid.TrustDomain // of whom it has to trust
	store      *kube.Store
	uplink     *uplink
	reportInfo func(context.Context) error
}

// newAgent starts nothing.
func newAgent(cfg agentconfig.Config, build buildinfo.Info, base *start.Base) (*parts, error) {
	log, registry := base.Log, base.Metrics
	source, err := workload.New(workload.Config{
		Socket: cfg.Identity.Socket, SPIFFEID: cfg.Identity.SPIFFEID, Hint: cfg.Identity.Hint,
		JWTBundles: cfg.Principal.NeedsProof(),
		Metrics:    registry, Log: log,
	})
	if err != nil {
		return nil, err
	}
	watch, selectors := watched(cfg)
	store, err := kube.New(kube.Config{Client: base.Dynamic, Writes: base.Writes, Watch: watch, Only: selectors,
		Metrics: registry, Log: log})
	if err != nil {
		return nil, err
	}
	u, err := newUplink(cfg, build, base, source, store)
	if err != nil {
		return nil, err
	}
	tellInfo, err := spokeInfo(cfg, store.Synced(), func() int {
		return len(store.List(stream.Application, "")) // of all namespaces that it watches
	}, u.setSpokeInfo, registry, log)
	if err != nil {
		return nil, err
	}
	return &parts{
		source: source, peers: cfg.Principal.TrustDomains(), store: store, uplink: u, reportInfo: tellInfo,
	}, nil
}

// identity says of our SVID, and of the bundles that we need, how they are.
func (a *parts) identity() any {
	svid, jwt := a.source.Held()
	return inspect.DiagnoseHeld(svid, jwt, a.peers, time.Now())
}

func (a *parts) checks() []admin.Check {
	return []admin.Check{
		{Name: "identity", Ready: a.source.Ready, Degraded: a.source.Degraded},
		{Name: "store", Ready: func() error { return synced(a.store) }},
		{Name: "spoke", Ready: a.uplink.described.ready},
		{
			Name: "principal", Ready: func() error { return a.uplink.linkStatus().ready() },
			Degraded: func() error { return a.uplink.linkStatus().degraded() },
		},
	}
}

// run runs them until ctx is done. only is the Lease of the spoke, held or not.
func (a *parts) run(ctx context.Context, only *lease.Lease) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.source.Run(ctx) })
	g.Go(func() error { return a.store.Run(ctx) })
	g.Go(func() error { return a.uplink.schemas.Run(ctx) })
	g.Go(func() error { return a.reportInfo(ctx) })
	g.Go(func() error { return a.uplink.Run(ctx, only) })
	return g.Wait()
}

// leaseName names the Lease under which one of a spoke's agents works; the others
// stand by, ready and with synced caches.
const leaseName = agentconfig.Name

// holder names this process among the agents of the spoke, by the same name again
// after a restart.
func holder(admin net.Addr) string {
	name, err := os.Hostname()
	if err != nil {
		name = "agent"
	}
	return name + "/" + admin.String()
}

func synced(store *kube.Store) error {
	select {
	case <-store.Synced():
		return nil
	default:
		return fmt.Errorf("the Applications of the spoke are not known yet: its API server has not answered")
	}
}

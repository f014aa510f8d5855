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
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/lease"
	"github.com/argomesh/argomesh/cmd/internal/listen"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/cmd/internal/process"
	"github.com/argomesh/argomesh/cmd/internal/start"
)

// leaseName names the Lease under which a hub's singleton controllers run.
const leaseName = "argomesh-principal"

func main() { process.Main("principal", run) }

func run(ctx context.Context, args []string) error {
	build := buildinfo.Read()
	cfg, err := load(build, args)
	if err != nil {
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
	c, err := newHubCore(cfg, build, base)
	if err != nil {
		return err
	}
	f, err := newProxies(ctx, c)
	if err != nil {
		return err
	}
	once, err := newLeaderTasks(c, f)
	if err != nil {
		return err
	}
	status, err := c.admin(f.checks(), once.checks)
	if err != nil {
		return err
	}

	// Listeners first: an address that cannot be had ends the start at once.
	adminListener, err := listen.Open(ctx, "admin.listen", cfg.Admin.Listen)
	if err != nil {
		return err
	}
	streamListeners, err := openListeners(ctx, cfg.Stream, c.source, base.Log)
	if err != nil {
		_ = adminListener.Close() // never served
		return err
	}
	singly, err := lease.New(lease.Config{
		Leases: base.Leases, Namespace: cfg.Namespace, Name: leaseName,
		Holder: replica() + "/" + streamListeners[0].Addr().String(), // the same again after a restart
		Log:    base.Log, Restored: c.restores.Written,
	})
	if err != nil {
		return errors.Join(err, adminListener.Close(), closeAll(streamListeners))
	}
	base.Log.Info().Str("version", build.Version).Msg("principal starts")
	return together(ctx,
		func(ctx context.Context) error { return status.Run(ctx, adminListener) },
		func(ctx context.Context) error { return c.Run(ctx, singly) },
		f.Run,
		func(ctx context.Context) error { return singly.Run(ctx, once.Run) },
		func(ctx context.Context) error { return c.serveAgents(ctx, streamListeners) },
	)
}

// load reads the configuration, and checks what it names.
func load(build buildinfo.Info, args []string) (principalconfig.Config, error) {
	cfg, err := config.Load(config.Program{
		Name:    "principal",
		Summary: "Hub end of Argomesh: takes agents' connections and mirrors Applications.",
		Version: build.String(),
	}, args, principalconfig.Default())
	if err != nil {
		return cfg, err
	}
	return cfg, cfg.Identity.CheckFolder()
}

// together runs parts until all have ended; when one fails, the others are told to end
// too.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range parts {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/argomesh/argomesh/proxies/resource/replies"

	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/cmd/internal/argoredis"
	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/listen"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/cmd/internal/start"
	"github.com/argomesh/argomesh/cmd/internal/telemetry"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/live"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/proxies/resource"
)

// liveAccess is the hub's end of the live Kubernetes API of spokes, with its audit.
type liveAccess struct {
	hub      *resource.Hub
	audit    *audit.Log
	listener net.Listener
	// closers are closed when all has ended, the last one first.
	closers []func() error
}

// liveConfig holds what live access is made of.
type liveConfig struct {
	cfg    principalconfig.ResourceProxy
	redis  config.Redis // keeps last known replies; without an address memory alone does
	name   string       // of this process
	build  buildinfo.Info
	base   *start.Base
	agents *fleet.Registry
	tokens resource.Verifier
	dial   func(context.Context, identity.AgentName) (net.Conn, error)
	// objects knows objects of spokes that are away; nil for none.
	objects resource.LastObjects
}

// flushTime bounds the export of the last records.
const flushTime = 5 * time.Second

// newLiveAccess opens its socket and the audit's file, and starts nothing.
func newLiveAccess(ctx context.Context, c liveConfig) (_ *liveAccess, err error) {
	l := &liveAccess{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	log, registry := c.base.Log, c.base.Metrics
	lines, err := l.open(c.cfg.Audit.File)
	if err != nil {
		return nil, err
	}
	records, err := telemetry.NewRecords(ctx, telemetry.RecordsConfig{
		Endpoint: c.cfg.Audit.OTLPEndpoint, Insecure: c.cfg.Audit.Insecure, Service: "argomesh-principal", Build: c.build,
		Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("resource_proxy.audit.otlp_endpoint: %w", err)
	}
	l.closers = append(l.closers, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		return records.Shutdown(ctx)
	})
	if l.audit, err = audit.New(audit.Config{
		Process: c.name, Writer: lines, Provider: records.Provider, Metrics: registry, Log: log,
	}); err != nil {
		return nil, err
	}
	settings := replies.Config{MaxBytes: c.cfg.LastKnownBytes, Metrics: registry, Log: log}
	if c.redis.Address != "" {
		client := argoredis.Open(c.redis)
		l.closers = append(l.closers, client.Close)
		settings.Store = client.OwnerCaches("argomesh|reply|", replies.KeptBytes, replies.KeptFor)
	}
	known, err := replies.New(settings)
	if err != nil {
		return nil, err
	}
	if l.hub, err = resource.NewHub(resource.HubConfig{
		Dial: c.dial, Tokens: c.tokens, Agents: live.NewReachable(c.agents, log), Audit: l.audit, Replies: known,
		Objects: c.objects,
		Tracer:  c.base.Tracer, Metrics: registry, Log: log,
		MaxCalls: c.cfg.MaxCalls, MaxCallsPerAgent: c.cfg.MaxAgentCalls,
	}); err != nil {
		return nil, err
	}
	if l.listener, err = listen.Open(ctx, "resource_proxy.listen", c.cfg.Listen); err != nil {
		return nil, err
	}
	return l, nil
}

// open returns what lines of the audit are written to; nil for nothing.
func (l *liveAccess) open(path string) (io.Writer, error) {
	switch path {
	case "":
		return nil, nil //nolint:nilnil // documented
	case principalconfig.StandardOutput:
		return os.Stdout, nil
	}
	file, err := audit.OpenFile(path)
	if err != nil {
		return nil, fmt.Errorf("resource_proxy.audit.file: %w", err)
	}
	l.closers = append(l.closers, file.Close)
	return file, nil
}

// Run serves until ctx is done, and writes the records of the last calls after they
// have ended.
func (l *liveAccess) Run(ctx context.Context) error {
	recording, ended := context.WithCancel(context.WithoutCancel(ctx))
	defer ended()
	var g errgroup.Group
	g.Go(func() error { return l.audit.Run(recording) })
	g.Go(func() error {
		defer ended()
		return l.hub.Run(ctx, l.listener)
	})
	return errors.Join(g.Wait(), l.close())
}

// close gives back what newLiveAccess opened, but for the listener that Run closes.
func (l *liveAccess) close() error {
	var problems []error
	for i := len(l.closers) - 1; i >= 0; i-- {
		problems = append(problems, l.closers[i]())
	}
	return errors.Join(problems...)
}

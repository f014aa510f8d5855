//go:build linux

package main

import (
	"context"
	"errors"
	"time"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/test/harness"
)

// realPair is a pair of our programs on real API servers.
type realPair struct {
	*benchEnv
	load *load
}

func startRealPair(ctx context.Context, b *bench) (*realPair, error) {
	w, err := startBenchEnv(ctx, b, true)
	if err != nil {
		return nil, err
	}
	l, err := newLoad(ctx, w)
	if err != nil {
		return nil, errors.Join(err, w.close(ctx, true))
	}
	return &realPair{w, l}, nil
}

// startLargePair is startRealPair with the limits of a large hub for the agent.
func startLargePair(ctx context.Context, b *bench) (*realPair, error) {
	p, err := startRealPair(ctx, b)
	if err != nil {
		return nil, err
	}
	agents := p.hub.Resource(v1alpha1.AgentResource, harness.ArgoCDNamespace)
	if err := merge(ctx, agents, edge, map[string]any{"spec": map[string]any{"limits": largeAgent()}}); err != nil {
		return nil, errors.Join(err, p.close(ctx, true))
	}
	return p, nil
}

func (p *realPair) fill(ctx context.Context, apps []string) (created, shown time.Duration, err error) {
	if created, err = p.load.createAll(ctx, apps); err != nil {
		return 0, 0, err
	}
	shown, err = p.load.statusAll(ctx, apps)
	return created, shown, err
}

func (p *realPair) traffic() *traffic { return p.network.traffic }
func (p *realPair) sever()            { p.network.Sever() }

func (p *realPair) close(ctx context.Context, failed bool) error {
	p.load.close()
	return p.benchEnv.close(ctx, failed)
}

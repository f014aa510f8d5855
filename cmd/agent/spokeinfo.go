package main

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/cmd/internal/argoredis"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/fleet/clusterinfo"
	"github.com/argomesh/argomesh/stream"
)

const (
	// countInterval is how often the Applications of the spoke are counted.
	countInterval = time.Second
	// reportInterval is how far apart two messages to the hub are: with the time it
	// takes to be found out here and to be written there, a change is on the hub
	// within 10 s.
	reportInterval = 5 * time.Second
)

// spokeInfo returns what reports the spoke's Argo CD to the hub, by notify, until its
// context is done. The Applications are those that count returns, once synced is
// closed; what Argo CD's cluster cache holds is in its Redis, and unknown without
// an address of that, which the log says.
func spokeInfo(cfg agentconfig.Config, synced <-chan struct{}, count func() int, notify func(stream.SpokeInfo),
	registry prometheus.Registerer, log zerolog.Logger) (run func(context.Context) error, err error) {
	t := infoReporter{synced: synced, count: count, notify: notify,
		cache: func() stream.SpokeInfo { return stream.SpokeInfo{} }}
	if cfg.Redis.Address == "" {
		log.Info().Msg("redis.address is not set, so the hub does not show what Argo CD's cluster cache holds")
		return t.run, nil
	}
	reader, err := clusterinfo.NewReader(clusterinfo.ReaderConfig{
		Source:  argoredis.Open(cfg.Redis),
		Format:  clusterinfo.Format{Version: cfg.Redis.CacheVersion, Plain: cfg.Redis.Compression == config.CompressionNone},
		Metrics: registry, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("redis of the spoke: %w", err)
	}
	t.cache = func() stream.SpokeInfo {
		info, _ := reader.Latest()
		return info
	}
	return func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return reader.Run(ctx) })
		g.Go(func() error {
			if !await(ctx, reader.Tried()) { // else the hub would see the cache go and come back
				return nil
			}
			return t.run(ctx)
		})
		return g.Wait()
	}, nil
}

// infoReporter brings together what is known of the spoke's Argo CD, and reports it when
// it has changed.
type infoReporter struct {
	synced <-chan struct{}
	count  func() int
	cache  func() stream.SpokeInfo
	notify func(stream.SpokeInfo)
}

func (t infoReporter) run(ctx context.Context) error {
	if !await(ctx, t.synced) {
		return nil
	}
	var reported *stream.SpokeInfo
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		info := t.cache()
		// Not Argo CD's own number, which is up to 10 s older.
		info.Applications = int64(t.count())
		timer.Reset(countInterval)
		if reported == nil || *reported != info {
			reported = &info
			t.notify(info)
			timer.Reset(reportInterval)
		}
	}
}

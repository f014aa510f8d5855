package controller

import (
	"context"
	"sync"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/argomesh/argomesh/identity"
)

func (l *loop) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer l.queue.ShutDown()
	defer cancel()
	forget := l.cfg.Sessions.Subscribe(func(name identity.AgentName) { l.queue.Add(name.String()) })
	defer forget()
	running.Go(func() { l.agents.Run(ctx) })
	running.Go(func() { l.secrets.Run(ctx) })
	for _, listed := range []<-chan struct{}{l.agents.Listed(), l.secrets.Listed()} {
		select {
		case <-listed:
		case <-ctx.Done():
			return nil // stopped before the API server answered
		}
	}
	l.synced(true)
	defer l.synced(false)
	running.Go(func() { l.watchConfig(ctx) })
	for range workers {
		running.Go(func() { l.work(ctx) })
	}
	<-ctx.Done()
	return nil
}

// watchConfig looks at every Agent whenever the configs of cluster Secrets may be
// others.
func (l *loop) watchConfig(ctx context.Context) {
	for changed := l.cfg.ConfigChanged(); ; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		changed = l.cfg.ConfigChanged() // before the looks, so that no change is missed
		for _, name := range l.agents.Names() {
			l.queue.Add(name)
		}
	}
}

func (l *loop) work(ctx context.Context) {
	for {
		name, shutdown := l.queue.Get()
		if shutdown {
			return
		}
		l.pass(ctx, name)
		l.queue.Done(name)
	}
}

func (l *loop) pass(ctx context.Context, name string) {
	if ctx.Err() != nil {
		return
	}
	again, err := l.reconcile(ctx, name)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		l.metrics.reconciles.WithLabelValues(resultError).Inc()
		level := zerolog.DebugLevel
		if l.queue.NumRequeues(name) == 0 && !apierrors.IsConflict(err) {
			level = zerolog.WarnLevel // once, not at every attempt; a conflict is someone being faster
		}
		l.log.WithLevel(level).Err(err).Str("agent", name).Msg("agent not reconciled, retrying")
		l.queue.AddRateLimited(name)
	default:
		l.metrics.reconciles.WithLabelValues(resultOK).Inc()
		l.queue.Forget(name)
		if again > 0 {
			l.queue.AddAfter(name, again)
		}
	}
}

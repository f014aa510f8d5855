// Package worker does the work on objects: it plans by the rules for what came of one object, and
// carries the plan out, until it went through or something newer takes its place.
package worker

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/quota"
)

// Config holds what a Worker needs. Fields without a stated default are required.
type Config struct {
	// Agent is on whose account it works, and Hub says on which side.
	Agent identity.AgentName
	Hub   bool
	Store backends.Store
	// Fence says whether this process is still the one that may write. Nil means that it is.
	Fence func(ctx context.Context) error
	// Ends are those of copies, on a spoke.
	Ends  *Ends
	Quota *quota.Quota
	Now   func() time.Time
	// Applied is told of each event that was worked on, and how long that took.
	Applied func(c stream.Collection, took time.Duration)
	Tracer  trace.Tracer
	Log     zerolog.Logger
	// Sampled is Log for what may befall thousands of objects at once.
	Sampled zerolog.Logger
}

// Worker does the work on objects. Its methods may be called concurrently, for different
// objects.
type Worker struct{ cfg Config }

// New starts nothing.
func New(cfg Config) *Worker { return &Worker{cfg: cfg} }

// Do does one task, when there is room for it. Its error is that of ctx.
func (k *Worker) Do(ctx context.Context, t Task) (Outcome, error) {
	release, err := k.cfg.Quota.Acquire(ctx, k.cfg.Agent, quota.Working, object.Weigh(t.Current, t.Events))
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	return k.perform(ctx, t), nil
}

// Compute begins to compute on account of the peer. A spoke has no peer but its hub, that
// could be in another one's way.
func (k *Worker) Compute() quota.Computation {
	if !k.cfg.Hub {
		return quota.Computation{}
	}
	return k.cfg.Quota.Compute(k.cfg.Agent)
}

func (k *Worker) perform(ctx context.Context, t Task) Outcome {
	w := &writer{worker: k, task: t, current: t.Current, parsed: t.Parsed}
	w.computing = k.Compute()
	defer func() { w.computing.End() }()
	if t.Verify {
		if err := w.wait(func() error { return w.read(ctx) }); err != nil {
			w.worker.cfg.Log.Debug().Err(err).Stringer("resource", t.Key).Msg("cannot verify a write, retrying")
		}
	}
	// In the order in which a source sends: the Application before its command.
	for _, c := range stream.Collections() {
		for key, e := range t.Events {
			if key.Collection == c && t.obsolete(key) == "" {
				w.apply(ctx, e)
			}
		}
	}
	if t.Update {
		w.updateHub(ctx)
	}
	w.out.Key, w.out.Object, w.out.Parsed, w.out.Schemas = t.Key, w.current, w.parsed, t.Rules.Schemas
	if w.current != nil {
		w.out.UID = w.current.UID
	} else if t.Current != nil {
		w.out.UID = t.Current.UID
	}
	return w.out
}

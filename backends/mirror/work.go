package mirror

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// task is the work on one object, given to a worker.
type task struct {
	key       stream.ResourceKey
	rules     Rules
	current   *backends.Object
	parsed    *object // current, if somebody decoded it
	events    map[stream.EntryKey]stream.Event
	tend      bool
	situation Situation
	verify    bool
	asked     Requests
	// withdrawn is closed when no more may be begun of the events.
	withdrawn <-chan struct{}
}

// outcome is what became of a task.
type outcome struct {
	key     stream.ResourceKey
	results []result
	known   bool             // the API server told what the object is now
	object  *backends.Object // as far as known; nil when it is gone
	parsed  *object          // object, if somebody decoded it
	uid     string
	cause   trace.SpanContext
	failed  bool // upkeep was needed and not done
	pruned  []string
}

type result struct {
	event stream.Event
	held  stream.Version
	reply *Reply // nil when there is none to keep
	// implied says that the object tells by itself what a Reply would: one of before
	// is obsolete.
	implied bool
	refusal *stream.Refusal
}

// attempts bounds how often a worker reads and plans again after a conflict
// before it gives the entry back to be parked.
const attempts = 5

// work does one task and reports to the loop, unless that has ended.
func (m *Mirror) work(ctx context.Context, t task) {
	o := m.perform(ctx, t)
	select {
	case m.results <- o:
	case <-ctx.Done():
	}
}

func (m *Mirror) perform(ctx context.Context, t task) outcome {
	w := &writer{m: m, task: t, current: t.current, parsed: t.parsed}
	if t.verify {
		if err := w.read(ctx); err != nil {
			w.m.cfg.Log.Debug().Err(err).Stringer("resource", t.key).Msg("cannot verify a write, trying again")
		}
	}
	// In the order in which a source sends: the Application before its command.
	for _, c := range stream.Collections() {
		for key, e := range t.events {
			if key.Collection == c && !closed(t.withdrawn) {
				w.apply(ctx, e)
			}
		}
	}
	if t.tend {
		w.tend(ctx)
	}
	w.out.key, w.out.object, w.out.parsed = t.key, w.current, w.parsed
	if w.current != nil {
		w.out.uid = w.current.UID
	} else if t.current != nil {
		w.out.uid = t.current.UID
	}
	return w.out
}

// writer carries out the plans for one object, one after the other.
type writer struct {
	m       *Mirror
	task    task
	current *backends.Object
	parsed  *object // current, once somebody decoded it; plans do not change it
	wrote   []byte  // by the last Create or Update
	out     outcome
}

// see notes what the object is now; nil for gone.
func (w *writer) see(o *backends.Object) { w.current, w.parsed = o, nil }

// object is the current object decoded; nil when there is none.
func (w *writer) object() (*object, error) {
	if w.parsed == nil && w.current != nil {
		o, err := parseObject(*w.current)
		if err != nil {
			return nil, err
		}
		w.parsed = &o
	}
	return w.parsed, nil
}

func (w *writer) apply(ctx context.Context, e stream.Event) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": e.TraceParent})
	ctx, span := w.m.cfg.Tracer.Start(ctx, "mirror.apply", trace.WithAttributes(
		attribute.String("argomesh.resource", e.Key.String()), attribute.Stringer("argomesh.agent", w.task.rules.Agent)))
	defer span.End()
	started := time.Now()
	rules, c := w.task.rules, e.Key.Collection
	r := result{event: e}
	wrote, refusal, err := w.execute(ctx, func(current *object) ([]Write, *stream.Refusal) {
		if closed(w.task.withdrawn) { // during an attempt that met a conflict
			return nil, &stream.Refusal{Kind: stream.RefusalUnavailable, Message: "the connection has ended"}
		}
		return rules.Plan(e, w.task.key, current, w.task.asked)
	})
	switch {
	case err != nil:
		r.refusal = &stream.Refusal{Kind: stream.RefusalKindOf(err), Message: w.explain(err)}
		if w.task.key.Kind != stream.Secret { // of which an API server may quote
			span.RecordError(err)
		}
		span.SetStatus(codes.Error, string(r.refusal.Kind))
	case refusal != nil:
		r.refusal = refusal
		span.SetStatus(codes.Error, string(refusal.Kind))
	}
	if w.current != nil {
		if parsed, err := w.object(); err == nil {
			o := *parsed
			if r.refusal == nil && e.Verb == stream.Apply && c != stream.Commands && rules.uidIn(c, o) == e.Version.SourceUID {
				if rec, _ := recordOf(o); c == stream.Statuses && rules.unsendable(o) == "" || c != stream.Statuses && rec.Hash == e.Version.Hash.String() {
					reply := rules.replyOf(c, e.Version, o)
					r.reply = &reply
					if wrote && c != stream.Statuses && reply.Local.String() != rec.Wrote {
						w.out.pruned = pruned(specOf(w.wrote), o.fields["spec"])
					}
				}
			}
			if r.refusal == nil && e.Verb == stream.Delete && c == stream.Statuses {
				// The last status stays to be seen, but it is no longer the spoke's.
				r.reply = &Reply{Local: rules.local(c, o)}
			}
			r.held = rules.Held(c, o, nil)
			if r.implied = r.reply != nil && !r.held.Absent() && r.reply.Version == r.held; r.implied {
				r.reply = nil
			} else if r.reply != nil {
				r.held = rules.Held(c, o, r.reply)
			}
			if c == stream.Applications && rules.takenDown(o) {
				w.m.cfg.Log.Warn().Stringer("resource", w.task.key).Msg("application is deleted on the spoke together with its workloads, restoring it afterwards")
			}
		}
	}
	if wrote {
		w.out.cause = span.SpanContext()
	}
	w.out.results = append(w.out.results, r)
	w.m.cfg.Metrics.applied(c, time.Since(started))
}

func (w *writer) tend(ctx context.Context) {
	// The condition for this write was computed from the object; whatever comes in
	// between, the loop looks at the object again afterwards.
	_, _, err := w.execute(ctx, func(current *object) ([]Write, *stream.Refusal) {
		if current == nil || w.task.current == nil || current.uid() != w.task.current.UID {
			return nil, nil // not the object that the situation is about
		}
		raw, needed := w.task.rules.Tend(*current, w.task.situation)
		if !needed {
			return nil, nil
		}
		return []Write{{Op: Update, Raw: raw}}, nil
	})
	if err != nil {
		w.out.failed = true
		w.m.log.Warn().Err(err).Stringer("resource", w.task.key).Msg("upkeep of an object failed, trying again")
	}
}

// execute plans and writes until a plan went through. It reports whether
// anything was written.
func (w *writer) execute(ctx context.Context, plan func(*object) ([]Write, *stream.Refusal)) (wrote bool, refusal *stream.Refusal, err error) {
	for range attempts {
		current, perr := w.object()
		if perr != nil {
			return wrote, nil, perr
		}
		writes, refusal := plan(current)
		if len(writes) == 0 {
			return wrote, refusal, nil
		}
		if err = w.carryOut(ctx, writes); err == nil {
			return true, refusal, nil
		}
		if !errors.Is(err, stream.ErrConflict) && !errors.Is(err, stream.ErrNotFound) {
			return wrote, nil, err
		}
		if rerr := w.read(ctx); rerr != nil {
			return wrote, nil, rerr
		}
	}
	return wrote, nil, err
}

func (w *writer) carryOut(ctx context.Context, writes []Write) error {
	store := w.m.cfg.Store
	for _, write := range writes {
		var o backends.Object
		var err error
		if write.Op != Delete {
			w.wrote = write.Raw
		}
		switch write.Op {
		case Create:
			o, err = store.Create(ctx, w.task.key, write.Raw)
		case Update:
			o, err = store.Update(ctx, *w.current, write.Raw)
		case Delete:
			err = store.Delete(ctx, w.task.key, backends.Preconditions{
				UID: w.current.UID, ResourceVersion: w.current.ResourceVersion,
			})
			if err == nil {
				// What is left, if anything, has a deletionTimestamp now.
				if err = w.read(ctx); err != nil {
					return err
				}
				continue
			}
		}
		if err != nil {
			return err
		}
		w.see(&o)
		w.out.known = true
		if vanished(o) {
			w.see(nil)
		}
	}
	return nil
}

// vanished reports whether a reply is the last word on an object: the write took
// the last finalizer of one that was being deleted.
func vanished(o backends.Object) bool {
	if !bytes.Contains(o.Raw, []byte("deletionTimestamp")) {
		return false // as nearly always: no need to decode it
	}
	parsed, err := parseObject(o)
	return err == nil && parsed.deleting() && len(parsed.finalizers()) == 0
}

// read asks the API server for the object.
func (w *writer) read(ctx context.Context) error {
	o, err := w.m.cfg.Store.Read(ctx, w.task.key)
	switch {
	case err == nil:
		w.see(&o)
	case errors.Is(err, stream.ErrNotFound):
		w.see(nil)
	default:
		return err
	}
	w.out.known = true
	return nil
}

// explain is what the peer may read of an error of our store.
func (w *writer) explain(err error) string {
	switch {
	case errors.Is(err, stream.ErrRefused) && w.task.key.Kind == stream.Secret:
		// Its words, or those of an admission webhook, may quote the Secret.
		return "the API server of the " + w.task.rules.Side.String() + " refused the Secret; its audit log says why"
	case errors.Is(err, stream.ErrRefused):
		return "the API server of the " + w.task.rules.Side.String() + " refused it: " + err.Error()
	case errors.Is(err, stream.ErrConflict):
		return "the object on the " + w.task.rules.Side.String() + " changes too fast"
	case errors.Is(err, stream.ErrNotFound):
		return "the namespace for it does not exist on the " + w.task.rules.Side.String()
	}
	return "the API server of the " + w.task.rules.Side.String() + " does not answer"
}

func revisionOf(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func traceParent(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(carrying(sc), carrier)
	return carrier["traceparent"]
}

// carrying is how OpenTelemetry takes a span's identity. Nothing waits for it, and so
// nothing has to end it.
func carrying(sc trace.SpanContext) context.Context {
	return trace.ContextWithSpanContext(context.Background(), sc) //nolint:forbidigo // see above
}

// keySet collects keys until they are taken. signal has a value while there are
// some.
type keySet struct {
	signal chan struct{}
	mu     sync.Mutex // guards keys and seen
	keys   []stream.ResourceKey
	seen   map[stream.ResourceKey]bool
}

func newKeySet() *keySet {
	return &keySet{signal: make(chan struct{}, 1), seen: map[stream.ResourceKey]bool{}}
}

func (s *keySet) add(key stream.ResourceKey) {
	s.mu.Lock()
	if !s.seen[key] {
		s.seen[key] = true
		s.keys = append(s.keys, key)
	}
	s.mu.Unlock()
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// take empties the set, oldest first.
func (s *keySet) take() []stream.ResourceKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := s.keys
	s.keys, s.seen = nil, map[stream.ResourceKey]bool{}
	return keys
}

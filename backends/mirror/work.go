package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/quota"
)

// task is the work on one object, given to a worker.
type task struct {
	key       stream.ResourceKey
	rules     Rules
	current   *backends.Object
	parsed    *object // current, if somebody decoded it
	events    map[stream.EntryKey]stream.Event
	seen      map[stream.EntryKey]string // as in job
	tend      bool
	situation Situation
	verify    bool
	asked     Requests
	taken     takenCommand
	room      room
	// withdrawn and over are session's. Nothing more is begun of the events when one of
	// them is closed; of one of them, when its channel in newer is.
	withdrawn, over <-chan struct{}
	newer           map[stream.EntryKey]chan struct{} // closed when a newer event of the entry is there
}

// obsolete says why nothing more is to be begun of an event; empty while something is.
// A worker that meets conflicts asks before each attempt: what it was told long ago
// must not come about after what was told since, on this connection or a later one.
func (t task) obsolete(key stream.EntryKey) string {
	switch {
	case closed(t.withdrawn), closed(t.over):
		return "the connection has ended"
	case closed(t.newer[key]):
		return "a newer version of the entry came"
	default:
		return ""
	}
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
	paid    paid
	// schemas are those by which it was planned.
	schemas map[stream.Kind]*schema.Schema
}

type result struct {
	event stream.Event
	held  stream.Version
	reply *Reply // nil when there is none to keep
	// implied says that the object tells by itself what a Reply would: one of before
	// is obsolete.
	implied bool
	refusal *stream.Refusal
	awaits  string // the AppProject for which it was refused; empty for none
	undone  string // stream.Result's
	// dropped are the paths that the API server does not keep of what is held.
	dropped []string
	wanted  bool // Rules.wants of what is held
}

// attempts bounds how often a worker reads and plans again after a conflict
// before it gives the entry back to be parked.
const attempts = 5

// work does one task, when there is room for it, and reports to the loop, unless that has
// ended.
func (m *Mirror) work(ctx context.Context, t task) {
	release, err := m.cfg.Quota.Take(ctx, m.cfg.Rules.Agent, quota.Working, weigh(t.current, t.events))
	if err != nil {
		return // ctx is done
	}
	defer release()
	o := m.perform(ctx, t)
	select {
	case m.results <- o:
	case <-ctx.Done():
	}
}

func (m *Mirror) perform(ctx context.Context, t task) outcome {
	w := &writer{m: m, task: t, current: t.current, parsed: t.parsed}
	w.turn = m.compute()
	defer func() { w.turn.End() }()
	if t.verify {
		if err := w.wait(func() error { return w.read(ctx) }); err != nil {
			w.m.cfg.Log.Debug().Err(err).Stringer("resource", t.key).Msg("cannot verify a write, trying again")
		}
	}
	// In the order in which a source sends: the Application before its command.
	for _, c := range stream.Collections() {
		for key, e := range t.events {
			if key.Collection == c && t.obsolete(key) == "" {
				w.apply(ctx, e)
			}
		}
	}
	if t.tend {
		w.tend(ctx)
	}
	w.out.key, w.out.object, w.out.parsed, w.out.schemas = t.key, w.current, w.parsed, t.rules.Schemas
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
	found   *found  // what was recalled last; nil before
	// confirmed is the UID of the object after whose creation the fence was asked; empty
	// for none.
	confirmed string
	looked    bool       // the object was read from the API server itself
	sought    sought     // of the last plan
	turn      quota.Turn // while nothing is waited for
	out       outcome
}

// wait calls f, which waits for others, outside of the peer's turn.
func (w *writer) wait(f func() error) error {
	w.turn.End()
	defer func() { w.turn = w.m.compute() }()
	return f()
}

// compute begins to compute on account of the peer. A spoke has no peer but its hub, that
// could be in another one's way.
func (m *Mirror) compute() quota.Turn {
	if m.cfg.Rules.Side == stream.Spoke {
		return quota.Turn{}
	}
	return m.cfg.Quota.Compute(m.cfg.Rules.Agent)
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
		o.found, o.confirmed = w.found, w.confirmed != "" && o.uid() == w.confirmed
		w.parsed = &o
	}
	return w.parsed, nil
}

func (w *writer) apply(ctx context.Context, e stream.Event) {
	ctx, span := w.startSpan(ctx, e)
	defer span.End()
	started := time.Now()
	rules, c := w.task.rules, e.Key.Collection
	r := result{event: e}
	var before *object // the last write
	wrote, refusal, err := w.execute(ctx, func(current *object) ([]Write, *stream.Refusal) {
		before = current
		if why := w.task.obsolete(e.Key); why != "" { // during an attempt that met a conflict
			return nil, &stream.Refusal{Kind: stream.RefusalUnavailable, Message: why}
		}
		if overtaken := w.overtaken(e, current); overtaken != nil {
			return nil, overtaken
		}
		if c == stream.Commands && current != nil {
			if lost := w.task.taken.lost(e, *current); lost != nil {
				return nil, lost
			}
		}
		return w.planWithin(e, current)
	})
	if err == nil && refusal == nil && w.current == nil && rules.Side == stream.Spoke && leaving(e) {
		refusal = w.m.ended(w.task.key, e)
	}
	switch {
	case err != nil:
		r.refusal = &stream.Refusal{Kind: stream.RefusalKindOf(err), Message: w.explain(err)}
		if w.task.key.Kind != stream.Secret { // of which an API server may quote
			span.RecordError(err)
		}
		span.SetStatus(codes.Error, string(r.refusal.Kind))
	case refusal != nil:
		r.refusal = refusal
		if !leaving(e) {
			r.awaits = w.sought.awaits(rules)
		}
		span.SetStatus(codes.Error, string(refusal.Kind))
	}
	if w.current != nil {
		if parsed, err := w.object(); err == nil {
			o := *parsed
			if r.refusal == nil && e.Verb == stream.Apply && c != stream.Commands && rules.uidIn(c, o) == e.Version.SourceUID {
				if rec, _ := recordOf(o); c == stream.Statuses && rules.unsendable(o) == "" || c != stream.Statuses && rec.Hash == e.Version.Hash.String() ||
					c == stream.Children && !wrote { // what was thinned counts as held

					reply := rules.replyOf(c, e.Version, o)
					r.reply = &reply
				}
			}
			if r.refusal == nil && e.Verb == stream.Delete && c == stream.Statuses {
				// The last status stays to be seen, but it is no longer the spoke's.
				reply := rules.replyOf(c, stream.Version{}, o)
				r.reply = &reply
			}
			if wrote && r.refusal == nil {
				r.undone = rules.undone(e, before, o)
			}
			r.held, r.dropped, r.wanted = rules.Held(c, o, nil), rules.dropped(c, o), rules.wants(c, o)
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

// beside are the rules with what the plan of an event needs beside the object.
func (w *writer) beside(e stream.Event) Rules {
	r := w.task.rules
	r.now, r.looked = w.m.cfg.Now(), w.looked
	switch {
	case r.Side != stream.Spoke:
	case e.Key.Collection == stream.AppProjects && e.Verb == stream.Delete:
		r.needed = w.m.needed(r, w.task.key.Name)
	default:
		w.sought, r.projects = sought{}, w.seekProject
	}
	return r
}

// seekProject is Rules.projects.
func (w *writer) seekProject(name string) *object {
	if w.sought.name != name {
		w.sought = sought{name, w.m.projectNamed(name)}
	}
	return w.sought.found
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
	for conflicts := 0; conflicts < attempts; {
		current, perr := w.object()
		if perr != nil {
			return wrote, nil, perr
		}
		writes, refusal := plan(current)
		if len(writes) == 0 {
			return wrote, refusal, nil
		}
		if asked, aerr := w.ask(ctx, writes[0].Op); aerr != nil {
			return wrote, nil, aerr
		} else if asked {
			continue
		}
		if err = w.wait(func() error { return w.carryOut(ctx, writes) }); err == nil {
			if wrote = true; writes[len(writes)-1].Again {
				continue
			}
			return true, refusal, nil
		}
		if !errors.Is(err, stream.ErrConflict) && !errors.Is(err, stream.ErrNotFound) {
			return wrote, nil, err
		}
		if rerr := w.wait(func() error { return w.read(ctx) }); rerr != nil {
			return wrote, nil, rerr
		}
		conflicts++
	}
	return wrote, nil, err
}

// ask finds out what a plan has to know, and reports whether op asks for it. A plan asks
// once for each thing.
func (w *writer) ask(ctx context.Context, op Op) (asked bool, err error) {
	switch op {
	case Recall:
		rec, _ := recordOf(*w.parsed)
		err = w.wait(func() (err error) {
			w.found, err = w.keeper().recall(ctx, w.task.key, rec.Adopted)
			return err
		})
	case Look:
		err = w.wait(func() error { return w.read(ctx) })
	case Confirm:
		err = w.wait(func() error { return w.confirm(ctx) })
	default:
		return false, nil
	}
	w.parsed = nil
	return true, err
}

// options are those of a Create or Update.
func (w Write) options() []backends.WriteOption {
	if w.Strict {
		return []backends.WriteOption{backends.Strict}
	}
	return nil
}

// planWithin is Rules.Plan within the bounds. A status that does not fit is shown without
// its resources.
func (w *writer) planWithin(e stream.Event, current *object) ([]Write, *stream.Refusal) {
	rules := w.beside(e)
	writes, refusal := rules.Plan(e, w.task.key, current, w.task.asked)
	if !bounded(e) || w.task.room.bounds == (Bounds{}) {
		return writes, refusal
	}
	before := 0
	if w.current != nil {
		before = len(w.current.Raw)
	}
	over := w.task.room.admits(rules.Side, w.task.key.Kind, writes, before)
	if short, can := withoutResources(e); over != nil && can {
		writes, refusal = rules.Plan(short, w.task.key, current, w.task.asked)
		over = w.task.room.admits(rules.Side, w.task.key.Kind, writes, before)
	}
	if over != nil {
		return nil, over
	}
	return writes, refusal
}

func (w *writer) carryOut(ctx context.Context, writes []Write) error {
	store := w.m.cfg.Store
	for _, write := range writes {
		var o backends.Object
		var err error
		switch write.Op {
		case Create:
			o, err = store.Create(ctx, w.task.key, write.Raw, write.options()...)
		case Update:
			o, err = store.Update(ctx, *w.current, write.Raw, write.options()...)
		case Delete:
			if w.current == nil {
				continue // it was being deleted already, and the Update before took the last finalizer
			}
			err = store.Delete(ctx, w.task.key, backends.Preconditions{
				UID: w.current.UID, ResourceVersion: w.current.ResourceVersion,
			})
			if err == nil {
				// What is left, if anything, has a deletionTimestamp now.
				if err = w.read(ctx); err != nil {
					return err
				}
				w.out.paid.wrote(w.current)
				continue
			}
		case Keep, Forget:
			if err = w.keep(ctx, write); err == nil {
				w.out.paid.kept(write)
				continue
			}
		}
		if err != nil {
			w.out.paid.failed(write, err)
			return err
		}
		w.out.paid.wrote(&o)
		w.see(&o)
		w.out.known = true
		if vanished(o) {
			w.see(nil)
		}
	}
	return nil
}

func (w *writer) keeper() keeper {
	return keeper{store: w.m.cfg.Store, namespace: w.task.rules.Namespace}
}

// keep carries out Keep and Forget. What could not be forgotten does no harm: its object
// has its owner again.
func (w *writer) keep(ctx context.Context, write Write) error {
	log := w.m.cfg.Log.With().Stringer("resource", w.task.key).Logger()
	if write.Op == Keep {
		if err := w.keeper().keep(ctx, *w.current, write.Raw); err != nil {
			return fmt.Errorf("keep what was found: %w", err)
		}
		log.Info().Msg("object is adopted, what was found is kept")
		return nil
	}
	log.Warn().Str("reason", write.Note).Msg("adopted object is given back to its owner")
	if err := w.keeper().forgetFound(ctx, w.task.key, w.found); err != nil {
		log.Warn().Err(err).Msg("cannot remove what was kept of an object that was given back")
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
	w.out.known, w.looked = true, true
	return nil
}

// explain is what the peer may read of an error of our store.
func (w *writer) explain(err error) string {
	switch {
	case errors.Is(err, stream.ErrRefused) && w.task.key.Kind == stream.Secret:
		// Its words, or those of an admission webhook, may quote the Secret.
		return "the API server of the " + w.task.rules.Side.String() + " refused the Secret; its audit log says why"
	case errors.Is(err, stream.ErrRefused) && strings.Contains(err.Error(), "unknown field") && w.task.rules.Schemas[w.task.key.Kind] == nil:
		return "the API server of the " + w.task.rules.Side.String() + " refused it: " + err.Error() +
			"; what is no restraint is left out once Argomesh may read the definition there (list and watch of customresourcedefinitions)"
	case errors.Is(err, stream.ErrRefused):
		return "the API server of the " + w.task.rules.Side.String() + " refused it: " + err.Error()
	case errors.Is(err, errFenced):
		return "Argo CD is kept from it until the agent can tell that no other one has taken its place"
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

// startSpan starts the span of what a peer sent. A spoke goes on with the hub's trace. On
// the hub a trace begins, with a link to the spoke's: what a spoke says must not decide what
// the hub records and pays for.
func (w *writer) startSpan(ctx context.Context, e stream.Event) (context.Context, trace.Span) {
	options := []trace.SpanStartOption{trace.WithAttributes(
		attribute.String("argomesh.resource", e.Key.String()), attribute.Stringer("argomesh.agent", w.task.rules.Agent))}
	told := propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": e.TraceParent})
	if w.task.rules.Side == stream.Spoke {
		return w.m.cfg.Tracer.Start(told, "mirror.apply", options...) //nolint:spancheck // the caller ends it
	}
	options = append(options, trace.WithNewRoot())
	if sc := trace.SpanContextFromContext(told); sc.IsRemote() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: sc}))
	}
	return w.m.cfg.Tracer.Start(ctx, "mirror.apply", options...) //nolint:spancheck // the caller ends it
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

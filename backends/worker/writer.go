package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/adopted"
	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/quota"
)

// attempts bounds how often a worker reads and plans again after a conflict
// before it gives the entry back to be parked.
const attempts = 5

// writer carries out the plans for one object, one after the other.
type writer struct {
	worker  *Worker
	task    Task
	current *backends.Object
	parsed  *object.Object // current, once someone decoded it; plans do not change it
	found   *object.Found  // what was loaded last; nil before
	// confirmed is the UID of the object after whose creation the fence was asked; empty
	// for none.
	confirmed string
	live      bool              // the object was read from the API server itself
	sought    sought            // of the last plan
	computing quota.Computation // while nothing is waited for
	out       Outcome
}

// wait calls f, which waits for others, outside of the peer's turn.
func (w *writer) wait(f func() error) error {
	w.computing.End()
	defer func() { w.computing = w.worker.Compute() }()
	return f()
}

// see notes what the object is now; nil for gone.
func (w *writer) see(o *backends.Object) { w.current, w.parsed = o, nil }

// object is the current object decoded; nil when there is none.
func (w *writer) object() (*object.Object, error) {
	if w.parsed == nil && w.current != nil {
		o, err := object.Parse(*w.current)
		if err != nil {
			return nil, err
		}
		o.Found, o.Confirmed = w.found, w.confirmed != "" && o.UID() == w.confirmed
		w.parsed = &o
	}
	return w.parsed, nil
}

func (w *writer) apply(ctx context.Context, e stream.Event) {
	ctx, span := w.startSpan(ctx, e)
	defer span.End()
	started := time.Now()
	rules, c := w.task.Rules, e.Key.Collection
	r := Result{Event: e}
	var before *object.Object // the last write
	wrote, refusal, err := w.execute(ctx, func(current *object.Object) ([]ownership.Write, *stream.Refusal) {
		before = current
		return w.plan(e, current)
	})
	if err == nil && refusal == nil && w.current == nil && rules.Side == stream.Spoke && ownership.Leaving(e) {
		refusal = w.worker.cfg.Ends.Answer(w.task.Key, e)
	}
	switch {
	case err != nil:
		r.Refusal = &stream.Refusal{Kind: stream.RefusalKindOf(err), Message: w.explain(err)}
		if w.task.Key.Kind != stream.Secret { // of which an API server may quote
			span.RecordError(err)
		}
		span.SetStatus(codes.Error, string(r.Refusal.Kind))
	case refusal != nil:
		r.Refusal = refusal
		if !ownership.Leaving(e) {
			r.Awaits = w.sought.awaits(rules)
		}
		span.SetStatus(codes.Error, string(refusal.Kind))
	}
	if w.current != nil {
		if parsed, err := w.object(); err == nil {
			w.setStored(&r, *parsed, wrote)
			if wrote && r.Refusal == nil {
				r.Undone = rules.Undone(e, before, *parsed)
			}
		}
	}
	if wrote {
		w.out.Cause = span.SpanContext()
	}
	w.out.Results = append(w.out.Results, r)
	w.worker.cfg.Applied(c, time.Since(started))
}

// plan is what an event asks to be written of the object as it is now.
func (w *writer) plan(e stream.Event, current *object.Object) ([]ownership.Write, *stream.Refusal) {
	if why := w.task.obsolete(e.Key); why != "" { // during an attempt that met a conflict
		return nil, &stream.Refusal{Kind: stream.RefusalUnavailable, Message: why}
	}
	if overtaken := w.superseded(e, current); overtaken != nil {
		return nil, overtaken
	}
	if e.Key.Collection == stream.Commands && current != nil {
		if lost := w.task.Taken.RefuseRepeat(e, *current); lost != nil {
			return nil, lost
		}
	}
	return w.planWithin(e, current)
}

// setStored notes what this side stores of the entry of a result, now that its object is o, and
// what is to be remembered of it.
func (w *writer) setStored(r *Result, o object.Object, wrote bool) {
	e, rules, c := r.Event, w.task.Rules, r.Event.Key.Collection
	switch {
	case r.Refusal != nil:
	case e.Verb == stream.Apply && c != stream.Commands && rules.UIDIn(c, o) == e.Version.SourceUID:
		if rec, _ := record.Of(o); c == stream.Statuses && rules.Unsendable(o) == "" ||
			c != stream.Statuses && rec.Hash == e.Version.Hash.String() ||
			c == stream.Children && !wrote { // what was thinned counts as stored

			reply := rules.ReplyOf(c, e.Version, o)
			r.Reply = &reply
		}
	case e.Verb == stream.Delete && c == stream.Statuses:
		// The last status stays to be seen, but it is no longer the spoke's.
		reply := rules.ReplyOf(c, stream.Version{}, o)
		r.Reply = &reply
	}
	r.Stored, r.Dropped, r.Wanted = rules.Stored(c, o, nil), rules.Dropped(c, o), rules.Wants(c, o)
	if r.Implied = r.Reply != nil && !r.Stored.Absent() && r.Reply.Version == r.Stored; r.Implied {
		r.Reply = nil
	} else if r.Reply != nil {
		r.Stored = rules.Stored(c, o, r.Reply)
	}
	if c == stream.Applications && rules.DeletedLocally(o) {
		w.worker.cfg.Log.Warn().Stringer("resource", w.task.Key).
			Msg("Application is being deleted on the spoke together with its workloads, restoring it afterwards")
	}
}

// beside are the rules with what the plan of an event needs beside the object.
func (w *writer) beside(e stream.Event) ownership.Rules {
	r := w.task.Rules
	r.Now, r.Live = w.worker.cfg.Now(), w.live
	switch {
	case r.Side != stream.Spoke:
	case e.Key.Collection == stream.AppProjects && e.Verb == stream.Delete:
		r.Needed = needed(w.worker.cfg.Store, r, w.task.Key.Name)
	default:
		w.sought, r.Projects = sought{}, w.seekProject
	}
	return r
}

// seekProject is Rules.projects.
func (w *writer) seekProject(name string) *object.Object {
	if w.sought.name != name {
		w.sought = sought{name, projectNamed(w.worker.cfg.Store, w.task.Rules.Namespace, name)}
	}
	return w.sought.found
}

func (w *writer) updateHub(ctx context.Context) {
	// The condition for this write was computed from the object; whatever comes in
	// between, the loop looks at the object again afterwards.
	_, _, err := w.execute(ctx, func(current *object.Object) ([]ownership.Write, *stream.Refusal) {
		if current == nil || w.task.Current == nil || current.UID() != w.task.Current.UID {
			return nil, nil // not the object that the situation is about
		}
		raw, needed := w.task.Rules.PlanHubUpdate(*current, w.task.State)
		if !needed {
			return nil, nil
		}
		return []ownership.Write{{Op: ownership.Update, Raw: raw}}, nil
	})
	if err != nil {
		w.out.Failed = true
		w.worker.cfg.Sampled.Warn().Err(err).Stringer("resource", w.task.Key).
			Msg("cannot update an object of the hub, retrying")
	}
}

// execute plans and writes until a plan went through. It reports whether
// anything was written.
func (w *writer) execute(ctx context.Context,
	plan func(*object.Object) ([]ownership.Write, *stream.Refusal)) (wrote bool, refusal *stream.Refusal, err error) {
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
			if wrote = true; writes[len(writes)-1].Replan {
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
func (w *writer) ask(ctx context.Context, op ownership.Op) (asked bool, err error) {
	switch op {
	case ownership.LoadFound:
		rec, _ := record.Of(*w.parsed)
		err = w.wait(func() (err error) {
			w.found, err = w.foundStore().Load(ctx, w.task.Key, rec.Adopted)
			return err
		})
	case ownership.ReadLive:
		err = w.wait(func() error { return w.read(ctx) })
	case ownership.Confirm:
		err = w.wait(func() error { return w.confirm(ctx) })
	default:
		return false, nil
	}
	w.parsed = nil
	return true, err
}

// options are those of a Create or Update.
func options(w ownership.Write) []backends.WriteOption {
	if w.Strict {
		return []backends.WriteOption{backends.Strict}
	}
	return nil
}

// planWithin is Rules.Plan within the bounds. A status that does not fit is shown without
// its resources.
func (w *writer) planWithin(e stream.Event, current *object.Object) ([]ownership.Write, *stream.Refusal) {
	rules := w.beside(e)
	writes, refusal := rules.Plan(e, w.task.Key, current, w.task.Asked)
	if !bounds.Applies(e) || w.task.Room.Bounds == (bounds.Bounds{}) {
		return writes, refusal
	}
	before := 0
	if w.current != nil {
		before = len(w.current.Raw)
	}
	over := w.task.Room.Admits(rules.Side, w.task.Key.Kind, writes, before)
	if short, can := bounds.WithoutResources(e); over != nil && can {
		writes, refusal = rules.Plan(short, w.task.Key, current, w.task.Asked)
		over = w.task.Room.Admits(rules.Side, w.task.Key.Kind, writes, before)
	}
	if over != nil {
		return nil, over
	}
	return writes, refusal
}

func (w *writer) carryOut(ctx context.Context, writes []ownership.Write) error {
	store := w.worker.cfg.Store
	for _, write := range writes {
		var o backends.Object
		var err error
		switch write.Op {
		case ownership.Create:
			o, err = store.Create(ctx, w.task.Key, write.Raw, options(write)...)
		case ownership.Update:
			o, err = store.Update(ctx, *w.current, write.Raw, options(write)...)
		case ownership.Delete:
			if w.current == nil {
				continue // it was being deleted already, and the Update before took the last finalizer
			}
			err = store.Delete(ctx, w.task.Key, backends.Preconditions{
				UID: w.current.UID, ResourceVersion: w.current.ResourceVersion,
			})
			if err == nil {
				// What is left, if anything, has a deletionTimestamp now.
				if err = w.read(ctx); err != nil {
					return err
				}
				w.out.Paid.wrote(w.current)
				continue
			}
		case ownership.SaveFound, ownership.RemoveFound:
			if err = w.writeFound(ctx, write); err == nil {
				w.out.Paid.wroteOther(write)
				continue
			}
		}
		if err != nil {
			w.out.Paid.failed(write, err)
			return err
		}
		w.out.Paid.wrote(&o)
		w.see(&o)
		w.out.Known = true
		if vanished(o) {
			w.see(nil)
		}
	}
	return nil
}

func (w *writer) foundStore() adopted.FoundStore {
	return adopted.FoundStore{Store: w.worker.cfg.Store, Namespace: w.task.Rules.Namespace}
}

// writeFound carries out SaveFound and RemoveFound. What could not be forgotten does no harm: its object
// has its owner again.
func (w *writer) writeFound(ctx context.Context, write ownership.Write) error {
	log := w.worker.cfg.Log.With().Stringer("resource", w.task.Key).Logger()
	if write.Op == ownership.SaveFound {
		if err := w.foundStore().Save(ctx, *w.current, write.Raw); err != nil {
			return fmt.Errorf("keep what was found: %w", err)
		}
		log.Info().Msg("object is adopted; its content from before is kept")
		return nil
	}
	log.Warn().Str("reason", write.Note).Msg("adopted object is given back to its owner")
	if err := w.foundStore().Delete(ctx, w.task.Key, w.found); err != nil {
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
	parsed, err := object.Parse(o)
	return err == nil && parsed.Deleting() && len(parsed.Finalizers()) == 0
}

// read asks the API server for the object.
func (w *writer) read(ctx context.Context) error {
	o, err := w.worker.cfg.Store.Read(ctx, w.task.Key)
	switch {
	case err == nil:
		w.see(&o)
	case errors.Is(err, stream.ErrNotFound):
		w.see(nil)
	default:
		return err
	}
	w.out.Known, w.live = true, true
	return nil
}

// explain is what the peer may read of an error of our store.
func (w *writer) explain(err error) string {
	switch {
	case errors.Is(err, stream.ErrRefused) && w.task.Key.Kind == stream.Secret:
		// Its words, or those of an admission webhook, may quote the Secret.
		return "the API server of the " + w.task.Rules.Side.String() + " refused the Secret; its audit log says why"
	case errors.Is(err, stream.ErrRefused) && strings.Contains(err.Error(), "unknown field") &&
		w.task.Rules.Schemas[w.task.Key.Kind] == nil:
		return "the API server of the " + w.task.Rules.Side.String() + " refused it: " + err.Error() +
			"; fields that restrain nothing are left out once Argomesh may read the definition there (list and watch of customresourcedefinitions)"
	case errors.Is(err, stream.ErrRefused):
		return "the API server of the " + w.task.Rules.Side.String() + " refused it: " + err.Error()
	case errors.Is(err, errFenced):
		return "Argo CD is kept from it until the agent can tell that no other one has taken its place"
	case errors.Is(err, stream.ErrConflict):
		return "the object on the " + w.task.Rules.Side.String() + " changes too fast"
	case errors.Is(err, stream.ErrNotFound):
		return "the namespace for it does not exist on the " + w.task.Rules.Side.String()
	}
	return "the API server of the " + w.task.Rules.Side.String() + " does not answer"
}

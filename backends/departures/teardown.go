// Package departures takes objects away from the hub when an agent, or what was its, goes:
// Teardown when an Agent is deleted, OrphanedMirrors when namespaces or names become another's.
package departures

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/adopted"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// Teardown is what the deletion of an Agent does to the objects of the hub
// (docs/design/deletes-and-history.md). Its methods look at what there is, do what is to be done,
// and say what they wait for: they are called again and again until they wait for
// nothing. To call them once more, or concurrently, does no harm, and neither does a
// process that ends in between.
//
// With the policy orphan the link has ended, and Orphan is all. With cascade the
// link goes on under Rules.Terminating until Cascade waits for nothing; then it ends,
// and Orphan follows.
type Teardown struct {
	Store backends.Store
	// Rules are those of the hub's side of the Agent's link.
	Rules ownership.Rules
}

// attempts bounds how often it is read and planned again after a conflict in one pass.
const attempts = 5

// teardownWriters bounds the concurrent writes of a Teardown.
const teardownWriters = 8

// Orphan lets the hub go on without the agent, and asks nothing of the spoke. All
// mirrors leave the hub without their workloads: those of an autonomous agent's
// Applications and AppProjects, and of a managed one's child applications. Of a
// managed agent's own Applications, those that are being deleted lose Argo CD's
// finalizers, since no one will say when the spoke is done; the others stay as they
// are. It must not run beside the agent's link, which would make mirrors again.
//
// waiting is empty once a look at the cache finds nothing more to do. Errors wrap
// the kinds of package stream.
func (d *Teardown) Orphan(ctx context.Context) (waiting string, err error) {
	kinds := []stream.Kind{stream.Application}
	if d.Rules.Mode == stream.Autonomous {
		kinds = append(kinds, stream.AppProject) // after the Applications that name them
	}
	moved := 0
	for _, kind := range kinds {
		n, err := d.each(ctx, kind, func(o object.Object) (writes []ownership.Write, waits bool) {
			rules := d.Rules
			rules.Now = time.Now()
			return rules.Orphan(o)
		})
		if err != nil {
			return "", err
		}
		moved += n
	}
	if moved == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d objects to leave the hub, or to be let go", moved), nil
}

// Cascade deletes the managed agent's own Applications, together with their
// workloads: those that the hub sends to it and that there were when the Agent was
// deleted. What is made later, by an ApplicationSet say, is neither deleted nor
// waited for. deleted is the Agent's deletionTimestamp. Of an autonomous agent the
// hub owns nothing, and there is nothing to do.
//
// waiting says how many are left, until there are none. One that was being deleted
// without a cascade is waited for, not cascaded.
func (d *Teardown) Cascade(ctx context.Context, deleted time.Time) (waiting string, err error) {
	if d.Rules.Mode != stream.Managed {
		return "", nil
	}
	left, err := d.each(ctx, stream.Application, func(o object.Object) (writes []ownership.Write, waits bool) {
		if !d.Rules.GoesWithAgent(o, deleted) {
			return nil, false
		}
		return cascade(o), true
	})
	if err != nil || left == 0 {
		return "", err
	}
	return fmt.Sprintf("%d Applications to be removed on the spoke", left), nil
}

// cascade deletes an Application of the hub with its workloads. The finalizer and
// the deletion are tested on each other, since an ApplicationSet may take the
// finalizer away in between.
func cascade(o object.Object) []ownership.Write {
	if o.Deleting() {
		return nil
	}
	if slices.ContainsFunc(o.Finalizers(), object.IsCascade) {
		return []ownership.Write{{Op: ownership.Delete}}
	}
	next := o.Clone()
	next.SetFinalizers(append(next.Finalizers(), object.CascadeFinalizer))
	return []ownership.Write{{Op: ownership.Update, Raw: object.Encode(next.Fields)}, {Op: ownership.Delete}}
}

// plan is what is to be done with an object, and whether it is waited for.
type plan func(object.Object) (writes []ownership.Write, waits bool)

// each carries out the plans for all objects of a kind that may be the agent's. It
// returns how many are waited for.
func (d *Teardown) each(ctx context.Context, kind stream.Kind, p plan) (waits int, err error) {
	select {
	case <-d.Store.Synced():
	default:
		return 0, fmt.Errorf("the hub's objects are not known yet: %w", stream.ErrUnavailable)
	}
	namespaces := d.Rules.LocalNamespaces()
	if kind == stream.AppProject {
		namespaces = []string{d.Rules.Namespace}
	}
	var objects []backends.Object
	for _, namespace := range namespaces {
		objects = append(objects, d.Store.List(kind, namespace)...)
	}
	return apply(ctx, adopted.FoundStore{Store: d.Store, Namespace: d.Rules.Namespace}, objects, p)
}

// apply carries out the plans for objects of a store, several at a time.
func apply(ctx context.Context, k adopted.FoundStore, objects []backends.Object, p plan) (waits int, err error) {
	var failed error
	var writers errgroup.Group // without a context: one that fails does not keep others
	writers.SetLimit(teardownWriters)
	for _, o := range objects {
		parsed, err := object.Parse(o)
		if err != nil {
			failed = err // and go on with the others
			continue
		}
		writes, waited := p(parsed)
		if waited {
			waits++
		}
		if len(writes) > 0 && ctx.Err() == nil {
			writers.Go(func() error { return carryOut(ctx, k, o, p) })
		}
	}
	return waits, errors.Join(failed, writers.Wait(), ctx.Err())
}

// carryOut plans and writes, and on a conflict reads and plans again. A conflict that goes
// on is left to the next pass.
func carryOut(ctx context.Context, k adopted.FoundStore, o backends.Object, p plan) error {
	var kept *object.Found
	for range attempts {
		parsed, err := object.Parse(o)
		if err != nil {
			return err
		}
		parsed.Found = kept
		writes, _ := p(parsed)
		if len(writes) == 0 {
			return nil
		}
		if writes[0].Op == ownership.LoadFound {
			rec, _ := record.Of(parsed)
			if kept, err = k.Load(ctx, o.Key, rec.Adopted); err != nil {
				return fmt.Errorf("give back %s: %w", o.Key, err)
			}
			continue
		}
		err = write(ctx, k, o, kept, writes)
		if err == nil || errors.Is(err, stream.ErrNotFound) {
			return nil
		}
		if !errors.Is(err, stream.ErrConflict) {
			return fmt.Errorf("take away %s: %w", o.Key, err)
		}
		o, err = k.Store.Read(ctx, o.Key)
		if errors.Is(err, stream.ErrNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", o.Key, err)
		}
	}
	return nil
}

func write(ctx context.Context, k adopted.FoundStore, o backends.Object, kept *object.Found,
	writes []ownership.Write) error {
	for _, w := range writes {
		var err error
		switch w.Op {
		case ownership.Update:
			o, err = k.Store.Update(ctx, o, w.Raw)
		case ownership.RemoveFound:
			err = k.Delete(ctx, o.Key, kept)
		default:
			err = k.Store.Delete(ctx, o.Key, backends.Preconditions{UID: o.UID, ResourceVersion: o.ResourceVersion})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

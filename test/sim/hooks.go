package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

const (
	hookFinalizer  = "post-delete-finalizer.argocd.argoproj.io"
	skipAnnotation = "argocd.argoproj.io/skip-reconcile"
)

// reconcileTime is how long a reconciliation takes at most, and one of reconcileShare looks
// at an Application begins one.
const (
	reconcileTime  = 600 * time.Millisecond
	reconcileShare = 20
)

// reconcile begins now and then a reconciliation of an Application, by what the cache shows
// of it. Delete hooks may have come into git or gone from there since the last one: then
// all its finalizers are written at the end, as they were at the beginning but for those of
// hooks, and without a resourceVersion. So does Argo CD's controller (updateFinalizers).
func (c *controller) reconcile(store backends.Store, o backends.Object) {
	what := c.actor + " reconciliation " + o.UID
	if c.fleet.resting.Load() || c.fleet.chance.n(what, reconcileShare) != 0 {
		return
	}
	app := parse(o.Raw)
	if app.deleting() || app.skipped() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reconciling[o.Key] {
		return // there is one worker for each
	}
	c.reconciling[o.Key] = true
	began, hooks := c.now(), c.fleet.chance.n(what+" hooks", 2) == 0
	persists := func(now application) { now.ensure("status")["reconciledAt"] = began }
	if c.fleet.trace.ArgoCD {
		persists = c.persists(app, began, c.fleet.chance.n(what+" sync", 2) == 0)
	}
	withHooks := c.fleet.trace.Hooks && !c.originals(o.Key.Namespace)
	takes := c.fleet.chance.upTo(what+" end", reconcileTime)
	c.fleet.wait.Go(func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.reconciling, o.Key)
		}()
		if !pause(c.fleet.ctx, takes) {
			return
		}
		c.patch(store, o.Key, func(now application) {
			persists(now)
			if withHooks && app.setHooks(hooks) {
				now.ensure("metadata")["finalizers"] = app.child("metadata")["finalizers"]
			}
		})
	})
}

// originals reports whether the Applications of a namespace are those of an autonomous agent:
// what Argo CD and their owner make of their finalizers, of one that was made again too, is
// between them.
func (c *controller) originals(namespace string) bool {
	return slices.ContainsFunc(c.fleet.trace.Agents, func(a Agent) bool {
		return a.Mode == stream.Autonomous && a.home() == namespace && c.fleet.spokes[a.Name].site.cluster == c.site.cluster
	})
}

// patch changes whatever there is of that name.
func (c *controller) patch(store backends.Store, key stream.ResourceKey, change func(application)) {
	for c.fleet.ctx.Err() == nil {
		o, err := store.Read(c.fleet.ctx, key)
		if err != nil {
			return
		}
		app := parse(o.Raw)
		change(app)
		if _, err = store.Update(c.fleet.ctx, o, app.raw()); !errors.Is(err, stream.ErrConflict) {
			return // a finalizer that is new to what is being deleted is refused
		}
	}
}

// skipped reports whether the controller leaves the Application alone.
func (a application) skipped() bool { return a.annotation(skipAnnotation) == "true" }

// setHooks gives an Application the finalizer of its delete hooks, or takes it away, and
// reports whether that is a change.
func (a application) setHooks(hooks bool) bool {
	list, _ := a.child("metadata")["finalizers"].([]any)
	if slices.Contains(list, any(hookFinalizer)) == hooks {
		return false
	}
	list = slices.DeleteFunc(slices.Clone(list), func(f any) bool { return f == hookFinalizer })
	if hooks {
		list = append(list, hookFinalizer)
	}
	a.ensure("metadata")["finalizers"] = list
	return true
}

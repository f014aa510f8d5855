package sim

import (
	"fmt"
	"sync"
	"time"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

const (
	refreshAnnotation = "argocd.argoproj.io/refresh"
	hydrateAnnotation = "argocd.argoproj.io/hydrate"
)

// operationTime is how long an operation takes at most.
const operationTime = 10 * time.Second

// controller stands in for Argo CD's application controller of a spoke: it runs
// operations over some time and ends them when they are terminated, consumes
// refresh and hydrate requests, and removes the workloads of Applications that
// are deleted with a cascade, and then their hooks' finalizers. Like that one it knows
// nothing of us.
type controller struct {
	fleet *Fleet
	site  *site
	actor string

	mu   sync.Mutex           // guards what follows
	seen map[string]string    // by UID, the resourceVersion last acted on
	ends map[string]time.Time // by UID, when its operation is done
	runs int
	// reconciling holds the Applications of which a reconciliation is under way.
	reconciling map[stream.ResourceKey]bool
}

func newController(w *Fleet, s *site) *controller {
	return &controller{
		fleet: w, site: s, actor: s.place + " controller", seen: map[string]string{}, ends: map[string]time.Time{},
		reconciling: map[stream.ResourceKey]bool{},
	}
}

// relist has it look at everything again, as after a restore.
func (c *controller) relist() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.seen)
	clear(c.ends)
}

func (c *controller) run() {
	for pause(c.fleet.ctx, c.fleet.chance.upTo(c.actor, 300*time.Millisecond)) {
		c.site.mu.Lock()
		store := c.site.controller
		c.site.mu.Unlock()
		for _, o := range store.List(stream.Application, "") {
			c.look(store, o)
			if c.fleet.trace.ArgoCD || c.fleet.trace.Hooks && c.site.agents[0].Mode == stream.Managed {
				c.reconcile(store, o)
			}
		}
	}
}

// look does what is due for one Application.
func (c *controller) look(store backends.Store, o backends.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	end, running := c.ends[o.UID]
	due := running && !end.After(time.Now())
	if c.seen[o.UID] == o.ResourceVersion && !due {
		return
	}
	if c.fleet.trace.ArgoCD {
		// It does not rely on the cache for what is due.
		fresh, err := store.Read(c.fleet.ctx, o.Key)
		if err != nil || fresh.UID != o.UID {
			return
		}
		o = fresh
	}
	app := parse(o.Raw)
	if !c.act(app, o.UID, due) {
		c.seen[o.UID] = o.ResourceVersion
		return
	}
	if err := c.writes(store, o, app); err != nil {
		return // the cache was late: look again
	}
	c.seen[o.UID] = o.ResourceVersion
	_, running = c.ends[o.UID]
	switch state := app.state(); {
	case app.operation() != nil && !completed(state) && !running:
		c.ends[o.UID] = time.Now().Add(c.fleet.chance.upTo(c.actor+" operation "+o.UID, operationTime))
	case app.operation() == nil:
		delete(c.ends, o.UID)
	}
}

// act changes the Application as the controller would; false when there is
// nothing to do.
func (c *controller) act(app application, uid string, due bool) bool {
	// Argo CD's carries out an operation first, also of what is being deleted.
	if app.deleting() && (!c.fleet.trace.ArgoCD || app.operation() == nil) {
		switch {
		case app.skipped(), c.fleet.trace.ArgoCD && app.waits():
			return false
		case app.cascades():
			app.setCascade(false) // its workloads are gone
			return true
		}
		return app.setHooks(false) // they ran
	}
	changed := false
	for _, request := range []string{refreshAnnotation, hydrateAnnotation} {
		if app.annotation(request) != "" {
			delete(app.child("metadata", "annotations"), request)
			app.ensure("status")["reconciledAt"] = c.now()
			changed = true
		}
	}
	if app.operation() == nil {
		return changed
	}
	state := app.state()
	switch {
	case state == nil || completed(state):
		c.runs++
		app.ensure("status")["operationState"] = map[string]any{
			"operation": app.operation(), "phase": "Running", "startedAt": c.now(), "run": fmt.Sprint(uid, "/", c.runs),
		}
		delete(c.ends, uid)
	case str(state, "phase") == "Terminating":
		c.finish(app, "Failed", "Operation terminated")
	case due && c.retries(app, uid):
	case due:
		c.finish(app, "Succeeded", "successfully synced")
	default:
		if _, known := c.ends[uid]; !known { // it was started by a write whose reply we did not see
			c.ends[uid] = time.Now().Add(c.fleet.chance.upTo(c.actor+" operation "+uid, operationTime))
		}
		return changed
	}
	return true
}

func (c *controller) finish(app application, phase, message string) {
	state := app.state()
	state["phase"], state["message"], state["finishedAt"] = phase, message, c.now()
	delete(app.fields, "operation")
}

// now is the spoke's clock, as Kubernetes writes it.
func (c *controller) now() string { return ahead(&c.site.apiClock).UTC().Format(time.RFC3339) }

package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// do carries out one command. People act on what their caches show and live with
// conflicts; a command for which there is nothing to do does nothing.
func (w *Fleet) do(c Command) {
	switch c.Verb {
	case Snapshot:
		if s := w.spokes[c.Place]; s != nil {
			w.backUp(s)
			return
		}
		w.backup, w.backed, w.older = w.hub.server.Snapshot(), true, w.hub.older
	case Restore:
		if s := w.spokes[c.Place]; s != nil {
			w.restore(s, c)
			return
		}
		if w.backed && w.seen() && !w.departing() {
			w.journal.add(Entry{Place: hubPlace, Note: Restored})
			w.bringBack(w.hub, w.older || c.Older)
			w.hub.server.Restore(w.backup, uint64(c.Count))
		}
	case Pause:
		w.pause(c.For)
	case Kill:
		w.kill(c)
	case Failing:
		w.at(c.Place).failing.Store(!c.Off)
	case Twin:
		w.twin(w.at(c.Place).process(), c.For)
	case Freeze:
		w.freeze(w.at(c.Place).process(), c.For)
	case Clock, APIClock:
		w.setClock(c)
	case Slow:
		w.at(c.Place).slow.Store(int64(c.For))
	case Refuse:
		w.refuse(w.at(c.Place), !c.Off)
	case Schema:
		w.setSchema(w.at(c.Place), !c.Off)
	case Share:
		w.share(!c.Off)
	case Default:
		w.writeDefault(c)
	default:
		if s := w.spokes[c.Place]; s != nil {
			w.doAt(s, c)
		}
	}
}

// at returns the site of a place.
func (w *Fleet) at(place string) *site {
	if s := w.spokes[place]; s != nil {
		return s.site
	}
	return w.hub
}

func (w *Fleet) kill(c Command) {
	p := w.at(c.Place).process()
	switch {
	case p == nil:
	case c.Calls == 0:
		p.die()
	case c.After:
		p.dieAt.Store(p.calls.Load() + int64(c.Calls))
	default:
		p.dieAt.Store(-p.calls.Load() - int64(c.Calls))
	}
}

// keeper is whose an Application of an agent is now, as people on the hub see it: that
// agent's, unless it was handed over to another.
func (w *Fleet) keeper(s *spoke, name string) *spoke {
	if !s.Shared {
		return s
	}
	if o, ok := w.store(s, stream.Hub, People).Get(s.key(stream.Hub, name)); ok {
		if other := w.spokes[str(parse(o.Raw).child("spec", "destination"), "name")]; other != nil {
			return other
		}
	}
	return s
}

// next is the agent after s among those that share a namespace; s if there is no other.
func (w *Fleet) next(s *spoke) *spoke {
	var shared []string
	for _, a := range w.trace.Agents {
		if a.Shared {
			shared = append(shared, a.Name)
		}
	}
	return w.spokes[shared[(slices.Index(shared, s.Name)+1)%len(shared)]]
}

// doAt carries out what concerns one agent.
func (w *Fleet) doAt(s *spoke, c Command) {
	switch c.Verb {
	case Project, Repository, Trust:
		switch {
		case s.Mode == stream.Managed:
			w.doKind(s, c)
		case c.Verb == Project:
			w.writeRoles(s, c)
		}
		return
	case Keep:
		w.keep(s, c)
		return
	case Doom:
		w.doom(s, c)
		return
	case Depart:
		w.depart(s, c)
		return
	case Set:
		w.set(s, c)
		return
	case Found:
		w.find(s, c)
		return
	case Adopt:
		w.allow(s, c)
		return
	}
	c.App = s.called(c.App)
	switch c.Verb {
	case Burst, Cut, Renew, Rebuild, Accept: // of the agent, not of an Application
	default:
		if s = w.keeper(s, c.App); c.onSpoke() {
			s = w.holder(s, c.App)
		}
	}
	switch c.Verb {
	case Edit:
		w.edit(s, c)
	case Burst:
		for i := range c.Count {
			one := c
			one.App, one.N = s.called(fmt.Sprint("burst-", i%20)), 1000*c.N+i
			w.edit(w.keeper(s, one.App), one)
		}
	case Remove:
		w.remove(s, c)
	case Recreate:
		c.Cascade = false
		w.remove(s, c)
		c.On = s.owner()
		w.create(s, c)
	case Move:
		w.change(s, c, stream.Hub, People, func(app application) bool {
			if !s.move(app) {
				return false
			}
			if s.Shared && str(app.child("spec", "destination"), "name") == s.Name {
				app.fields["spec"] = w.spec(s, c, stream.Hub) // it may have been another's
			}
			return true
		})
	case Handover:
		if !s.Shared {
			return
		}
		to := w.next(s)
		w.change(s, c, stream.Hub, People, func(app application) bool {
			if to == s || app.deleting() {
				return false
			}
			app.fields["spec"] = w.spec(to, c, stream.Hub)
			return true
		})
	case Ignore:
		w.change(s, c, s.owner(), People, func(app application) bool {
			labels := app.ensure("metadata", "labels")
			if app.ignored() {
				delete(labels, "argocd-agent.argoproj-labs.io/ignore-sync")
			} else {
				labels["argocd-agent.argoproj-labs.io/ignore-sync"] = "true"
			}
			return true
		})
	case Status:
		w.change(s, c, stream.Spoke, Controller, func(app application) bool {
			app.ensure("status")["sync"] = map[string]any{"status": "Synced", "revision": s.mark(c)}
			return true
		})
	case Sync:
		w.change(s, c, stream.Hub, People, func(app application) bool {
			w.put(app)
			return press(app)
		})
	case Terminate:
		w.change(s, c, stream.Hub, People, func(app application) bool {
			if app.operation() == nil || app.state() == nil || completed(app.state()) {
				return false
			}
			app.state()["phase"] = "Terminating"
			return true
		})
	case Refresh, Hydrate:
		w.change(s, c, stream.Hub, People, func(app application) bool {
			key := refreshAnnotation
			if c.Verb == Hydrate {
				key = hydrateAnnotation
			}
			app.ensure("metadata", "annotations")[key] = "normal"
			return true
		})
	case AutoSync:
		w.change(s, c, stream.Spoke, Controller, func(app application) bool {
			if app.deleting() || app.operation() != nil {
				return false
			}
			app.fields["operation"] = map[string]any{
				"sync": map[string]any{"revision": s.mark(c)}, "initiatedBy": map[string]any{"automated": true},
			}
			w.put(app)
			delete(app.child("status"), "operationState")
			return true
		})
	case Fight:
		w.fight(s, c)
	case Approve:
		w.approve(s, c)
	case Cut:
		s.cut()
	case Renew:
		if p := s.site.process(); p != nil {
			w.connect(p)
		}
	case Rebuild:
		for _, one := range w.beside(s) {
			if !w.met(one) {
				return // nothing on the hub could tell it from a first contact
			}
		}
		w.generations++
		s.site.lost.Store(true)
		w.journal.add(Entry{Place: s.place(), Note: Rebuilt})
		w.open(s.site.cluster, w.generations)
		w.installed(s)
		for _, one := range w.beside(s) {
			for _, p := range one.site.living() {
				p.die()
			}
		}
	case Accept:
		w.accept(s)
	}
}

// owner is the side whose people write the agent's Applications.
func (a Agent) owner() stream.Side {
	if a.Mode == stream.Managed {
		return stream.Hub
	}
	return stream.Spoke
}

// mark is content that tells the agent it belongs to, and is like no other.
func (a Agent) mark(c Command) string { return fmt.Sprintf("of/%s/%s/%d", a.Name, c.App, c.N) }

// called is the name of one of its Applications, which in a shared namespace tells whose
// it was at first.
func (a Agent) called(app string) string {
	if a.Shared {
		return a.Name + "." + app
	}
	return app
}

func (a Agent) key(side stream.Side, name string) stream.ResourceKey {
	namespace := a.home()
	switch {
	case a.Shared:
		namespace = sharedNamespace
	case side == stream.Hub:
		namespace = a.Name
	}
	return stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: name}
}

// store is a client of a side of the link, for a writer.
func (w *Fleet) store(s *spoke, side stream.Side, writer Writer) *memory.Store {
	at := s.site
	if side == stream.Hub {
		at = w.hub
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	if writer == Controller {
		return at.controller
	}
	return at.people
}

func (s *spoke) side(c Command) stream.Side {
	if c.On == 0 {
		return s.owner()
	}
	return c.On
}

// change lets a writer change the Application as its cache shows it.
func (w *Fleet) change(s *spoke, c Command, side stream.Side, writer Writer, do func(application) bool) {
	store := w.store(s, side, writer)
	o, ok := store.Get(s.key(side, c.App))
	if !ok {
		return
	}
	if app := parse(o.Raw); do(app) {
		_, err := store.Update(w.ctx, o, app.raw())
		w.live(c, err)
	}
}

// edit creates an Application or gives it another spec and label. On the side
// that does not own it, it only changes what is there.
func (w *Fleet) edit(s *spoke, c Command) {
	side := s.side(c)
	if _, ok := w.store(s, side, People).Get(s.key(side, c.App)); !ok {
		if side == s.owner() {
			w.create(s, c)
		}
		return
	}
	w.change(s, c, side, People, func(app application) bool {
		app.fields["spec"] = w.spec(s, c, side)
		ignored := app.ignored()
		labels := map[string]any{fmt.Sprint("l", c.N%3): fmt.Sprint(c.N)}
		if ignored {
			labels["argocd-agent.argoproj-labs.io/ignore-sync"] = "true"
		}
		app.ensure("metadata")["labels"] = labels
		return true
	})
}

func (w *Fleet) create(s *spoke, c Command) {
	side := s.side(c)
	key := s.key(side, c.App)
	if w.site(s, side).doomed(key.Namespace) {
		return
	}
	app := application{map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{
			"name": key.Name, "namespace": key.Namespace, "creationTimestamp": ahead(&w.site(s, side).apiClock).UTC().Format(time.RFC3339),
		},
		"spec": w.spec(s, c, side),
	}}
	if c.Cascade {
		app.setCascade(true)
	}
	_, err := w.store(s, side, People).Create(w.ctx, key, app.raw())
	w.live(c, err)
}

func (w *Fleet) spec(s *spoke, c Command, side stream.Side) map[string]any {
	destination := map[string]any{"name": s.Name, "namespace": "default"}
	if side == stream.Spoke {
		destination = map[string]any{"server": "https://kubernetes.default.svc", "namespace": "default"}
	}
	spec := map[string]any{
		"project": "default", "destination": destination,
		"source": map[string]any{"repoURL": "file:///repo", "targetRevision": s.mark(c), "helm": map[string]any{
			"valuesObject": map[string]any{"key": nil},
		}},
	}
	if w.trace.Fields {
		extras(spec, c.N)
	}
	return spec
}

// move sends a managed Application elsewhere, or back.
func (a Agent) move(app application) bool {
	if a.Mode != stream.Managed {
		return false
	}
	destination := app.child("spec", "destination")
	if destination["name"] == a.Name {
		destination["name"] = "elsewhere"
	} else {
		destination["name"] = a.Name
	}
	return true
}

// press is what argocd-server does for the button sync.
func press(app application) bool {
	if app.operation() != nil || app.deleting() {
		return false
	}
	app.fields["operation"] = map[string]any{"sync": map[string]any{"syncOptions": []any{"Validate=false"}}}
	delete(app.child("status"), "operationState")
	return true
}

// remove deletes an Application, with or without its workloads.
func (w *Fleet) remove(s *spoke, c Command) {
	side := s.side(c)
	store := w.store(s, side, People)
	o, ok := store.Get(s.key(side, c.App))
	if !ok {
		return
	}
	app := parse(o.Raw)
	if app.deleting() {
		return
	}
	app.ensure("metadata")["finalizers"] = nil
	app.setCascade(c.Cascade)
	o, err := store.Update(w.ctx, o, app.raw())
	if err == nil {
		err = store.Delete(w.ctx, o.Key, backends.Preconditions{UID: o.UID, ResourceVersion: o.ResourceVersion})
	}
	w.live(c, err)
}

// live panics unless the error of a person's call is one that people live with.
func (w *Fleet) live(c Command, err error) {
	if err != nil && !errors.Is(err, stream.ErrConflict) && !errors.Is(err, stream.ErrNotFound) && w.ctx.Err() == nil {
		panic(fmt.Sprintf("sim: %s: %v", c, err))
	}
}

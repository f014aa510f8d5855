package sim

import (
	"fmt"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// act does one random thing that people, controllers or fate do.
func (w *World) act(step int) {
	name := fmt.Sprint("app-", w.chance.n(6))
	switch w.chance.n(16) {
	case 0, 1, 2, 3:
		w.edit(w.owner(), name, step)
	case 4:
		w.remove(w.owner(), name, false)
	case 5:
		w.remove(w.owner(), name, true)
	case 6:
		w.edit(w.other(), name, step) // on the wrong side
	case 7:
		w.remove(w.other(), name, false) // likewise
	case 8, 9:
		w.status(name, step)
	case 10, 11:
		w.sync(name)
	case 12:
		w.cutLink()
	case 13:
		if w.chance.n(3) == 0 {
			w.kill(w.sides[w.chance.n(2)])
		}
	case 14:
		w.faulty.Store(w.chance.n(2) == 0)
	case 15:
		w.pause(w.chance.upTo(40e9)) // longer than the peer may be silent
	}
	w.pause(w.chance.upTo(400e6))
}

// edit creates an Application or gives it another spec and labels.
func (w *World) edit(s *side, name string, step int) {
	key := s.key(name)
	o, ok := s.server.Get(key)
	if !ok {
		if s != w.owner() {
			return
		}
		meta := map[string]any{"name": name, "namespace": key.Namespace}
		if w.chance.n(2) == 0 {
			meta["finalizers"] = []any{cascade}
		}
		w.try(s.server.Create(w.ctx, key, text(map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": meta, "spec": w.spec(step),
		})))
		return
	}
	app := parse(o)
	app["spec"] = w.spec(step)
	app["metadata"].(map[string]any)["labels"] = map[string]any{fmt.Sprint("l", w.chance.n(3)): fmt.Sprint(step)}
	w.try(s.server.Update(w.ctx, o, text(app)))
}

func (w *World) spec(step int) map[string]any {
	destination := map[string]any{"name": agentName, "namespace": "default"}
	if w.mode == stream.Autonomous {
		destination = map[string]any{"server": "https://kubernetes.default.svc", "namespace": "default"}
	}
	return map[string]any{
		"project": "default", "destination": destination,
		"source": map[string]any{"repoURL": "file:///repo", "targetRevision": fmt.Sprint(step), "helm": map[string]any{
			"valuesObject": map[string]any{"key": nil},
		}},
	}
}

// remove deletes an Application, with or without its workloads.
func (w *World) remove(s *side, name string, cascading bool) {
	o, ok := s.server.Get(s.key(name))
	if !ok {
		return
	}
	app := parse(o)
	meta := app["metadata"].(map[string]any)
	if meta["deletionTimestamp"] != nil {
		return
	}
	meta["finalizers"] = nil
	if cascading {
		meta["finalizers"] = []any{cascade}
	}
	o, err := s.server.Update(w.ctx, o, text(app))
	if err != nil {
		w.try(o, err)
		return
	}
	if s == w.owner() && cascading {
		// Intent is there from the moment on at which the deletion can succeed.
		w.mu.Lock()
		w.intended[o.UID] = true
		w.mu.Unlock()
	}
	if err := s.server.Delete(w.ctx, o.Key, pre(o)); err != nil && !retryable(err) {
		w.breaks("delete: %v", err)
	}
}

// status is the spoke's controller showing something new.
func (w *World) status(name string, step int) {
	s := w.spoke()
	o, ok := s.server.Get(s.key(name))
	if !ok {
		return
	}
	app := parse(o)
	status, _ := app["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
	}
	status["sync"] = map[string]any{"status": "Synced", "revision": fmt.Sprint(step)}
	app["status"] = status
	w.try(s.server.Update(w.ctx, o, text(app)))
}

// sync presses the button on the hub, as argocd-server does.
func (w *World) sync(name string) {
	s := w.hub()
	o, ok := s.server.Get(s.key(name))
	if !ok {
		return
	}
	app := parse(o)
	if app["operation"] != nil || app["metadata"].(map[string]any)["deletionTimestamp"] != nil {
		return
	}
	app["operation"] = map[string]any{"sync": map[string]any{"revision": "HEAD"}}
	if status, ok := app["status"].(map[string]any); ok {
		delete(status, "operationState")
	}
	w.try(s.server.Update(w.ctx, o, text(app)))
}

// try takes the result of a person's call: people live with conflicts.
func (w *World) try(_ backends.Object, err error) {
	if err != nil && !retryable(err) && w.ctx.Err() == nil {
		w.breaks("call: %v", err)
	}
}

func pre(o backends.Object) backends.Preconditions {
	return backends.Preconditions{UID: o.UID, ResourceVersion: o.ResourceVersion}
}

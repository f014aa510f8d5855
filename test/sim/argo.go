package sim

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/argomesh/argomesh/backends"
)

// What Argo CD's controller writes in histories with ArgoCD, beside what it does in all of
// them:
//
//   - A reconciliation reads the Application from the cache and ends up to reconcileTime
//     later with patches that have no resourceVersion: the spec in its normal form as far
//     as what was read differs from that, and the status with reconciledAt, alone when
//     nothing else is new (persistAppStatus, normalizeApplication).
//   - The state of an operation is a patch, and so is its end, which takes the operation
//     away (setOperationState). What fails is tried again: phase Running with finishedAt.
//   - An automated sync is a PUT of the typed object that was read before
//     (SetAppOperation): explicit zero values are gone with it, as with the buttons of
//     argocd-server.
//   - A deletion with resources that want a confirmation waits for the annotation of the
//     Application.

const approvedAnnotation = "argocd.argoproj.io/deletion-approved"

// confirmPath is the path of a source with resources that want a confirmation.
const confirmPath = "confirm"

// retryShare is of how many operations one is tried again.
const retryShare = 3

// waits reports whether the deletion of an Application waits for a confirmation, which is
// one unless it is from before the deletion.
func (a application) waits() bool {
	if str(a.child("spec", "source"), "path") != confirmPath {
		return false
	}
	deleted, err := time.Parse(time.RFC3339, a.meta("deletionTimestamp"))
	at, confirmed := time.Parse(time.RFC3339, a.annotation(approvedAnnotation))
	return err == nil && (confirmed != nil || at.Before(deleted))
}

// extras adds to a spec what histories with Fields have.
func extras(spec map[string]any, n int) {
	source, _ := spec["source"].(map[string]any)
	switch n % 5 {
	case 0:
		spec["syncPolicy"] = map[string]any{"automated": map[string]any{"enabled": false, "prune": true, "selfHeal": false}}
	case 1:
		spec["syncPolicy"] = map[string]any{"automated": map[string]any{"prune": false, "selfHeal": true}, "syncOptions": []any{}}
		source["kustomize"] = map[string]any{"forceCommonLabels": true}
	case 2:
		spec["sourceHydrator"] = map[string]any{"syncSource": map[string]any{"path": "hydrated"}}
		source["directory"] = map[string]any{"recurse": false, "jsonnet": map[string]any{"libs": []any{}}}
	case 3:
		source["kustomize"] = map[string]any{"namePrefix": "", "images": []any{"a"}}
		spec["syncPolicy"] = map[string]any{"syncOptions": []any{}}
	}
	if n%7 == 0 {
		source["path"] = confirmPath
	}
}

// typed drops explicit zero values from a spec of Argo CD's type, as its Go types do: from
// what extras writes.
func typed(spec map[string]any) {
	for _, path := range [][]string{{"syncPolicy", "automated"}, {"syncPolicy"}, {"source", "kustomize"}, {"source", "directory", "jsonnet"}, {"source", "directory"}} {
		m := application{spec}.child(path...)
		for name, value := range m {
			// "enabled" is a pointer, and stays.
			if zero(value) && name != "enabled" && name != "jsonnet" {
				delete(m, name)
			}
		}
	}
}

func zero(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	}
	return reflect.ValueOf(v).IsZero()
}

// normal brings a spec into the form that a controller gives it, of what extras writes.
func normal(spec map[string]any) {
	typed(spec)
	source := application{spec}.child("source")
	kustomize, has := source["kustomize"].(map[string]any)
	if has && zero(kustomize["images"]) && zero(kustomize["namePrefix"]) {
		delete(source, "kustomize")
	}
	if directory, has := source["directory"].(map[string]any); has && zero(directory["recurse"]) {
		delete(source, "directory")
	}
	if policy, has := spec["syncPolicy"].(map[string]any); has && len(policy) == 0 {
		delete(spec, "syncPolicy")
	}
}

// copied is a deep copy of generic JSON.
func copied(fields map[string]any) map[string]any {
	var out map[string]any
	_ = json.Unmarshal(application{fields}.raw(), &out) // it was just written
	return out
}

// put is a PUT of the typed object.
func (w *Fleet) put(app application) {
	if spec := app.child("spec"); w.trace.ArgoCD && spec != nil {
		typed(spec)
	}
}

// persists is what a reconciliation that began with app writes at its end, as a patch.
func (c *controller) persists(app application, began string, sync bool) func(application) {
	read := copied(app.child("spec"))
	typed(read) // of two typed objects what differs is patched
	spec := copied(read)
	normal(spec)
	revision := str(app.child("spec", "source"), "targetRevision")
	return func(now application) {
		merge(now.fields, read, spec, "spec")
		status := now.ensure("status")
		if status["reconciledAt"] = began; sync {
			status["sync"] = map[string]any{"status": "Synced", "revision": revision}
		}
	}
}

// retries has a failed operation tried again, and reports whether it does.
func (c *controller) retries(app application, uid string) bool {
	state := app.state()
	count, _ := state["retryCount"].(float64)
	if !c.fleet.trace.ArgoCD || count >= 2 || c.fleet.chance.n(c.actor+" retries "+uid, retryShare) != 0 {
		return false
	}
	state["retryCount"], state["finishedAt"], state["message"] = count+1, c.now(), "failed, retrying"
	c.ends[uid] = time.Now().Add(c.fleet.chance.upTo(c.actor+" operation "+uid, operationTime))
	return true
}

// writes carries out what look found due: a patch of what it changed, as the cache showed
// it, with ArgoCD; else an update of that.
func (c *controller) writes(store backends.Store, o backends.Object, app application) error {
	if !c.fleet.trace.ArgoCD {
		_, err := store.Update(c.fleet.ctx, o, app.raw())
		return err
	}
	read, meta := parse(o.Raw), app.child("metadata")
	c.patch(store, o.Key, func(now application) {
		if now.meta("uid") != o.UID {
			return // it goes to what has the name; nothing of an end does
		}
		for _, field := range []string{"operation", "status"} {
			merge(now.fields, read.fields[field], app.fields[field], field)
		}
		for _, field := range []string{"annotations", "finalizers"} {
			merge(now.ensure("metadata"), read.child("metadata")[field], meta[field], field)
		}
	})
	return nil
}

// merge is a merge patch of a field, from was to is.
func merge(into map[string]any, was, is any, field string) {
	before, wasMap := was.(map[string]any)
	after, isMap := is.(map[string]any)
	switch {
	case reflect.DeepEqual(was, is):
	case is == nil:
		delete(into, field)
	case !wasMap || !isMap:
		into[field] = is
	default:
		child, there := into[field].(map[string]any)
		if !there {
			child = map[string]any{}
			into[field] = child
		}
		for name := range before {
			merge(child, before[name], after[name], name)
		}
		for name := range after {
			if _, both := before[name]; !both {
				merge(child, nil, after[name], name)
			}
		}
	}
}

// approve is a person who confirms a deletion.
func (w *Fleet) approve(s *spoke, c Command) {
	side := s.side(c)
	now := ahead(&w.site(s, side).apiClock).UTC().Format(time.RFC3339)
	w.change(s, c, side, People, func(app application) bool {
		app.ensure("metadata", "annotations")[approvedAnnotation] = now
		return app.deleting()
	})
}

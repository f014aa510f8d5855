package sim

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/stream"
)

const (
	adoptionAnnotation = "argocd.argoproj.io/adoption-policy"
	adoptAlways        = "always"
	adoptNever         = "never"

	kindProject    = "project"
	kindRepository = "repository"

	marksHub   = "hub"
	marksAgent = "agent"
)

// foundMark begins what an object says that was there before, and foundSecret the names
// of what is kept of it.
const (
	foundMark   = "found/"
	foundSecret = "argomesh-found-"
)

// other is the side on which copies are.
func (a Agent) other() stream.Side {
	if a.owner() == stream.Hub {
		return stream.Spoke
	}
	return stream.Hub
}

// keyOf is where a copy of the agent is, or would be.
func (a Agent) keyOf(c Command) (stream.ResourceKey, bool) {
	if c.Kind != "" && a.Mode != stream.Managed {
		return stream.ResourceKey{}, false
	}
	switch c.Kind {
	case kindProject:
		return a.at(a.other(), a.projectOf()), true
	case kindRepository:
		return a.at(a.other(), a.repositoryOf(c.App)), true
	}
	return a.key(a.other(), a.called(c.App)), true
}

// find makes an object where a copy would be, that no link has made: someone's own, or a
// copy of another hub, or of another agent.
func (w *Fleet) find(s *spoke, c Command) {
	side := s.other()
	key, is := s.keyOf(c)
	store := w.store(s, side, People)
	if _, there := store.Get(key); !is || there || w.site(s, side).doomed(key.Namespace) {
		return
	}
	mark := fmt.Sprint(foundMark, s.Name, "/", c.N)
	annotations := map[string]any{}
	if c.Says != "" {
		annotations[adoptionAnnotation] = c.Says
	}
	if c.Marks != "" {
		hub, agent := hubUID, s.Name+"-other"
		if c.Marks == marksHub {
			hub, agent = "other-hub", s.Name
		}
		if side == stream.Spoke || c.Marks == marksHub { // a mirror on the hub names none
			annotations["argocd.argoproj.io/principal-uid"] = hub
		}
		annotations["argocd.argoproj.io/source-uid"] = "elsewhere-" + fmt.Sprint(c.N)
		record, _ := json.Marshal(map[string]any{"agent": agent, "hash": "0", "revision": 1, "created": 1}) // it has no value that fails
		annotations["argomesh.io/source"] = string(record)
	}
	object := application{map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": string(key.Kind),
		"metadata": map[string]any{"name": key.Name, "namespace": key.Namespace, "annotations": annotations},
	}}
	switch key.Kind {
	case stream.AppProject:
		object.fields["spec"] = map[string]any{"description": mark, "sourceRepos": []any{"*"}}
	case stream.Secret:
		object.fields["apiVersion"] = "v1"
		object.ensure("metadata", "labels")["argocd.argoproj.io/secret-type"] = "repository"
		object.fields["data"] = map[string]any{"password": base64.StdEncoding.EncodeToString([]byte(mark))}
	default:
		object.fields["spec"] = map[string]any{
			"project": "default", "destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": "default"},
			"source":     map[string]any{"repoURL": "file:///found", "targetRevision": mark},
			"syncPolicy": map[string]any{"automated": map[string]any{"prune": true}},
		}
		object.setCascade(c.Cascade)
	}
	_, err := store.Create(w.ctx, key, object.raw())
	w.live(c, err)
}

// allow changes what an object says of its adoption.
func (w *Fleet) allow(s *spoke, c Command) {
	key, is := s.keyOf(c)
	store := w.store(s, s.other(), People)
	o, there := store.Get(key)
	if !is || !there {
		return
	}
	app := parse(o.Raw)
	if annotations := app.ensure("metadata", "annotations"); c.Says == "" {
		delete(annotations, adoptionAnnotation)
	} else {
		annotations[adoptionAnnotation] = c.Says
	}
	_, err := store.Update(w.ctx, o, app.raw())
	w.live(c, err)
}

// site is that of a side of an agent's link.
func (w *Fleet) site(s *spoke, side stream.Side) *site {
	if side == stream.Hub {
		return w.hub
	}
	return s.site
}

// marks are what of an object says whose copy it is.
type marks struct {
	source, hub, agent string
	adopted            string // the UID of what was found
	hash               string
}

func (a application) marks() marks {
	var rec struct {
		Agent   string `json:"agent"`
		Adopted string `json:"adopted"`
		Hash    string `json:"hash"`
	}
	text := a.annotation("argomesh.io/source")
	// A record that is broken names no one.
	_ = json.Unmarshal([]byte(text), &rec)
	if text == "" {
		return marks{}
	}
	return marks{a.sourceUID(), a.annotation("argocd.argoproj.io/principal-uid"), rec.Agent, rec.Adopted, rec.Hash}
}

// ours reports whether marks are those of an agent's link, on that side.
func (m marks) ours(agent string, hub bool) bool {
	return m.source != "" && m.agent == agent && (hub && m.hub == "" || !hub && m.hub == hubUID)
}

// content is what of an object is its owner's.
func content(o application) map[string]any {
	out := map[string]any{}
	for _, field := range []string{"spec", "data"} {
		if value := o.child(field); len(value) > 0 {
			var copied map[string]any
			_ = json.Unmarshal(application{value}.raw(), &copied) // it was just written
			out[field] = copied
		}
	}
	return out
}

// tookOver is I4 for what a link finds: it writes over nothing that it did not make, unless
// the owner of the place allows it, and gives back what it found.
func (c *checker) tookOver(v *view, e Entry, before, after application) {
	if e.Writer != AgentSide && e.Writer != Principal || e.Key.Kind == stream.ConfigMap {
		return
	}
	hub := e.Place == hubPlace
	if hub == (v.owner() == stream.Hub) {
		return // it writes no copies there
	}
	was, is := before.marks(), after.marks()
	switch {
	case e.Gone: // of what has no marks others look after
		if was.source != "" && !was.ours(v.Name, hub) || was.adopted == e.UID && before.meta("deletionTimestamp") == "" {
			c.breaks("I4", v, "what it did not make was deleted: %s", e)
		}
	case was.ours(v.Name, hub) && is.source == "" && e.Key == v.defaultOf():
		c.gaveUp(v, e, before, after)
	case was.ours(v.Name, hub) && is.source == "":
		c.gaveBack(v, e, was, after)
	case was.ours(v.Name, hub):
	case is.adopted != e.UID || !is.ours(v.Name, hub):
		c.breaks("I4", v, "what is somebody else's was written, and not as one adopts: %s", e)
	case was.source != "":
		c.breaks("I4", v, "a copy of somebody else was adopted: %s", e)
	default:
		c.adopts(v, e, before)
	}
}

// adopts is the check of an adoption.
func (c *checker) adopts(v *view, e Entry, before application) {
	said, allowed := before.annotation(adoptionAnnotation), v.allowed(e, setAdopt, v.other())
	if e.Key == v.defaultOf() {
		allowed = allowed || v.allowed(e, setAdoptDefault, v.other())
	}
	if said == adoptNever || said != adoptAlways && !allowed {
		c.breaks("I4", v, "it was adopted, and its owner does not allow that: %s", e)
	}
	v.found[e.UID] = before
}

// allowed reports whether a setting is on, or was on when a late write was decided.
func (v *view) allowed(e Entry, name string, side stream.Side) bool {
	s := v.switched[setting{name, side}]
	return s.on || s.known && e.At-s.at <= lateTime
}

// lateTime is how long a call may be under way, on a slow store and of a process that died.
const lateTime = 30 * time.Second

// withoutAutomated is content without automated synchronization, and without a policy that
// says no more.
func withoutAutomated(content map[string]any) map[string]any {
	spec, _ := content["spec"].(map[string]any)
	policy, _ := spec["syncPolicy"].(map[string]any)
	if _, automated := policy["automated"]; automated {
		if delete(policy, "automated"); len(policy) == 0 {
			delete(spec, "syncPolicy")
		}
	}
	return content
}

// gaveBack is the check of what is given back. An Application comes back without automated
// synchronization.
func (c *checker) gaveBack(v *view, e Entry, was marks, after application) {
	found, known := v.found[e.UID]
	if was.adopted == "" || !known {
		c.breaks("I4", v, "a copy that was not adopted is without marks: %s", e)
		return
	}
	if diff := cmp.Diff(withoutAutomated(content(found)), content(after)); diff != "" {
		c.breaks("I4", v, "what was found does not come back (-found +now):\n%s%s", diff, e)
	}
	if after.operation() != nil || after.cascades() != found.cascades() {
		c.breaks("I4", v, "what was found comes back with an operation, or another cascade: %s", e)
	}
}

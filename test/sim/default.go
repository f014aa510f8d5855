package sim

import (
	"fmt"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/stream"
)

// The AppProject default, which each Argo CD makes. A spoke keeps its own, unless the
// principal shares the hub's (projects.share_default) and the spoke's owner lets it adopt
// that (policy.adopt). When the principal shares it no more, copies are given up: they stay,
// and are their owner's.

// defaultKey is where the AppProject default of the hub is.
func defaultKey() stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.AppProject, Namespace: argocdNamespace, Name: "default"}
}

// defaultOf is where an agent's copy of it is.
func (a Agent) defaultOf() stream.ResourceKey { return a.at(stream.Spoke, defaultKey()) }

// installed makes what each Argo CD makes on a cluster that is new.
func (w *Fleet) installed(s *spoke) {
	if !w.trace.Default {
		return
	}
	people := w.store(s, stream.Spoke, People)
	for _, one := range w.beside(s) {
		openProject(w.ctx, people, one.defaultOf())
	}
}

// share switches whether the principal shares the AppProject default, for all managed
// agents, and starts it again.
func (w *Fleet) share(on bool) {
	changes := false
	for _, a := range w.trace.Agents { // in one order
		s := w.spokes[a.Name]
		if a.Mode == stream.Managed && s.settings.set(setting{setShare, stream.Hub}, on) {
			w.journal.add(Entry{Place: a.Name, Note: Switched, Side: stream.Hub, Setting: setShare, On: on})
			changes = true
		}
	}
	if p := w.hub.process(); p != nil && changes {
		p.die()
	}
}

// shared is what a hub has decided of it, and keeps.
func (s *switches) shared() ownership.DefaultProject {
	s.mu.Lock()
	defer s.mu.Unlock()
	on, was := s.on[setting{setShare, stream.Hub}]
	switch {
	case on:
		return ownership.Shared
	case was:
		return ownership.NoLongerShared
	}
	return ownership.NotShared
}

// writeDefault is a person of a place who writes its AppProject default, or deletes it. The
// hub's stays: without it no Application leaves the hub.
func (w *Fleet) writeDefault(c Command) {
	people, key := w.hub.people, defaultKey()
	s := w.spokes[c.Place]
	if s != nil {
		people, key = w.store(s, stream.Spoke, People), s.defaultOf()
	}
	o, there := people.Get(key)
	if !there {
		return
	}
	var err error
	if c.Off && s != nil {
		err = people.Delete(w.ctx, o.Key, backends.Preconditions{UID: o.UID})
	} else {
		project := parse(o.Raw)
		project.ensure("spec")["description"] = fmt.Sprint("default of ", c.Place, " ", c.N)
		_, err = people.Update(w.ctx, o, project.raw())
	}
	w.live(c, err)
}

// keepsDefault is I4 for the AppProject default: an agent never deletes it.
func (c *checker) keepsDefault(v *view, e Entry) {
	if e.Gone && e.Key == v.defaultOf() {
		c.breaks("I4", v, "the agent deleted the AppProject default: %s", e)
	}
}

// gaveUp is the check of a copy of the AppProject default that is given up: that is when the
// hub does not share it, and it stays as it is unless it was adopted.
func (c *checker) gaveUp(v *view, e Entry, before, after application) {
	if shared := v.switched[setting{setShare, stream.Hub}]; shared.on && e.At-shared.at > lateTime {
		c.breaks("I4", v, "the AppProject default is given up, which the hub shares: %s", e)
	}
	if was := before.marks(); was.adopted != "" {
		c.gaveBack(v, e, was, after)
		return
	}
	if diff := cmp.Diff(content(before), content(after)); diff != "" {
		c.breaks("I4", v, "what is given up does not stay as it was (-before +after):\n%s%s", diff, e)
	}
}

// keepsOwnDefault reports whether the owner of a spoke lets no one have its AppProject
// default, which he does by saying nothing.
func (v *view) keepsOwnDefault() bool {
	return !v.switched[setting{setAdopt, stream.Spoke}].on && !v.switched[setting{setAdoptDefault, stream.Spoke}].on
}

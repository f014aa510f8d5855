package sim

import "github.com/argomesh/argomesh/stream"

// A deletion with its workloads that the hub has seen removes them: the copy goes by a
// cascade, and only then does the hub end the deletion. That is checked of Applications of
// which nothing else was ever said.

// ends reports whether what a hub shows of an Application is its deletion together with its
// workloads.
func (v *view) ends(o *object) bool {
	return o.deleting() && o.cascades() && !o.ignored() && v.destined(o) && v.selects(o)
}

// follow notes what the owner's side shows of an Application, and what it wanted before.
func (in *intent) follow(by Writer, before, desired, ends bool) {
	switch {
	case ends && before:
		in.ending = true
	case !desired && !ends && (!in.ending || by == People):
		in.unsteady = true
	}
}

// unsettle says of all Applications of an agent that they went another way: their place was
// restored, or made again.
func (v *view) unsettle() {
	v.restored = true
	for _, in := range v.intents {
		in.unsteady = true
	}
}

// ended reports whether the hub was asked to remove the workloads of an Application, and
// for nothing else.
func (c *checker) ended(v *view, uid string) bool {
	in := v.intents[uid]
	return v.Mode == stream.Managed && c.restored == 0 && in != nil && in.ending && !in.unsteady
}

// late is object.late of a copy after a change.
func (v *view) late(before, after *object, source string) bool {
	in := v.intents[source]
	began := before == nil && in != nil && in.over || before != nil && before.late
	return began && !after.deploys() && after.operation() == nil && after.state() == nil
}

// stays is I4 for a copy that the agent deletes and whose workloads stay. One that came to be
// when all was over, and on which Argo CD could not act, has none.
func (c *checker) stays(v *view, e Entry, last *object, source string) {
	if c.ended(v, source) && last.deletedBy == AgentSide && !v.cascaded[source] && !last.late {
		c.breaks("I4", v, "the workloads stay, which the hub was asked to remove: %s", e)
	}
}

// endsEarly is I4 for the hub, which ends the deletion of what is still there.
func (c *checker) endsEarly(v *view, e Entry, before, after *object) {
	if e.Writer != Principal || before == nil || !before.deleting() || !before.cascades() || after.cascades() || !c.ended(v, before.uid) || v.letGo(before) {
		return
	}
	for _, o := range c.places[v.place()] {
		if o.sourceUID() == before.uid && o.marks().agent == v.Name {
			c.breaks("I4", v, "the hub ends a deletion, and its copy is there: %s", e)
		}
	}
}

// unconfirmed are a managed agent's copies whose deletion waits for another writer on the spoke to
// confirm it: what the hub had of them is not the agent's any more, so it does not say more.
func (c *checker) unconfirmed(v *view) []string {
	var names []string
	hub := c.final(hubPlace, v)
	for name, copied := range c.final(v.place(), v) {
		o := c.places[v.place()][v.key(stream.Spoke, name)]
		if v.Mode == stream.Managed && hub[name] == nil && copied["deleting"] == true && o != nil && o.cascades() && o.waits() {
			names = append(names, name)
		}
	}
	return names
}

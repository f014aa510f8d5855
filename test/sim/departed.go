package sim

import "github.com/argomesh/argomesh/stream"

// With an Agent goes what it asks for, and nothing else: with the policy orphan the hub
// keeps what is its own and the spoke what it has, and mirrors leave the hub; with cascade
// the Applications that there were go on both sides, first on the spoke.

// leaving is the deletion of an agent's Agent, as the checker follows it.
type leaving struct {
	cascade, over bool
	deleted       string // when, by the hub's API server
}

// goes reports whether an Application of the hub is to go with its agent.
func (v *view) goes(o *object) bool {
	return v.leaving != nil && v.leaving.cascade && o.meta("creationTimestamp") <= v.leaving.deleted && v.destined(o) && !o.ignored() && v.selects(o)
}

// returns reports whether an Application that was there before was moved to an agent that is
// leaving. The last look at what is to go may have been before, as for one that is made then:
// it may go or stay.
func (c *checker) returns(before, after *object) bool {
	for _, v := range c.agents {
		if v.leaving != nil && v.Mode == stream.Managed && v.destined(after) {
			return before.returned || !v.destined(before)
		}
	}
	return false
}

// departs follows the notes about an Agent that is deleted.
func (c *checker) departs(v *view, e Entry) {
	if e.Note == Departs {
		v.leaving = &leaving{cascade: e.On, deleted: e.Deleted}
		return
	}
	v.leaving.over = true
	for key, o := range c.places[hubPlace] {
		switch {
		case !v.has(key):
		case o.marks().ours(v.Name, true):
			c.breaks("I8", v, "its Agent is gone, and %s is left on the hub", key)
		case v.Mode == stream.Managed && v.destined(o) && !o.ignored() && v.selects(o) && o.deleting() && o.cascades():
			c.breaks("I8", v, "its Agent is gone, and the deletion of %s waits for it", key)
		case v.Mode == stream.Managed && v.goes(o) && !o.returned:
			c.breaks("I8", v, "its Agent is gone, and %s was to go with it", key)
		}
	}
}

// has reports whether an object of the hub is in the namespace of an agent's Applications.
func (v *view) has(key stream.ResourceKey) bool {
	return key.Namespace == v.key(stream.Hub, "").Namespace
}

// removes is I4 for the hub's own Applications: the principal deletes those alone that are to
// go with their agent.
func (c *checker) removes(v *view, e Entry, before, after *object) {
	asked := after.deleting() && (before == nil || !before.deleting()) || e.Gone && !after.deleting()
	if asked && e.Writer == Principal && !v.goes(after) {
		c.breaks("I4", v, "the principal deletes what is not to go with its agent: %s", e)
	}
}

// letGo reports whether the hub may end the deletion of an Application without a word of the
// spoke, which is no more asked.
func (v *view) letGo(o *object) bool { return v.leaving != nil && !v.goes(o) }

// departed is what must be at the end of an agent whose Agent was deleted.
func (c *checker) departed(v *view) {
	// A cascade waits for a person as other deletions do, where a history broke.
	if !v.leaving.over && (!v.leaving.cascade || v.held == 0) {
		c.breaks("I8", v, "its Agent is still there")
	}
}

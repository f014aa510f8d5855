package sim

import (
	"github.com/argomesh/argomesh/stream"
)

// keepAnnotation is what agentctl agent keep-workloads writes.
const keepAnnotation = "argomesh.io/keep-workloads"

// keep is a person who says of a managed agent's Applications, or of one, that are being
// deleted with their workloads: these stay.
func (w *Fleet) keep(s *spoke, c Command) {
	if s.Mode != stream.Managed {
		return
	}
	for _, o := range w.store(s, stream.Hub, People).List(stream.Application, s.key(stream.Hub, "").Namespace) {
		app := parse(o.Raw)
		if !app.deleting() || !app.cascades() || !(&view{Agent: s.Agent}).destined(&object{application: app}) ||
			c.App != "" && o.Key.Name != s.called(c.App) {
			continue
		}
		one := c
		one.App = o.Key.Name
		w.change(s, one, stream.Hub, People, func(app application) bool {
			app.ensure("metadata", "annotations")[keepAnnotation] = "true"
			return true
		})
	}
}

// keep notes that a person said of an Application that its workloads stay.
func (in *intent) keep(e Entry, after *object) {
	if in.kept == nil && e.Writer == People && after.deleting() && after.cascades() && after.annotation(keepAnnotation) == "true" {
		in.kept, in.unsteady = &e.At, true
	}
}

// takes is I4 for what a person has kept: no agent begins to delete its workloads once it
// knows.
func (c *checker) takes(v *view, e Entry, before, after *object, source string) {
	in := v.intents[source]
	if in == nil || in.kept == nil || c.late || c.restored != 0 || v.restored {
		return
	}
	if e.Writer == AgentSide && before != nil && !before.deleting() && after.deleting() && after.cascades() && e.At-*in.kept > lateTime {
		c.breaks("I4", v, "workloads go that a person has kept: %s", e)
	}
}

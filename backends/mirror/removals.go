package mirror

import (
	"time"

	"github.com/argomesh/argomesh/backends/cascades"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// removals are the Applications of the hub that are asked to go with their workloads.
type removals struct {
	*shared
	// ending are the Applications of the hub that are asked to go with their workloads,
	// and since when, orphaning those, by UID, that go without on someone's word, and
	// admission is what the link was last told of their number.
	ending    map[stream.EntryKey]time.Time
	orphaning map[stream.ResourceKey]string
	admission link.Cascades
}

// keepsWorkloads reports whether an Application leaves its workloads on someone's word. It is
// remembered for as long as the object is there: an ApplicationSet takes away annotations
// that are not of its template.
func (r *removals) keepsWorkloads(key stream.ResourceKey, current object.Object) bool {
	switch {
	case ownership.KeepsWorkloads(current) && r.rules.Sendable(current):
		r.orphaning[key] = current.UID()
		return true
	case r.orphaning[key] == current.UID():
		return current.Cascades()
	}
	delete(r.orphaning, key)
	return false
}

// cascade counts what an Application of the hub becomes, and tells the link what follows
// for the ends of all. It reports whether someone has accepted that this one goes.
func (r *removals) cascade(entry stream.EntryKey, key stream.ResourceKey, current *object.Object,
	content link.Content) (accepted bool) {
	if !r.counts(entry) {
		return false
	}
	_, kept := r.orphaning[key]
	before, after := cascades.Counted{UID: r.link.Desired(entry).SourceUID, Asked: r.ending[entry]},
		cascades.Counted{UID: content.Version.SourceUID}
	if before.UID == after.UID && content.Leaving != before.Asked.IsZero() {
		return kept // as it was
	}
	delete(r.ending, entry)
	if after.UID != "" {
		after.Created = ownership.TimeOf(*current, "creationTimestamp")
		if content.Leaving {
			after.Asked = ownership.TimeOf(*current, "deletionTimestamp")
			r.ending[entry] = after.Asked
		}
	}
	if r.env.cfg.Cascades != nil {
		accepted = r.env.cfg.Cascades.Count(r.rules.Agent, before, after, current != nil, r.env.cfg.Now())
		r.updateAdmission()
	}
	return kept || accepted
}

// updateAdmission tells the link what is made of the number of ends.
func (r *removals) updateAdmission() {
	if r.env.cfg.Cascades == nil || !r.counts(stream.EntryKey{Collection: stream.Applications}) {
		return
	}
	now := r.env.cfg.Now()
	next, recheckAt := r.env.cfg.Cascades.Admission(r.rules.Agent, now)
	if !recheckAt.IsZero() {
		r.scheduleLook(time.Now().Add(recheckAt.Sub(now)))
	}
	if next != r.admission {
		r.admission = next
		r.step(next)
	}
}

// clearHeld ends the hold once nothing is left that is held.
func (r *removals) clearHeld() {
	if r.admission.Held != "" && !r.link.Ending() {
		r.env.cfg.Cascades.Idle(r.rules.Agent)
		r.updateAdmission()
	}
}

// doomed returns which namespaces of this side are being deleted, by their name on the
// wire, when the link has a check made.
func (r *removals) doomed(places map[string]string) link.Doomed {
	doomed := link.Doomed{Namespaces: map[string]string{}}
	for namespace, why := range places {
		if wire, ours := r.rules.OnWire(namespace); ours {
			doomed.Namespaces[wire] = why
		}
	}
	return doomed
}

// namespacesToCheck are the namespaces of this side that a check is to look at.
func (r *removals) namespacesToCheck() []string {
	var namespaces []string
	if c := r.env.cfg.Cascades; r.env.cfg.TerminatingNamespaces == nil || c == nil || !c.HasLimit(r.rules.Agent) {
		return nil
	}
	for _, wire := range r.link.EndingNamespaces() {
		if namespace, ours := r.rules.Here(wire); ours {
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces
}

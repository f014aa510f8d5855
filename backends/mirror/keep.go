package mirror

import (
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// KeepWorkloadsKey is the annotation that lets an Application of the hub, which is being
// deleted with its workloads, go without them, if it has the value true. What a spoke
// has begun to delete it does not call back.
const KeepWorkloadsKey = ownPrefix + "keep-workloads"

// TakesWorkloads reports whether Argo CD deletes the workloads of an Application that has
// this finalizer.
func TakesWorkloads(finalizer string) bool { return isCascade(finalizer) }

// keepsWorkloads reports whether an Application that would take its workloads along is to
// leave them.
func keepsWorkloads(o object) bool { return o.cascades() && o.annotation(KeepWorkloadsKey) == "true" }

// counts reports whether an entry is one whose end is counted.
func (l *loop) counts(entry stream.EntryKey) bool {
	return entry.Collection == stream.Applications && l.rules.Side == stream.Hub && l.rules.Mode == stream.Managed
}

// keeps reports whether an Application leaves its workloads on somebody's word. It is
// remembered for as long as the object is there: an ApplicationSet takes away annotations
// that are not of its template.
func (l *loop) keeps(key stream.ResourceKey, current object) bool {
	switch {
	case keepsWorkloads(current) && l.rules.sendable(current):
		l.kept[key] = current.uid()
		return true
	case l.kept[key] == current.uid():
		return current.cascades()
	}
	delete(l.kept, key)
	return false
}

// cascade counts what an Application of the hub becomes, and tells the link what follows
// for the ends of all. It reports whether someone has accepted that this one goes.
func (l *loop) cascade(entry stream.EntryKey, key stream.ResourceKey, current *object, content link.Content) (accepted bool) {
	if !l.counts(entry) {
		return false
	}
	_, kept := l.kept[key]
	before, after := counted{uid: l.link.Desired(entry).SourceUID, asked: l.ending[entry]}, counted{uid: content.Version.SourceUID}
	if before.uid == after.uid && content.Leaving != before.asked.IsZero() {
		return kept // as it was
	}
	delete(l.ending, entry)
	if after.uid != "" {
		after.created = timeOf(*current, "creationTimestamp")
		if content.Leaving {
			after.asked = timeOf(*current, "deletionTimestamp")
			l.ending[entry] = after.asked
		}
	}
	if l.m.cfg.Cascades != nil {
		accepted = l.m.cfg.Cascades.note(l.rules.Agent, before, after, current != nil, l.m.cfg.Now())
		l.weighCascades()
	}
	return kept || accepted
}

// timeOf is a time of an object's metadata; the epoch when there is none, which is long
// ago and no zero time.
func timeOf(o object, name string) time.Time {
	t, err := time.Parse(time.RFC3339, o.meta(name))
	if err != nil {
		return time.Unix(0, 0)
	}
	return t
}

// weighCascades tells the link what is made of the number of ends.
func (l *loop) weighCascades() {
	if l.m.cfg.Cascades == nil || !l.counts(stream.EntryKey{Collection: stream.Applications}) {
		return
	}
	now := l.m.cfg.Now()
	gate, again := l.m.cfg.Cascades.gate(l.rules.Agent, now)
	if !again.IsZero() {
		l.lookAt(time.Now().Add(again.Sub(now)))
	}
	if gate != l.gate {
		l.gate = gate
		l.step(gate)
	}
}

// countAll looks at all that there is, and has it counted as a whole.
func (l *loop) countAll() {
	c := l.m.cfg.Cascades
	if c == nil || !l.counts(stream.EntryKey{Collection: stream.Applications}) {
		l.observeStore()
		return
	}
	c.begin(l.rules.Agent, l.m.tell)
	l.observeStore()
	c.filled(l.rules.Agent, l.m.cfg.Now())
	l.weighCascades()
}

// settleCascades notes when nothing is left that is held.
func (l *loop) settleCascades() {
	if l.gate.Held != "" && !l.link.Ending() {
		l.m.cfg.Cascades.idle(l.rules.Agent)
		l.weighCascades()
	}
}

// doomed returns which namespaces of this side are being deleted, by their name on the
// wire, when the link has a judgement made.
func (l *loop) doomed(places map[string]string) link.Doomed {
	doomed := link.Doomed{Places: map[string]string{}}
	for namespace, why := range places {
		if wire, ours := l.rules.onWire(namespace); ours {
			doomed.Places[wire] = why
		}
	}
	return doomed
}

// places are the namespaces of this side of which a judgement is to say that.
func (l *loop) places() []string {
	var places []string
	if c := l.m.cfg.Cascades; l.m.cfg.Places == nil || c == nil || !c.holds(l.rules.Agent) {
		return nil
	}
	for _, wire := range l.link.Places() {
		if namespace, ours := l.rules.here(wire); ours {
			places = append(places, namespace)
		}
	}
	return places
}

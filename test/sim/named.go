package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/stream"
)

// What the two sides do not agree about at the end is named, and rightly so.

// named is what the ends of an agent's link say at the end of entries, by side.
type named map[stream.Side]Entry

// of is what an end names of the object of that name; false when it names nothing.
func (n named) of(side stream.Side, collection stream.Collection, name string) (stream.Refusal, bool) {
	for key, refusal := range n[side].Refused {
		if key.Collection == collection && key.Name == name {
			return refusal, true
		}
	}
	return stream.Refusal{}, false
}

// drops reports whether an end says that an Application was applied in part.
func (n named) drops(name string) bool {
	for _, e := range n {
		for key := range e.Dropped {
			if key.Collection == stream.Applications && key.Name == name {
				return true
			}
		}
	}
	return false
}

// switched is what a setting is, and since when.
type switched struct {
	on, known bool
	at        time.Duration
}

// switches follows a setting of an agent: what the selector selects the hub's people want
// there, and else not.
func (c *checker) switches(v *view, i int, e Entry) {
	v.switched[setting{e.Setting, e.Side}] = switched{e.On, true, e.At}
	for key, o := range c.places[hubPlace] {
		if v.Mode == stream.Managed && key.Namespace == v.key(stream.Hub, "").Namespace && e.Setting == setSelector {
			v.want(i, People, o.uid, v.desires(o)).follow(People, false, v.desires(o), v.ends(o))
		}
	}
	if e.Setting == setShare {
		c.kinds.intend(v, i, People)
	}
}

// selects reports whether the hub's selector selects an Application.
func (v *view) selects(o *object) bool {
	_, labelled := o.child("metadata", "labels")[selected]
	return v.Mode != stream.Managed || labelled || !v.switched[setting{setSelector, stream.Hub}].on
}

// fightMemory is how long a fight is remembered after its end, and named.
const fightMemory = 6 * time.Minute

// faults are what was wrong at a place.
type faults struct {
	older, refusing bool
}

// faulted follows a note about what is wrong at a place.
func (c *checker) faulted(e Entry) {
	f := c.faults[e.Place]
	switch e.Note {
	case Upgraded:
		f.older = e.Older
	case Rebuilt:
		f.older = false
	case Refuses:
		f.refusing = e.On
	}
	c.faults[e.Place] = f
}

// excused reports whether an entry on which the sides do not agree is named on both, and
// there is what the name says.
func (c *checker) excused(v *view, now time.Duration, collection stream.Collection, name string) bool {
	hub, onHub := v.names.of(stream.Hub, collection, name)
	spoke, onSpoke := v.names.of(stream.Spoke, collection, name)
	switch {
	case !onHub && !onSpoke:
		return false
	case !onHub:
		hub = spoke
	}
	if collection == stream.Applications && !c.hasSource(v, name) {
		return false // who refused it remembers that for a while, and nothing disagrees
	}
	warranted := c.warranted(v, now, collection, name, hub)
	if warranted && (!onHub || !onSpoke) && bothName(hub.Kind) {
		c.breaks("I8", v, "%s %s is named on one side alone: %s", collection, name, hub.Message)
	}
	return warranted
}

// hasSource reports whether there is an Application where those of an agent come from.
func (c *checker) hasSource(v *view, name string) bool {
	if v.other() == stream.Hub {
		return c.places[v.place()][v.key(stream.Spoke, name)] != nil
	}
	return c.places[hubPlace][v.key(stream.Hub, name)] != nil
}

// bothName reports whether what is refused for that is named on both sides.
func bothName(kind stream.RefusalKind) bool {
	return kind == stream.RefusalNotOwned || kind == stream.RefusalDenied || kind == stream.RefusalInvalid
}

// warranted reports whether there is what a refusal says.
func (c *checker) warranted(v *view, now time.Duration, collection stream.Collection, name string, refusal stream.Refusal) bool {
	place, side := v.otherPlace(), v.other()
	switch refusal.Kind {
	case stream.RefusalNotOwned:
		m, there := c.marksOf(v, place, collection, name)
		return there && !m.ours(v.Name, side == stream.Hub) && c.namesHolder(v, m, refusal.Message)
	case stream.RefusalInvalid:
		f := c.faults[place]
		return f.older && strings.Contains(refusal.Message, "does not know") || f.refusing
	case stream.RefusalDenied:
		return v.switched[setting{setPolicy, stream.Spoke}].on || collection == stream.AppProjects && name == defaultKey().Name && v.keepsOwnDefault()
	case stream.RefusalContested:
		return slices.ContainsFunc(v.fights, func(e Entry) bool { return e.For == 0 || now < e.At+e.For+fightMemory })
	case stream.RefusalUnavailable:
		o := c.places[place][v.key(side, name)]
		return collection == stream.Applications && o != nil && o.deleting()
	}
	return false
}

// otherPlace is where an agent's copies are.
func (v *view) otherPlace() string {
	if v.other() == stream.Hub {
		return hubPlace
	}
	return v.place()
}

// marksOf are those of the object that is where an entry's copy would be.
func (c *checker) marksOf(v *view, place string, collection stream.Collection, name string) (marks, bool) {
	switch collection {
	case stream.AppProjects, stream.Repositories:
		kind := stream.AppProject
		if collection == stream.Repositories {
			kind = stream.Secret
		}
		if v.Mode == stream.Autonomous {
			name = v.mirrorOf(name)
		}
		o, there := c.kinds[place][v.at(v.other(), stream.ResourceKey{Kind: kind, Namespace: argocdNamespace, Name: name})]
		return o.application.marks(), there
	}
	o := c.places[place][v.key(v.other(), name)]
	if o == nil {
		return marks{}, false
	}
	return o.marks(), true
}

// shown checks what the hub shows at its Applications of what is named: what is refused is
// there, and nothing else.
func (c *checker) shown(v *view) {
	for key, o := range c.places[hubPlace] {
		if key.Namespace != v.key(stream.Hub, "").Namespace || v.Mode == stream.Managed && (o.ignored() || !v.destined(o) || !v.selects(o)) {
			continue
		}
		refusal, is := v.names.of(stream.Hub, stream.Applications, key.Name)
		told := conditionsOf(o)
		switch {
		case v.names[stream.Hub].Suspended || v.held > 0:
		case is && !refusal.Kind.Passing() && !strings.Contains(told, refusal.Message):
			if v.Mode == stream.Managed { // what the hub does not take the Agent names
				c.breaks("I8", v, "%s does not show why it is parked (%s): %q", key, refusal.Message, told)
			}
		case !is && strings.Contains(told, "agent "+v.Name+" did not apply it"):
			c.breaks("I8", v, "%s shows what is over: %q", key, told)
		}
	}
}

// conditionsOf are the messages of the conditions that we add.
func conditionsOf(o *object) string {
	list, _ := o.child("status")["conditions"].([]any)
	var said []string
	for _, one := range list {
		if m, _ := one.(map[string]any); strings.HasPrefix(str(m, "type"), "Argomesh") {
			said = append(said, str(m, "message"))
		}
	}
	return strings.Join(said, "; ")
}

// pruned takes from an owner's object what the place of its copies does not keep.
func (c *checker) pruned(v *view, kind stream.Kind, fields map[string]any) []schema.Dropped {
	if !c.faults[v.otherPlace()].older {
		return nil
	}
	return c.older[kind].Prune(map[string]any{"spec": fields["spec"]})
}

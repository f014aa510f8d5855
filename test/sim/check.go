package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/stream"
)

// Violation is an invariant of docs/design seen broken.
type Violation struct {
	Invariant string
	Agent     string
	Text      string
}

func (v Violation) String() string { return v.Invariant + ": agent " + v.Agent + ": " + v.Text }

// Check returns what a Log shows of broken invariants, oldest first. It is pure.
//
//   - I1: at the end each spec that the owner's side holds is on the other side.
//   - I2: no copy on a spoke goes back to a lower hub resourceVersion, within one
//     history of the hub that has a name.
//   - I3: a status that the principal wrote was on the spoke before, and not before the one
//     that the hub showed so far, unless something was restored or a process wrote late.
//   - I4: no workload and no object goes without the intent it takes, and what is deleted
//     together with its workloads goes with them.
//   - I5: no command runs twice, and none that was ended before it was sent.
//   - I6: nothing of one agent is ever at another one's place.
//   - I8: at the end both sides are equal and know it.
func Check(log Log) []Violation {
	c := &checker{
		places: map[string]map[stream.ResourceKey]*object{}, kinds: kinds{}, runs: map[string][]string{}, unsent: map[string]bool{},
		faults: map[string]faults{}, older: olderSchemas(), mended: mended{},
	}
	for _, a := range log.Agents {
		c.agents = append(c.agents, newView(a))
	}
	for i, e := range log.Entries {
		c.take(i, e)
	}
	return c.found
}

type checker struct {
	late     bool // a process may write what it decided long before
	agents   []*view
	places   map[string]map[stream.ResourceKey]*object
	kinds    kinds
	runs     map[string][]string // by command, each time it was started, wherever
	unsent   map[string]bool     // commands that the hub ended before it sent them
	restored time.Duration       // when the hub was last restored; zero for never
	faults   map[string]faults   // by place
	older    map[stream.Kind]*schema.Schema
	mended   mended
	settled  bool
	found    []Violation
}

// end is what must be at the end of one agent's link. While an agent is suspended nothing
// can.
func (c *checker) end(v *view, now time.Duration) {
	if v.leaving != nil {
		c.departed(v)
		return
	}
	if v.names[stream.Hub].Suspended {
		return
	}
	for _, side := range []stream.Side{stream.Hub, stream.Spoke} {
		e, told := v.names[side]
		if !told || e.Agreed || e.Contested || v.held > 0 {
			continue
		}
		excused := len(c.unconfirmed(v)) > 0
		for key := range e.Refused {
			excused = excused || c.excused(v, now, key.Collection, key.Name)
		}
		if !excused {
			c.breaks("I8", v, "the %s does not know of agreement; parked: %q", side, e.Parked)
		}
	}
	c.compare(v, now)
	c.kinds.compare(c, v, now)
	c.shown(v)
}

// behaves checks a write of ours by the object before and after.
func (c *checker) behaves(v *view, e Entry, before, after *object) {
	was := application{map[string]any{}}
	if before != nil {
		was = before.application
	}
	c.trespasses(v, e, was)
	if before != nil {
		c.tookOver(v, e, was, after.application)
	}
	if was.marks().adopted != "" && after.marks().source == "" {
		after.cascadeBy = People // it has back what people gave it
	}
	c.writes(v, e, was, after.application)
}

// object is an Application in a store, as the checker follows it.
type object struct {
	application
	uid string
	// deletedBy and cascadeBy are who asked for its deletion, and who gave it the
	// cascade finalizer that it has.
	deletedBy, cascadeBy Writer
	recorded             time.Duration // when its record last changed
	// told is the line of the log at which it came to show the operationState that
	// it has, or on a spoke the run of it; -1 while it has none.
	told int
	// late says of a copy that it came to be when the deletion of its original was over, by a
	// call of a process that had ended, and that Argo CD could not act on it since.
	late bool
	// returned says that it was moved to an agent that is leaving, after its Agent was
	// deleted.
	returned bool
}

// intent is what the owner wants of an Application: that it is on the other side,
// or not.
type intent struct {
	desired bool
	// went says that it ceased to be desired, or never was; by whom and at which
	// line of the log, the last time.
	went      bool
	wentBy    Writer
	wentAt    int
	witnessed bool // it was shown as going with its workloads
	// ending says that it was desired until then, and unsteady that it ceased to be in
	// another way.
	ending, unsteady bool
	over             bool           // it is gone from the owner's side, after ending
	kept             *time.Duration // when a person said that its workloads stay; nil for never
}

// view is what the checker knows of one agent.
type view struct {
	Agent
	intents  map[string]*intent // by the UID of the original
	cascaded map[string]bool    // source UIDs whose workloads went because the hub said so
	statuses map[string]span    // when the spoke showed a status, by name and revision
	removed  map[string]bool    // names that the owner took away on the cluster that is there now
	accepted int                // the line at which a person last accepted deletions; -1 for never
	restored bool               // its spoke was restored, or made again
	held     int                // absences that wait for a person at the end

	switched map[setting]switched
	found    map[string]application // what was adopted, as it was, by UID
	fights   []Entry
	names    named
	leaving  *leaving // nil while its Agent is there
}

func newView(a Agent) *view {
	return &view{
		Agent: a, intents: map[string]*intent{}, cascaded: map[string]bool{},
		statuses: map[string]span{}, removed: map[string]bool{}, accepted: -1,
		switched: map[setting]switched{}, found: map[string]application{}, names: named{},
	}
}

// rebuilt notes that an agent's spoke is another one.
func (v *view) rebuilt(i int) {
	v.unsettle()
	if v.Mode == stream.Autonomous {
		clear(v.removed)
		for uid := range v.intents {
			v.lost(i, uid)
		}
	}
}

func (c *checker) breaks(invariant string, v *view, format string, args ...any) {
	c.found = append(c.found, Violation{Invariant: invariant, Agent: v.Name, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) agent(name string) *view {
	i := slices.IndexFunc(c.agents, func(v *view) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return c.agents[i]
}

// take follows one line of the log.
func (c *checker) take(i int, e Entry) {
	switch e.Note {
	case Restored:
		for _, v := range c.on(e.Place) {
			c.undo(v)
		}
		if e.Place != hubPlace {
			return
		}
		c.restored = e.At
		return
	case Late:
		c.late = true
		return
	case Rebuilt:
		delete(c.places, e.Place)
		delete(c.kinds, e.Place)
		c.faulted(e)
		for _, v := range c.on(e.Place) {
			v.rebuilt(i)
		}
		return
	case Departs, Departed:
		c.departs(c.agent(e.Place), e)
		return
	case Accepted:
		c.agent(e.Place).accepted = i
		return
	case Started:
		clear(c.mended)
		return
	case Upgraded, Refuses:
		c.faulted(e)
		return
	case Switched:
		c.switches(c.agent(e.Place), i, e)
		return
	case Fights:
		v := c.agent(e.Place)
		v.fights = append(v.fights, e)
		return
	case Settled:
		for _, v := range c.agents {
			c.end(v, e.At)
		}
		c.settled = true
		return
	case Rested:
		c.settled = false
		return
	case Knows:
		v := c.agent(e.Place)
		v.held += e.Held
		if before, told := v.names[e.Side]; !told || before.Agreed {
			v.names[e.Side] = e
		}
		return
	}
	switch e.Key.Kind {
	case stream.Application:
	case stream.AppProject, stream.Secret, stream.ConfigMap:
		c.kinds.take(c, i, e)
		return
	default:
		return
	}
	if c.places[e.Place] == nil {
		c.places[e.Place] = map[stream.ResourceKey]*object{}
	}
	before := c.places[e.Place][e.Key]
	if before != nil && before.uid != e.UID {
		for _, v := range c.agents {
			v.lost(i, before.uid) // a restore replaces objects
		}
		before = nil
	}
	after := follow(before, e)
	v := c.owner(e, before, after)
	if v != nil {
		c.behaves(v, e, before, after)
	}
	after.returned = e.Place == hubPlace && before != nil && c.returns(before, after)
	switch {
	case after.state() == nil:
		after.told = -1
	case before != nil && cmp.Equal(before.state(), after.state()),
		before != nil && e.Place != hubPlace && str(before.state(), "run") == str(after.state(), "run"):
		after.told = before.told
	default:
		after.told = i
	}
	if e.Place == hubPlace && e.Key.Namespace == sharedNamespace {
		for _, v := range c.agents {
			if v.Shared {
				v.intend(i, e, after)
			}
		}
	}
	switch {
	case v == nil: // no one's
	case e.Place == hubPlace:
		c.isolated(v, e)
		c.atHub(i, v, e, before, after)
	default:
		c.isolated(v, e)
		c.atSpoke(i, v, e, before, after)
	}
	if e.Gone {
		delete(c.places[e.Place], e.Key)
	} else {
		c.places[e.Place][e.Key] = after
	}
}

// owner is whose a change is: that of anyone who has the spoke or the namespace, and in a
// shared one of the destination, or of that before, unless a restore put back what had
// another destination then. It is nil for no one's.
func (c *checker) owner(e Entry, before, after *object) *view {
	switch {
	case e.Place != hubPlace:
		return c.tenant(e, after.application)
	case e.Key.Namespace != sharedNamespace:
		return c.agent(e.Key.Namespace)
	}
	if v := c.agent(after.destination()); v != nil || before == nil || e.Op == memory.OpRestore {
		return v
	}
	return c.agent(before.destination())
}

func (o *object) destination() string { return str(o.child("spec", "destination"), "name") }

// follow is the state of an object after a change.
func follow(before *object, e Entry) *object {
	after := &object{application: parse(e.Raw), uid: e.UID, recorded: e.At}
	if before != nil {
		after.deletedBy, after.cascadeBy = before.deletedBy, before.cascadeBy
		if before.record() == after.record() {
			after.recorded = before.recorded
		}
	}
	if after.cascades() && (before == nil || !before.cascades()) {
		after.cascadeBy = e.Writer
	}
	if (after.deleting() || e.Gone) && (before == nil || !before.deleting()) {
		after.deletedBy = e.Writer
	}
	if e.Op == memory.OpRestore && e.Place != hubPlace {
		// What a spoke was before, it was by someone who was checked then.
		after.deletedBy, after.cascadeBy = People, People
	}
	return after
}

// isolated is I6: content says whose it is. On the hub what an agent said of an
// Application stays to be seen after it was handed over, until the next one says more; on a
// cluster of two agents that is the status of what was there before one adopted it.
func (c *checker) isolated(v *view, e Entry) {
	raw := e.Raw
	adopted := e.Place != hubPlace && follow(nil, e).record().Adopted != ""
	if e.Place == hubPlace && v.Shared || adopted {
		raw = application{map[string]any{"spec": parse(e.Raw).fields["spec"]}}.raw()
	}
	for _, other := range c.agents {
		if other != v && strings.Contains(string(raw), `"of/`+other.Name+`/`) {
			c.breaks("I6", v, "it shows what is agent %s's: %s", other.Name, e)
		}
	}
}

// desires reports whether the owner wants the Application to be on the other side.
func (v *view) desires(o *object) bool {
	return !o.deleting() && !o.ignored() && v.destined(o) && v.selects(o)
}

// destined reports whether an Application of the owner's side is the agent's.
func (v *view) destined(o *object) bool {
	return v.Mode == stream.Autonomous || o.destination() == v.Name
}

// intend follows what the owner wants.
func (v *view) intend(i int, e Entry, after *object) {
	desired, before := !e.Gone && v.desires(after), v.intents[e.UID] != nil && v.intents[e.UID].desired
	in := v.want(i, e.Writer, e.UID, desired)
	in.follow(e.Writer, before, desired, v.ends(after))
	switch {
	case desired:
		delete(v.removed, e.Key.Name)
	case in.went && in.wentAt == i && e.Writer == People:
		v.removed[e.Key.Name] = true
	}
	in.over = in.over || e.Gone && in.ending
	in.witnessed = in.witnessed || after.deleting() && after.cascades() && v.destined(after)
	in.keep(e, after)
}

// want notes whether an object of the owner's side is to be on the other side.
func (v *view) want(i int, by Writer, uid string, desired bool) *intent {
	in := v.intents[uid]
	if in == nil {
		in = &intent{}
		v.intents[uid] = in
	}
	if !desired && (in.desired || !in.went) {
		in.went, in.wentBy, in.wentAt = true, by, i
	}
	in.desired = desired
	return in
}

// lost notes that an Application went and no one asked for it.
func (v *view) lost(i int, uid string) {
	if in := v.intents[uid]; in != nil && in.desired {
		in.desired, in.went, in.wentBy, in.wentAt = false, true, Nobody, i
	}
}

// asked reports whether a person made an Application go from what the owner
// wants, or accepted that it went.
func (v *view) asked(in *intent) bool {
	return in != nil && in.went && (in.wentBy == People || v.accepted > in.wentAt)
}

func (c *checker) atHub(i int, v *view, e Entry, before, after *object) {
	if v.Mode == stream.Managed {
		if !v.Shared { // else each of them has seen it
			v.intend(i, e, after)
		}
		c.endsEarly(v, e, before, after)
		c.removes(v, e, before, after)
	} else if e.Gone && v.leaving == nil && after.deletedBy == Principal && !v.asked(v.intents[after.sourceUID()]) && !v.removed[e.Key.Name] {
		// A mirror may still be of what a rebuilt cluster had under the name that its
		// owner has taken away since.
		c.breaks("I4", v, "the principal deleted a mirror whose original's absence nobody asked for: %s", e)
	}
	state := after.state()
	if id := commandOf(nested(state, "operation")); id != "" && strings.Contains(str(state, "message"), "terminated before it was sent") {
		c.unsent[id] = true
	}
	if e.Writer != Principal || e.Gone {
		return
	}
	c.tells(v, e, before, after)
}

func (c *checker) atSpoke(i int, v *view, e Entry, before, after *object) {
	if shown := str(after.child("status", "sync"), "revision"); shown != "" {
		v.shows(i, e.Key.Name+" "+shown)
	}
	if e.Writer == Controller {
		c.ran(v, before, after)
	}
	if v.Mode == stream.Managed {
		c.ordered(v, e, before, after)
	} else {
		v.intend(i, e, after)
	}
	source := after.sourceUID()
	if v.Mode == stream.Autonomous {
		source = ""
	}
	if e.Op == memory.OpRestore {
		return // no one's act
	}
	if c.restored == 0 && source != "" && v.cascaded[source] && !after.deleting() && c.comesBack(before, after) {
		c.breaks("I4", v, "it came back after its cascade: %s", e)
	}
	after.late = v.late(before, after, source)
	c.takes(v, e, before, after, source)
	if e.Writer == Controller && before != nil && before.deleting() && before.cascades() && !after.cascades() {
		c.cascade(v, e, before, source)
		if in := v.intents[source]; in != nil && in.witnessed && !cmp.Equal(reconciledAt(before), reconciledAt(after)) {
			c.breaks("I4", v, "the workloads stay, since a write of a reconciliation took the cascade away: %s", e)
		}
	}
	if e.Gone {
		c.stays(v, e, after, source)
		c.vanish(v, e, after, source)
	}
}

// reconciledAt changes with what a reconciliation writes, and not with what ends a deletion.
func reconciledAt(o *object) any { return o.child("status")["reconciledAt"] }

// ran is I5: each start of an operation by the controller.
func (c *checker) ran(v *view, before, after *object) {
	run := str(after.state(), "run")
	id := commandOf(nested(after.state(), "operation"))
	if run == "" || id == "" || before != nil && str(before.state(), "run") == run {
		return
	}
	c.runs[id] = append(c.runs[id], run)
	if len(c.runs[id]) > 1 {
		c.breaks("I5", v, "command %s took effect more than once: %v", id, c.runs[id])
	}
	if c.unsent[id] {
		c.breaks("I5", v, "command %s ran though the hub said that it was never sent", id)
	}
}

// undo forgets what ran on a spoke that is restored: the fleet in which it did is gone.
func (c *checker) undo(v *view) {
	for id, runs := range c.runs {
		c.runs[id] = slices.DeleteFunc(runs, func(run string) bool { return strings.HasPrefix(run, v.place()+"-") })
	}
	clear(v.cascaded)
	v.unsettle()
}

// historyTime is how long what was read before a restore of the hub may still be
// under way.
const historyTime = 10 * time.Second

// ordered is I2.
func (c *checker) ordered(v *view, e Entry, before, after *object) {
	if before == nil || e.Gone || e.Writer != AgentSide {
		return
	}
	if before.record().History == "" {
		return // before the first one, nothing tells what was read of two principals
	}
	had, has := before.record().Revision, after.record().Revision
	if after.marks().source == "" {
		return // it is its owner's again
	}
	if has < had && (c.restored == 0 || before.recorded > c.restored+historyTime) {
		c.breaks("I2", v, "a spec read at %d replaced one read at %d: %s", has, had, e)
	}
}

// cascade is I4 for workloads.
func (c *checker) cascade(v *view, e Entry, before *object, source string) {
	in := v.intents[source]
	switch {
	case v.Mode == stream.Managed && in != nil && in.witnessed:
		v.cascaded[source] = true
	case before.deletedBy == People && before.cascadeBy == People:
	default:
		c.breaks("I4", v, "the workloads went and nobody asked for it (deleted by %s, cascade by %s): %s", before.deletedBy, before.cascadeBy, e)
	}
}

// vanish is I4 for objects.
func (c *checker) vanish(v *view, e Entry, last *object, source string) {
	in := v.intents[source]
	switch {
	case last.deletedBy == People:
	case v.Mode == stream.Autonomous:
		c.breaks("I4", v, "an original was deleted by the %s: %s", last.deletedBy, e)
	case in == nil:
		c.breaks("I4", v, "the %s deleted what is no copy of the hub's: %s", last.deletedBy, e)
	case in.witnessed || v.asked(in):
	default:
		c.breaks("I4", v, "the %s deleted an Application whose absence nobody asked for: %s", last.deletedBy, e)
	}
}

// nested returns a child of generic JSON; nil when there is none.
func nested(m map[string]any, key string) map[string]any {
	child, _ := m[key].(map[string]any)
	return child
}

// compare is I1 and I8, at the end.
func (c *checker) compare(v *view, now time.Duration) {
	hub, spoke := c.final(hubPlace, v), c.final(v.place(), v)
	owner, other := hub, spoke
	if v.Mode == stream.Autonomous {
		owner, other = spoke, hub
	}
	if v.held > 0 {
		// What is held back stays until a person says otherwise: copies of what is no
		// more, and originals whose deletion must not pass.
		maps.DeleteFunc(other, func(name string, _ map[string]any) bool {
			return owner[name] == nil || owner[name]["deleting"] == true
		})
		maps.DeleteFunc(owner, func(_ string, app map[string]any) bool { return app["deleting"] == true })
	}
	for name, o := range owner {
		// The mirror of an original that waits for a confirmation of its deletion stays.
		if m := other[name]; m != nil && v.Mode == stream.Autonomous && o["deleting"] == true && c.places[v.place()][v.key(stream.Spoke, name)].waits() {
			m["deleting"] = true
		}
		if m := other[name]; m != nil && o["deleting"] == true && m["deleting"] == true {
			m["spec"] = o["spec"] // what is going takes no other spec
		}
	}
	for _, name := range c.unconfirmed(v) {
		delete(other, name)
	}
	c.forgive(v, now, owner, other)
	for _, name := range slices.Sorted(maps.Keys(owner)) {
		if other[name] == nil || !cmp.Equal(owner[name]["spec"], other[name]["spec"]) {
			c.breaks("I1", v, "the spec of %s has not reached the other side", name)
		}
	}
	for name, mine := range owner {
		theirs := other[name]
		if theirs == nil {
			continue
		}
		// Keys that the other side's people added are theirs; all of ours must be there.
		labels, _ := theirs["labels"].(map[string]any)
		ours, _ := mine["labels"].(map[string]any)
		for key := range labels {
			if _, owned := ours[key]; !owned {
				delete(labels, key)
			}
		}
		// The end of a command that the spoke refused is shown on the hub alone, until
		// the spoke runs something later.
		s, _ := hub[name]["status"].(map[string]any)
		if strings.HasPrefix(str(nested(s, "operationState"), "message"), "not run by agent ") &&
			c.places[hubPlace][v.key(stream.Hub, name)].told > c.places[v.place()][v.key(stream.Spoke, name)].told {
			for _, side := range []map[string]any{mine, theirs} {
				if s, _ := side["status"].(map[string]any); s != nil {
					delete(s, "operationState")
				}
			}
		}
	}
	if diff := cmp.Diff(owner, other); diff != "" {
		c.breaks("I8", v, "both sides differ (-owner +other):\n%s", diff)
	}
}

// forgive takes from both sides what is no copy, and what is named.
func (c *checker) forgive(v *view, now time.Duration, owner, other map[string]map[string]any) {
	maps.DeleteFunc(other, func(name string, _ map[string]any) bool {
		m, there := c.marksOf(v, v.otherPlace(), stream.Applications, name)
		return owner[name] == nil && there && !m.ours(v.Name, v.other() == stream.Hub)
	})
	for _, name := range slices.Sorted(maps.Keys(owner)) {
		if !cmp.Equal(owner[name], other[name]) && c.excused(v, now, stream.Applications, name) {
			delete(owner, name)
			delete(other, name)
		}
	}
	for name, o := range owner {
		dropped := c.pruned(v, stream.Application, o)
		if len(dropped) == 0 || other[name] == nil || c.excused(v, now, stream.Applications, name) { // that says more
			continue
		}
		hub := c.places[hubPlace][v.key(stream.Hub, name)]
		if !v.names.drops(name) || hub != nil && !strings.Contains(conditionsOf(hub), dropped[0].Path()) {
			c.breaks("I8", v, "%s is applied without %s, and nobody says so", name, dropped[0].Path())
		}
	}
}

// final is what must be equal on both sides of an agent's link, by name.
func (c *checker) final(place string, v *view) map[string]map[string]any {
	all := map[string]map[string]any{}
	for key, o := range c.places[place] {
		namespace := v.key(stream.Hub, "").Namespace
		owns := v.owner() == stream.Hub
		if place != hubPlace {
			namespace, owns = v.key(stream.Spoke, "").Namespace, v.owner() == stream.Spoke
		}
		if key.Namespace != namespace || owns && (o.ignored() || !v.destined(o) || !v.selects(o)) {
			continue
		}
		var copied map[string]any
		_ = json.Unmarshal(o.raw(), &copied) // it was just written
		app := application{copied}
		spec := app.ensure("spec")
		delete(spec, "destination") // rewritten
		normal(spec)
		spec["project"] = strings.TrimPrefix(str(spec, "project"), v.Name+"-")
		uid := o.uid
		if !owns {
			uid = o.sourceUID()
		}
		status := app.ensure("status")
		dropOurCondition(status)
		delete(status, "reconciledAt") // is thinned: I3 and I8 are about the rest
		all[key.Name] = map[string]any{
			"spec": spec, "labels": app.ensure("metadata", "labels"), "status": status,
			"uid": uid, "deleting": o.deleting(), "operation": app.fields["operation"],
			"refresh": o.annotation(refreshAnnotation), "hydrate": o.annotation(hydrateAnnotation),
		}
	}
	return all
}

// dropOurCondition takes away the conditions that we add to a status.
func dropOurCondition(status map[string]any) {
	list, _ := status["conditions"].([]any)
	list = slices.DeleteFunc(list, func(c any) bool {
		m, _ := c.(map[string]any)
		return strings.HasPrefix(str(m, "type"), "Argomesh")
	})
	if len(list) == 0 {
		delete(status, "conditions")
		return
	}
	status["conditions"] = list
}

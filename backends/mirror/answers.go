package mirror

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/refusals"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// answers are what either side says of what it was sent, and did not take, or not all of.
type answers struct {
	*core
	refused  refusals.Refusals // entries of the peer that we did not take
	contests refusals.Contests
	// awaiting are entries of the peer that wait for an AppProject.
	awaiting refusals.Awaiting
	lacking  map[stream.EntryKey]stream.Refusal // mirrors of projects that lack roles
	// warned holds the objects that say what of them was left out.
	warned map[stream.ResourceKey]bool
	// refusals and gone are the spoke's answers to Applications of the hub.
	refusals map[stream.EntryKey]stream.Refusal
	gone     map[stream.EntryKey]stream.Version
}

// parked are the entries that either side refused, or changes back again and again, and
// those of which a part was left out.
func (an *answers) parked() map[stream.EntryKey]stream.Refusal {
	parked := an.link.Parked()
	for entry, refusal := range parked {
		if entry.Collection == stream.AppProjects && refusal.Kind == stream.RefusalUnavailable && an.link.Desired(entry).Absent() {
			refusal.Kind = stream.RefusalKept // the spoke has it, and says for what
			parked[entry] = refusal
		}
	}
	maps.Copy(parked, an.lacking)
	for entry := range an.contests {
		if refusal := an.contests.Refusal(entry, an.rules.Side); refusal != nil {
			parked[entry] = *refusal
		}
	}
	maps.Copy(parked, an.refused.Standing(time.Now()))
	if entry, refusal, is := an.l.projects.untold(); is {
		parked[entry] = refusal
	}
	return parked
}

// putBack notes what was put back of an entry.
func (an *answers) putBack(entry stream.EntryKey, paths string) {
	now := time.Now()
	an.m.cfg.Metrics.undone(entry.Collection)
	if an.contests.Note(entry, paths, now) {
		an.m.log.Warn().Stringer("resource", entry).Str("paths", paths).
			Msg("somebody changes back again and again what is applied; it is applied once a minute from now on, if that goes on")
	}
	an.lookAt(now.Add(link.ContestMemory))
}

// calm forgets what was not changed back for long enough.
func (an *answers) calm() {
	now := time.Now()
	for entry, one := range an.contests {
		if !one.Over(now) {
			an.lookAt(now.Add(link.ContestMemory)) // at the latest by then
			continue
		}
		delete(an.contests, entry)
		if key, ok := an.rules.Local(entry); ok {
			an.observe(key)
		}
	}
}

// contested says what is contested about an Application, on whichever side its sink is.
func (an *answers) contested(entry stream.EntryKey) *stream.Refusal {
	if an.rules.Sources(entry.Collection) {
		return an.link.Contest(entry)
	}
	return an.contests.Refusal(entry, an.rules.Side)
}

// fights reports whether something is contested of which this side is the sink.
func (an *answers) fights() bool {
	for _, one := range an.contests {
		if one.Spent() {
			return true
		}
	}
	return false
}

// What an Application may deploy on a spoke follows from its AppProject there. The hub
// sends one only if its own project admits it; that bounds it on the spoke only while the
// project there is the copy of the hub's. A project of the spoke's owner says nothing of
// the hub's Applications, and one that permits everything, as each argocd-server makes,
// would let them do everything. So an Application of the hub that names another project
// than a copy is refused, with its operations, unless the owner has named the project.

// await notes which AppProject an entry waits for, empty for none.
func (an *answers) await(entry stream.EntryKey, project string) {
	if !an.awaiting.Note(entry, project) {
		an.m.cfg.Metrics.unremembered()
	}
	if project != "" {
		key := stream.ResourceKey{Kind: stream.AppProject, Namespace: an.rules.Namespace, Name: project}
		an.arrived(key, an.view.Current(key)) // it may have come meanwhile
	}
}

// unsent is the answer of the spoke to an Application, by ownership.NeverSent.
func (l *loop) unsent(refusal stream.Refusal, app object.Object) stream.Refusal {
	name := object.ProjectOf(app.Child("spec"))
	return l.rules.NeverSent(refusal, name, l.view.Current(stream.ResourceKey{Kind: stream.AppProject, Namespace: l.rules.Namespace, Name: name}))
}

// arrived has the peer try again what waits for an AppProject that is the hub's now.
func (an *answers) arrived(key stream.ResourceKey, current *object.Object) {
	if key.Kind != stream.AppProject || !an.awaiting.Waits(key.Name) || an.rules.HubProject(key.Name, current) != nil {
		return
	}
	for _, entry := range an.awaiting.Of(key.Name) {
		an.awaiting.Note(entry, "")
		an.step(link.Retry{Key: entry})
	}
}

// instead is the answer to an entry that waits for an AppProject which this spoke has
// refused: that will not come by itself.
func (an *answers) instead(project string, refusal *stream.Refusal) *stream.Refusal {
	because, refused := an.refused.Of(stream.EntryKey{Collection: stream.AppProjects, Name: project})
	if project == "" || !refused || refusal == nil || refusal.Kind != stream.RefusalUnavailable {
		return refusal
	}
	return &stream.Refusal{
		Kind: because.Kind, Message: fmt.Sprintf("AppProject %q of the hub is not on the spoke: %s", project, because.Message),
	}
}

// An autonomous agent's spoke may be hostile, and a role is a right on the hub. So a
// role is taken apart and written anew, and what is written is about mirrors of that
// project in namespaces of that agent alone. What cannot be written so leaves the role
// out as a whole: the lines of a role restrain each other.

// noteLacking tells once what the mirror of a project lacks.
func (an *answers) noteLacking(entry stream.EntryKey, current *object.Object) {
	var now *stream.Refusal
	if current != nil && entry.Collection == stream.AppProjects {
		now = an.rules.Lacking(*current)
	}
	before, known := an.lacking[entry]
	switch {
	case now == nil:
		delete(an.lacking, entry)
	case !known || before != *now:
		an.lacking[entry] = *now
		an.m.log.Warn().Stringer("resource", entry).Str("reason", now.Message).Msg("roles of a project are not mirrored")
	}
}

// shortened looks again at what of an entry the spoke does not keep.
func (an *answers) shortened(entry stream.EntryKey) {
	paths, _ := an.link.Dropped(entry)
	if len(paths) > 0 {
		an.m.log.Warn().Stringer("resource", entry).Strs("paths", paths).
			Msg("an entry was applied without these fields: the peer's api server does not know them, since its Argo CD is older, or the policy of its owner does not admit them")
	}
	if key, ok := an.rules.Local(entry); ok {
		an.observe(key)
	}
}

// droppedOf returns what is left out of the copy of a hub's Application, which is on
// the spoke or, of an autonomous agent, the object itself.
func (an *answers) droppedOf(entry stream.EntryKey, current object.Object) (paths []string, known bool) {
	if an.rules.Sources(entry.Collection) {
		paths, known = an.link.Dropped(entry)
		return paths, known && an.l.connection.ours()
	}
	return an.rules.Dropped(entry.Collection, current), true
}

// noteWarning remembers whether an object of the hub says what of it was left out.
func (an *answers) noteWarning(key stream.ResourceKey, current object.Object) {
	shows := an.rules.Side == stream.Hub && slices.ContainsFunc(object.Conditions(current.Child("status")), func(c any) bool {
		return object.IsCondition(c, object.WarningCondition)
	})
	if shows {
		an.warned[key] = true
	} else {
		delete(an.warned, key)
	}
}

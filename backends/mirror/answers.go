package mirror

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/refusals"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// answers are what either side says of what it was sent, and did not take, or not all of.
type answers struct {
	*shared
	commands *commands
	refused  refusals.Refusals // entries of the peer that we did not take
	contests refusals.Contests
	// awaiting are entries of the peer that wait for an AppProject.
	awaiting     refusals.Awaiting
	missingRoles map[stream.EntryKey]stream.Refusal // mirrors of projects that lack roles
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
		if entry.Collection == stream.AppProjects && refusal.Kind == stream.RefusalUnavailable && an.link.Desired(entry).
			Absent() {
			refusal.Kind = stream.RefusalKept // the spoke has it, and says for what
			parked[entry] = refusal
		}
	}
	maps.Copy(parked, an.missingRoles)
	for entry := range an.contests {
		if refusal := an.contests.Refusal(entry, an.rules.Side); refusal != nil {
			parked[entry] = *refusal
		}
	}
	maps.Copy(parked, an.refused.Active(time.Now()))
	return parked
}

// putBack notes what was put back of an entry.
func (an *answers) putBack(entry stream.EntryKey, paths string) {
	now := time.Now()
	an.env.cfg.Metrics.Reverted(entry.Collection)
	if an.contests.Record(entry, paths, now) {
		an.env.log.Warn().Stringer("resource", entry).Str("paths", paths).
			Msg("another writer keeps reverting this object; reapplying at most once a minute")
	}
	an.scheduleLook(now.Add(link.ContestWindow))
}

// expireContests forgets what was not changed back for long enough.
func (an *answers) expireContests() {
	now := time.Now()
	for entry, one := range an.contests {
		if !one.Expired(now) {
			an.scheduleLook(now.Add(link.ContestWindow)) // at the latest by then
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
		if one.Exhausted() {
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
	if !an.awaiting.Set(entry, project) {
		an.env.cfg.Metrics.Unremembered()
	}
	if project != "" {
		key := stream.ResourceKey{Kind: stream.AppProject, Namespace: an.rules.Namespace, Name: project}
		an.arrived(key, an.view.Current(key)) // it may have come meanwhile
	}
}

// arrived has the peer try again what waits for an AppProject that is the hub's now.
func (an *answers) arrived(key stream.ResourceKey, current *object.Object) {
	if key.Kind != stream.AppProject || !an.awaiting.Waits(key.Name) || an.rules.HubProject(key.Name, current) != nil {
		return
	}
	for _, entry := range an.awaiting.Of(key.Name) {
		an.awaiting.Set(entry, "")
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
		Kind:    because.Kind,
		Message: fmt.Sprintf("AppProject %q of the hub is not on the spoke: %s", project, because.Message),
	}
}

// An autonomous agent's spoke may be hostile, and a role is a right on the hub. So a
// role is taken apart and written again, and what is written is about mirrors of that
// project in namespaces of that agent alone. What cannot be written so leaves the role
// out as a whole: the lines of a role restrain each other.

// updateMissingRoles tells once what the mirror of a project lacks.
func (an *answers) updateMissingRoles(entry stream.EntryKey, current *object.Object) {
	var now *stream.Refusal
	if current != nil && entry.Collection == stream.AppProjects {
		now = an.rules.MissingRoles(*current)
	}
	before, known := an.missingRoles[entry]
	switch {
	case now == nil:
		delete(an.missingRoles, entry)
	case !known || before != *now:
		an.missingRoles[entry] = *now
		an.env.log.Warn().Stringer("resource", entry).Str("reason", now.Message).Msg("roles of a project are not mirrored")
	}
}

// shortened looks again at what of an entry the spoke does not keep.
func (an *answers) shortened(entry stream.EntryKey) {
	paths, _ := an.link.Dropped(entry)
	if len(paths) > 0 {
		an.env.log.Warn().Stringer("resource", entry).Strs("paths", paths).
			Msg("an entry was applied without these fields: the peer's API server does not know them, since its Argo CD is older, or its owner's policy does not allow them")
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
		return paths, known && an.presence.Ours()
	}
	return an.rules.Dropped(entry.Collection, current), true
}

// updateWarned remembers whether an object of the hub says what of it was left out.
func (an *answers) updateWarned(key stream.ResourceKey, current object.Object) {
	shows := an.rules.Side == stream.Hub &&
		slices.ContainsFunc(object.Conditions(current.Child("status")), func(c any) bool {
			return object.IsCondition(c, object.WarningCondition)
		})
	if shows {
		an.warned[key] = true
	} else {
		delete(an.warned, key)
	}
}

// observeAnswered looks at what the spoke answered before this process had the link: it is
// ours to show from now on.
func (an *answers) observeAnswered() {
	keys := map[stream.ResourceKey]bool{}
	maps.Copy(keys, an.commands.answered)
	maps.Copy(keys, an.warned)
	told := slices.Concat(
		slices.Collect(maps.Keys(an.refusals)), slices.Collect(maps.Keys(an.link.Parked())),
		slices.Collect(maps.Keys(an.link.AllDropped())),
	)
	for _, entry := range told {
		if key, ok := an.rules.Local(entry); ok {
			keys[key] = true
		}
	}
	an.observeAll(slices.Collect(maps.Keys(keys)))
}

// answered handles the spoke's answer to an entry of ours.
func (an *answers) answered(a link.Answered) {
	result := "applied"
	if a.Refusal != nil {
		result = "refused"
		an.env.log.WithLevel(severity(*a.Refusal)).Stringer("resource", a.Key).Str("kind", string(a.Refusal.Kind)).
			Str("reason", a.Refusal.Message).Msg("peer did not apply an entry")
	}
	an.env.cfg.Metrics.Sent(a.Key.Collection, result)
	if a.Undone != "" {
		an.env.cfg.Metrics.Reverted(a.Key.Collection)
	}
	if an.rules.Side != stream.Hub || !a.Current {
		return
	}
	key, _ := an.rules.Local(a.Key)
	switch a.Key.Collection {
	case stream.Commands:
		if a.Refusal != nil && a.Refusal.Kind != stream.RefusalUnavailable {
			an.commands.failures[a.Key] = failure{version: a.Sent, refusal: *a.Refusal}
			an.observe(key)
		}
		return
	case stream.Applications:
	default:
		return
	}
	_, before := an.refusals[a.Key]
	if a.Refusal != nil {
		an.refusals[a.Key] = *a.Refusal
	} else {
		delete(an.refusals, a.Key)
	}
	if a.Gone {
		an.gone[a.Key] = a.Sent
	}
	if before || a.Refusal != nil || a.Gone || an.commands.answered[key] {
		an.observe(key)
	}
}

// severity is lower for what passes by itself.
func severity(r stream.Refusal) zerolog.Level {
	if r.Kind == stream.RefusalUnavailable {
		return zerolog.DebugLevel
	}
	return zerolog.WarnLevel
}

package mirror

import (
	"time"

	"github.com/google/uuid"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// source is what this side tells the peer of its objects.
type source struct {
	*shared
	commands *commands
	answers  *answers
	outbox   *outbox
	projects *projects
	removals *removals
	witness  *witness
}

// content is Rules.Content of an entry of which we are the source, if the peer is to
// have it.
func (so *source) content(entry stream.EntryKey, key stream.ResourceKey, current object.Object) (link.Content, bool) {
	if entry.Collection == stream.Repositories && !so.projects.repositoryNeeds.Wants(current, so.rules.SharesUnscoped) {
		return link.Content{}, false
	}
	if entry.Collection == stream.AppProjects {
		current = so.projects.virtual(current)
	}
	if so.counts(entry) && so.removals.keepsWorkloads(key, current) {
		return link.Content{}, false
	}
	content, present := so.rules.Content(entry.Collection, current, so.commands.asked[key])
	if !so.projects.passes(entry, key, content.Leaving) {
		return link.Content{}, false
	}
	return content, present
}

func (so *source) desire(entry stream.EntryKey, key stream.ResourceKey, current *object.Object) {
	var content link.Content
	open := false
	if current != nil {
		content, open = so.content(entry, key, *current)
	}
	if !open {
		content, open = so.projects.retained(entry, current)
	}
	so.projects.need(entry, current, content, open)
	if so.outbox.delay(entry, current, content) {
		return
	}
	accepted := so.removals.cascade(entry, key, current, content)
	if before := so.link.Desired(entry); before != content.Version {
		so.outbox.traceCause(entry, key)
		delete(so.answers.refusals, entry) // of the version before
		so.outbox.put(entry, current, content)
	}
	if content.Version.Absent() && so.link.Believed(entry).Absent() {
		delete(so.outbox.sentTraces, entry) // nothing will be sent
	}
	so.step(link.Desired{Key: entry, Version: content.Version, Leaving: content.Leaving, Accepted: accepted})
}

func (so *source) linkState(key stream.ResourceKey, current object.Object) ownership.LinkState {
	s := ownership.LinkState{Now: so.env.cfg.Now(), NewID: uuid.NewString}
	entry, command := so.rules.Entry(stream.Applications, key), so.rules.Entry(stream.Commands, key)
	// A command that may have been sent into another history is one too many, and one
	// that says no history could be taken again by a copy that was made later.
	s.Present = so.session != nil && so.known.checked && !so.known.broken && (so.rules.Mode == stream.Autonomous ||
		so.named() && so.link.Believed(entry).SourceUID == so.rules.SourceUID(current))
	s.Away = so.presence.Away(time.Now())
	s.Answers = so.presence.Ours()
	// Of an autonomous agent this side is the one that refuses, and knows it.
	s.Agreed = so.presence.Ours() && (!so.rules.Sources(entry.Collection) || so.link.Satisfied(entry))
	s.Barred = so.projects.namedProjects.Barred[key]
	s.HistoryBroken, s.VerifiedFrom = so.commands.stale[key], so.commands.verifiedFrom(key)
	if f, ok := so.commands.failures[command]; ok && f.version == so.link.Desired(command) {
		s.Failure = &f.refusal
	}
	s.Refusal = so.answers.contested(entry)
	s.Dropped, s.DroppedKnown = so.answers.droppedOf(entry, current)
	// else it came to be there all the same
	if refusal, ok := so.answers.refusals[entry]; ok && !so.link.Satisfied(entry) {
		refusal = so.unsent(refusal, current)
		s.Refusal = &refusal
	}
	s.Released = so.removals.orphaning[key] != "" && so.link.Lacks(entry)
	if version, ok := so.answers.gone[entry]; ok {
		content, present := so.rules.Content(stream.Applications, current, operations.Requests{})
		s.Gone = present && content.Leaving && content.Version == version
	}
	return s
}

// load is link.Load.
func (so *source) load(entry stream.EntryKey) (link.Content, bool) {
	var content link.Content
	present := false
	if key, ok := so.rules.Local(entry); ok {
		if content, present = so.outbox.get(entry, key); !present {
			current := so.view.Current(key)
			if current != nil {
				content, present = so.content(entry, key, *current)
			}
			if !present {
				content, _ = so.projects.retained(entry, current)
				present = !content.Version.Absent()
			}
			if present && current != nil {
				so.outbox.updateStatusDigest(entry, current, content)
			}
		}
	}
	if !present {
		content = link.Content{GiveUp: so.rules.GivesUpEntry(entry)}
	}
	if content.Unproven = present && so.witness.unproven(entry, content); content.Unproven {
		return content, present // it is not sent yet
	}
	so.known.sent = max(so.known.sent, content.Revision)
	content.TraceParent = so.outbox.sentTraces[entry]
	delete(so.outbox.sentTraces, entry)
	return content, present
}

// unsent is the answer of the spoke to an Application, by ownership.NeverSent.
func (so *source) unsent(refusal stream.Refusal, app object.Object) stream.Refusal {
	name := object.ProjectOf(app.Child("spec"))
	return so.rules.NeverSent(refusal, name,
		so.view.Current(stream.ResourceKey{Kind: stream.AppProject, Namespace: so.rules.Namespace, Name: name}))
}

package mirror

import (
	"github.com/google/uuid"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

func (l *loop) observeStore() {
	l.projects.unmerged = l.projects.readGlobals() || l.projects.unmerged
	for _, o := range l.m.cfg.Store.List(stream.AppProject, l.rules.Namespace) {
		l.observe(o.Key)
	}
	if l.rules.Gated() { // what they scope is asked of Applications
		for _, o := range l.m.cfg.Store.List(stream.Secret, l.rules.Namespace) {
			l.projects.admit(o.Key, l.view.Current(o.Key))
		}
	}
	for _, namespace := range l.rules.LocalNamespaces() {
		for _, o := range l.m.cfg.Store.List(stream.Application, namespace) {
			l.observe(o.Key)
		}
	}
	if l.rules.Mode != stream.Managed {
		return
	}
	for _, o := range l.m.cfg.Store.List(stream.ConfigMap, l.rules.Namespace) {
		l.observe(o.Key)
	}
	l.projects.unselected = true
	l.projects.selectRepositories() // by the projects and Applications before
}

// content is Rules.Content of an entry of which we are the source, if the peer is to
// have it.
func (l *loop) content(entry stream.EntryKey, key stream.ResourceKey, current object.Object) (link.Content, bool) {
	if entry.Collection == stream.Repositories && !l.projects.needs.Wants(current, l.rules.SharesUnscoped) {
		return link.Content{}, false
	}
	if entry.Collection == stream.AppProjects {
		current = l.projects.virtual(current)
	}
	if l.removals.counts(entry) && l.removals.keeps(key, current) {
		return link.Content{}, false
	}
	content, present := l.rules.Content(entry.Collection, current, l.commands.asked[key])
	if !l.projects.passes(entry, key, content.Leaving) {
		return link.Content{}, false
	}
	return content, present
}

// observeAgain is observe when the object was read before, as last, which it may
// still be; nil when it was not.
func (l *loop) observeAgain(key stream.ResourceKey, last *object.Object) {
	entries := l.rules.Keys(key)
	if len(entries) == 0 {
		return
	}
	if l.jobs.Running(key) {
		return // what is seen in the middle of a write misleads; finish looks again
	}
	current := l.view.CurrentAgain(key, last)
	l.inbox.weigh(key, current)
	if l.witness.undecided(key, current) {
		return
	}
	l.commands.note(key, current)
	l.projects.admit(key, current)
	l.answers.arrived(key, current)
	for _, entry := range entries {
		l.answers.noteLacking(entry, current)
		if l.answers.refused.Freed(entry, current) {
			l.step(link.Retry{Key: entry})
		}
		switch {
		case l.rules.Sources(entry.Collection):
			l.desire(entry, key, current)
		case current == nil:
			delete(l.inbox.replies, entry)
			delete(l.inbox.taken, entry)
			l.step(link.Held{Key: entry})
		case entry.Collection == stream.Commands:
			l.step(link.Held{Key: entry, Version: l.inbox.taken[entry].Held(*current)})
		default:
			var last *ownership.Reply
			if reply, ok := l.inbox.replies[entry]; ok {
				last = &reply
			}
			held := l.rules.Held(entry.Collection, *current, last)
			l.answers.refused.Held(entry, held)
			l.step(link.Held{
				Key: entry, Version: held, Dropped: l.rules.Dropped(entry.Collection, *current), Retry: l.rules.Wants(entry.Collection, *current),
			})
		}
	}
	if current == nil {
		l.forget(key)
		return
	}
	waits := false
	delete(l.commands.answered, key)
	if l.rules.ShowsAnswer(*current) {
		l.commands.answered[key] = true
	}
	delete(l.commands.born, key)
	l.answers.noteWarning(key, *current)
	if operation := current.Child("operation"); l.rules.Side == stream.Hub && operation != nil {
		switch {
		case operations.BornOnSpoke(operation) != nil:
			l.commands.born[key] = true
		case !operations.Sent(*current):
			waits = true
		}
	}
	l.commands.wait(key, *current, waits)
	if l.work.later.Waits(key) {
		return
	}
	if _, needed := l.rules.Tend(*current, l.situation(key, *current)); needed {
		l.jobs.Tend(key)
	}
}

func (l *loop) desire(entry stream.EntryKey, key stream.ResourceKey, current *object.Object) {
	var content link.Content
	open := false
	if current != nil {
		content, open = l.content(entry, key, *current)
	}
	if !open {
		content, open = l.projects.stay(entry, current)
	}
	l.projects.need(entry, current, content, open)
	if l.outbox.holdBack(entry, current, content) {
		return
	}
	accepted := l.removals.cascade(entry, key, current, content)
	if before := l.link.Desired(entry); before != content.Version {
		l.outbox.traceCause(entry, key)
		delete(l.answers.refusals, entry) // of the version before
		l.outbox.keep(entry, current, content)
	}
	if content.Version.Absent() && l.link.Believed(entry).Absent() {
		delete(l.outbox.causes, entry) // nothing will be sent
	}
	l.step(link.Desired{Key: entry, Version: content.Version, Leaving: content.Leaving, Accepted: accepted})
}

func (l *loop) forget(key stream.ResourceKey) {
	delete(l.outbox.effects, key)
	l.work.later.Forget(key)
	delete(l.commands.waiting, key)
	delete(l.commands.stale, key)
	delete(l.commands.born, key)
	delete(l.commands.answered, key)
	delete(l.answers.warned, key)
	delete(l.commands.asked, key)
	delete(l.removals.kept, key)
	l.witness.proofs.forget(key)
	for _, entry := range l.rules.Keys(key) {
		delete(l.answers.refusals, entry)
		delete(l.answers.gone, entry)
		delete(l.commands.failures, entry)
	}
}

func (l *loop) situation(key stream.ResourceKey, current object.Object) ownership.Situation {
	s := ownership.Situation{Now: l.m.cfg.Now(), NewID: uuid.NewString}
	entry, command := l.rules.Entry(stream.Applications, key), l.rules.Entry(stream.Commands, key)
	// A command that may have been sent into another history is one too many, and one
	// that says no history could be taken again by a copy that was made later.
	s.Present = l.session != nil && l.history.past.judged && !l.history.past.broken && (l.rules.Mode == stream.Autonomous ||
		l.history.named() && l.link.Believed(entry).SourceUID == l.rules.SourceUID(current))
	s.Away = l.connection.away()
	s.Answers = l.connection.ours()
	// Of an autonomous agent this side is the one that refuses, and knows it.
	s.Agreed = l.connection.ours() && (!l.rules.Sources(entry.Collection) || l.link.Satisfied(entry))
	s.Barred = l.projects.gates.Barred[key]
	s.HistoryBroken, s.Vouched = l.commands.stale[key], l.commands.vouched(key)
	if f, ok := l.commands.failures[command]; ok && f.version == l.link.Desired(command) {
		s.Failure = &f.refusal
	}
	s.Refusal = l.answers.contested(entry)
	s.Dropped, s.DroppedKnown = l.answers.droppedOf(entry, current)
	if refusal, ok := l.answers.refusals[entry]; ok && !l.link.Satisfied(entry) { // else it came to be there all the same
		refusal = l.unsent(refusal, current)
		s.Refusal = &refusal
	}
	s.Released = l.removals.kept[key] != "" && l.link.Lacks(entry)
	if version, ok := l.answers.gone[entry]; ok {
		content, present := l.rules.Content(stream.Applications, current, operations.Requests{})
		s.Gone = present && content.Leaving && content.Version == version
	}
	return s
}

// load is link.Load.
func (l *loop) load(entry stream.EntryKey) (link.Content, bool) {
	var content link.Content
	present := false
	if key, ok := l.rules.Local(entry); ok {
		if content, present = l.outbox.recall(entry, key); !present {
			current := l.view.Current(key)
			if current != nil {
				content, present = l.content(entry, key, *current)
			}
			if !present {
				content, _ = l.projects.stay(entry, current)
				present = !content.Version.Absent()
			}
			if present && current != nil {
				l.outbox.told(entry, current, content)
			}
		}
	}
	if !present {
		content = link.Content{GiveUp: l.rules.GivesUpEntry(entry)}
	}
	if content.Unproven = present && l.witness.unproven(entry, content); content.Unproven {
		return content, present // it is not sent yet
	}
	l.history.past.sent = max(l.history.past.sent, content.Revision)
	content.TraceParent = l.outbox.causes[entry]
	delete(l.outbox.causes, entry)
	return content, present
}

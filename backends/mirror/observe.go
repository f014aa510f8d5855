package mirror

import (
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

func (l *loop) observeStore() {
	l.source.projects.unmerged = l.source.projects.readGlobals() || l.source.projects.unmerged
	for _, o := range l.env.cfg.Store.List(stream.AppProject, l.rules.Namespace) {
		l.observe(o.Key)
	}
	if l.rules.NeedsAdmission() { // what they scope is asked of Applications
		for _, o := range l.env.cfg.Store.List(stream.Secret, l.rules.Namespace) {
			l.source.projects.admit(o.Key, l.view.Current(o.Key))
		}
	}
	for _, namespace := range l.rules.LocalNamespaces() {
		for _, o := range l.env.cfg.Store.List(stream.Application, namespace) {
			l.observe(o.Key)
		}
	}
	if l.rules.Mode != stream.Managed {
		return
	}
	for _, o := range l.env.cfg.Store.List(stream.ConfigMap, l.rules.Namespace) {
		l.observe(o.Key)
	}
	l.source.projects.unselected = true
	l.source.projects.selectRepositories() // by the projects and Applications before
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
	current := l.view.CurrentReusing(key, last)
	l.inbox.updateWeight(key, current)
	if l.source.witness.undecided(key, current) {
		return
	}
	l.commands.assignIDs(key, current)
	l.source.projects.admit(key, current)
	l.answers.arrived(key, current)
	for _, entry := range entries {
		l.answers.updateMissingRoles(entry, current)
		if l.answers.refused.Freed(entry, current) {
			l.step(link.Retry{Key: entry})
		}
		if l.rules.Sources(entry.Collection) {
			l.source.desire(entry, key, current)
		} else {
			l.inbox.reportStored(entry, current)
		}
	}
	if current == nil {
		l.forget(key)
		return
	}
	l.answers.updateWarned(key, *current)
	l.commands.shows(key, *current)
	if l.work.later.Waits(key) {
		return
	}
	if _, needed := l.rules.PlanHubUpdate(*current, l.source.linkState(key, *current)); needed {
		l.jobs.Update(key)
	}
}

func (l *loop) forget(key stream.ResourceKey) {
	delete(l.source.outbox.appliedTraces, key)
	l.work.later.Forget(key)
	delete(l.commands.waiting, key)
	delete(l.commands.stale, key)
	delete(l.commands.spokeOperations, key)
	delete(l.commands.answered, key)
	delete(l.answers.warned, key)
	delete(l.commands.asked, key)
	delete(l.source.removals.orphaning, key)
	l.source.witness.proofs.Forget(key)
	for _, entry := range l.rules.Keys(key) {
		delete(l.answers.refusals, entry)
		delete(l.answers.gone, entry)
		delete(l.commands.failures, entry)
	}
}

// countAll looks at all that there is, and has it counted as a whole.
func (l *loop) countAll() {
	c := l.env.cfg.Cascades
	if c == nil || !l.counts(stream.EntryKey{Collection: stream.Applications}) {
		l.observeStore()
		return
	}
	c.Begin(l.rules.Agent, l.env.settings.notify)
	l.observeStore()
	c.Filled(l.rules.Agent, l.env.cfg.Now())
	l.source.removals.updateAdmission()
}

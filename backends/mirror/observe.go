package mirror

import (
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

func (l *loop) observeAll(keys []stream.ResourceKey) {
	for _, key := range keys {
		l.observe(key)
		l.lookAtGlobals(key)
	}
}

func (l *loop) observeStore() {
	l.unmerged = l.readGlobals() || l.unmerged
	for _, o := range l.m.cfg.Store.List(stream.AppProject, l.rules.Namespace) {
		l.observe(o.Key)
	}
	if l.rules.gated() { // what they scope is asked of Applications
		for _, o := range l.m.cfg.Store.List(stream.Secret, l.rules.Namespace) {
			l.admit(o.Key, l.current(o.Key))
		}
	}
	for _, namespace := range l.rules.namespaces() {
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
	l.unselected = true
	l.selectRepositories() // by the projects and Applications before
}

// selectRepositories looks again at the Secrets of repositories when what the agent
// needs of them has changed.
func (l *loop) selectRepositories() {
	if !l.unselected {
		return
	}
	l.unselected = false
	for _, o := range l.m.cfg.Store.List(stream.Secret, l.rules.Namespace) {
		l.observe(o.Key)
	}
}

// content is Rules.Content of an entry of which we are the source, if the peer is to
// have it.
func (l *loop) content(entry stream.EntryKey, key stream.ResourceKey, current object) (link.Content, bool) {
	if entry.Collection == stream.Repositories && !l.needs.wants(current, l.rules.SharesUnscoped) {
		return link.Content{}, false
	}
	if entry.Collection == stream.AppProjects {
		current = l.virtualProject(current)
	}
	if l.counts(entry) && l.keeps(key, current) {
		return link.Content{}, false
	}
	content, present := l.rules.Content(entry.Collection, current, l.asked[key])
	if !l.passes(entry, key, content.Leaving) {
		return link.Content{}, false
	}
	return content, present
}

// need notes what follows for the Secrets of repositories, and for AppProjects, from what
// is desired of an entry; open says that the agent gets it, and not only keeps its name.
func (l *loop) need(entry stream.EntryKey, current *object, content link.Content, open bool) {
	news := false
	switch {
	case l.rules.Side != stream.Hub || l.rules.Mode != stream.Managed:
		return
	case entry.Collection == stream.AppProjects:
		news = l.needs.admit(entry.Name, open)
	case entry.Collection == stream.Applications:
		l.users(entry, current, content)
		if !l.rules.SharesUnscoped {
			return
		}
		var urls []string
		if current != nil && !content.Version.Absent() {
			urls = repositoriesOf(*current)
		}
		news = l.needs.use(entry.Namespace+"/"+entry.Name, urls)
	}
	l.unselected = l.unselected || news
}

// observe looks at one object and tells the link what it means.
func (l *loop) observe(key stream.ResourceKey) { l.observeAgain(key, nil) }

// observeAgain is observe when the object was read before, as last, which it may
// still be; nil when it was not.
func (l *loop) observeAgain(key stream.ResourceKey, last *object) {
	entries := l.rules.Keys(key)
	if len(entries) == 0 {
		return
	}
	if j := l.jobs[key]; j != nil && j.running {
		return // what is seen in the middle of a write misleads; finish looks again
	}
	current := l.currentAgain(key, last)
	l.weigh(key, current)
	if l.undecided(key, current) {
		return
	}
	l.note(key, current)
	l.admit(key, current)
	l.arrived(key, current)
	for _, entry := range entries {
		l.noteLacking(entry, current)
		if l.refused.freed(entry, current) {
			l.step(link.Retry{Key: entry})
		}
		switch {
		case l.rules.sources(entry.Collection):
			l.desire(entry, key, current)
		case current == nil:
			delete(l.replies, entry)
			delete(l.taken, entry)
			l.step(link.Held{Key: entry})
		case entry.Collection == stream.Commands:
			l.step(link.Held{Key: entry, Version: l.taken[entry].held(*current)})
		default:
			var last *Reply
			if reply, ok := l.replies[entry]; ok {
				last = &reply
			}
			held := l.rules.Held(entry.Collection, *current, last)
			l.refused.held(entry, held)
			l.step(link.Held{
				Key: entry, Version: held, Dropped: l.rules.dropped(entry.Collection, *current), Retry: l.rules.wants(entry.Collection, *current),
			})
		}
	}
	if current == nil {
		l.forget(key)
		return
	}
	waits := false
	delete(l.answered, key)
	if l.rules.showsAnswer(*current) {
		l.answered[key] = true
	}
	delete(l.born, key)
	l.noteWarning(key, *current)
	if operation := current.child("operation"); l.rules.Side == stream.Hub && operation != nil {
		switch {
		case bornOnSpoke(operation) != nil:
			l.born[key] = true
		case !sent(*current):
			waits = true
		}
	}
	l.wait(key, *current, waits)
	if !l.later[key].at.IsZero() {
		return
	}
	if _, needed := l.rules.Tend(*current, l.situation(key, *current)); needed {
		j := l.job(key)
		j.tend = true
		l.schedule(key, j)
	}
}

func (l *loop) desire(entry stream.EntryKey, key stream.ResourceKey, current *object) {
	var content link.Content
	open := false
	if current != nil {
		content, open = l.content(entry, key, *current)
	}
	if !open {
		content, open = l.stay(entry, current)
	}
	l.need(entry, current, content, open)
	if l.holdBack(entry, current, content) {
		return
	}
	accepted := l.cascade(entry, key, current, content)
	if before := l.link.Desired(entry); before != content.Version {
		l.traceCause(entry, key)
		delete(l.refusals, entry) // of the version before
		l.keep(entry, current, content)
	}
	if content.Version.Absent() && l.link.Believed(entry).Absent() {
		delete(l.causes, entry) // nothing will be sent
	}
	l.step(link.Desired{Key: entry, Version: content.Version, Leaving: content.Leaving, Accepted: accepted})
}

// traceCause starts the trace of a change, or goes on with the one that made it.
func (l *loop) traceCause(entry stream.EntryKey, key stream.ResourceKey) {
	var parent trace.SpanContext
	if e, ok := l.effects[key]; ok && time.Since(e.at) < traceTime {
		parent = e.context.WithRemote(true)
	}
	_, span := l.m.cfg.Tracer.Start(carrying(parent), "mirror.observe", trace.WithAttributes(
		attribute.String("argomesh.resource", entry.String()), attribute.Stringer("argomesh.agent", l.rules.Agent)))
	span.End()
	if text := traceParent(span.SpanContext()); text != "" {
		l.causes[entry] = text
	}
}

func (l *loop) forget(key stream.ResourceKey) {
	delete(l.effects, key)
	delete(l.later, key)
	delete(l.waiting, key)
	delete(l.stale, key)
	delete(l.born, key)
	delete(l.answered, key)
	delete(l.warned, key)
	delete(l.asked, key)
	delete(l.kept, key)
	l.proofs.forget(key)
	for _, entry := range l.rules.Keys(key) {
		delete(l.refusals, entry)
		delete(l.gone, entry)
		delete(l.failures, entry)
	}
}

// note gives the requests of an object their ids for as long as they stand.
func (l *loop) note(key stream.ResourceKey, current *object) {
	if l.rules.Side != stream.Hub || current == nil {
		return
	}
	if asked := l.asked[key].of(*current, uuid.NewString); asked != (Requests{}) {
		l.asked[key] = asked
	} else {
		delete(l.asked, key)
	}
}

func (l *loop) situation(key stream.ResourceKey, current object) Situation {
	s := Situation{Now: l.m.cfg.Now(), NewID: uuid.NewString}
	entry, command := l.rules.entry(stream.Applications, key), l.rules.entry(stream.Commands, key)
	// A command that may have been sent into another history is one too many, and one
	// that says no history could be taken again by a copy that was made later.
	s.Present = l.session != nil && l.past.judged && !l.past.broken && (l.rules.Mode == stream.Autonomous ||
		l.named() && l.link.Believed(entry).SourceUID == l.rules.sourceUID(current))
	s.Away = l.away()
	s.Answers = l.ours()
	// Of an autonomous agent this side is the one that refuses, and knows it.
	s.Agreed = l.ours() && (!l.rules.sources(entry.Collection) || l.link.Satisfied(entry))
	s.Barred = l.gates.barred[key]
	s.HistoryBroken, s.Vouched = l.stale[key], l.vouched(key)
	if f, ok := l.failures[command]; ok && f.version == l.link.Desired(command) {
		s.Failure = &f.refusal
	}
	s.Refusal = l.contested(entry)
	s.Dropped, s.DroppedKnown = l.droppedOf(entry, current)
	if refusal, ok := l.refusals[entry]; ok && !l.link.Satisfied(entry) { // else it came to be there all the same
		refusal = l.unsent(refusal, current)
		s.Refusal = &refusal
	}
	s.Released = l.kept[key] != "" && l.link.Lacks(entry)
	if version, ok := l.gone[entry]; ok {
		content, present := l.rules.Content(stream.Applications, current, Requests{})
		s.Gone = present && content.Leaving && content.Version == version
	}
	return s
}

// current is the newest known state of an object: the cache's, or what a write
// of ours returned if the cache is behind it.
func (l *loop) current(key stream.ResourceKey) *object { return l.currentAgain(key, nil) }

// currentAgain is current without decoding what last shows already.
func (l *loop) currentAgain(key stream.ResourceKey, last *object) *object {
	o, ok := l.newest(key)
	switch {
	case !ok:
		return nil
	case last != nil && last.shows(o):
		return last
	}
	parsed, err := parseObject(o)
	if err != nil {
		l.m.cfg.Log.Error().Err(err).Stringer("resource", key).Msg("object of the store is not JSON")
		return nil
	}
	return &parsed
}

func (l *loop) newest(key stream.ResourceKey) (backends.Object, bool) {
	cached, ok := l.m.cfg.Store.Get(key)
	a, written := l.ahead[key]
	switch {
	case !written:
		return cached, ok
	case a.object == nil && ok && cached.UID == a.uid:
		return backends.Object{}, false // the cache has not seen it go
	case a.object != nil && !a.shown && (!ok || revisionOf(cached.ResourceVersion) < revisionOf(a.object.ResourceVersion)):
		return *a.object, true
	case ok && a.replaces(cached, l.rules.Schemas):
		a.shown = true
		l.ahead[key] = a
		return *a.object, true
	}
	delete(l.ahead, key)
	return cached, ok
}

// verify asks the API server about writes that the cache did not show in time.
func (l *loop) verify() {
	for key, a := range l.ahead {
		if a.shown {
			continue
		}
		if time.Since(a.since) < settleTime {
			l.lookAt(a.since.Add(settleTime))
			continue
		}
		a.since = time.Now()
		l.lookAt(a.since.Add(settleTime))
		l.ahead[key] = a
		if _, _ = l.newest(key); l.ahead[key].since.IsZero() || l.ahead[key].shown {
			continue // it has caught up
		}
		j := l.job(key)
		j.verify = true
		l.schedule(key, j)
	}
}

// load is link.Load.
func (l *loop) load(entry stream.EntryKey) (link.Content, bool) {
	var content link.Content
	present := false
	if key, ok := l.rules.Local(entry); ok {
		if content, present = l.recall(entry, key); !present {
			current := l.current(key)
			if current != nil {
				content, present = l.content(entry, key, *current)
			}
			if !present {
				content, _ = l.stay(entry, current)
				present = !content.Version.Absent()
			}
			if present && current != nil {
				l.told(entry, current, content)
			}
		}
	}
	if !present {
		content = link.Content{GiveUp: l.rules.givesUp(entry)}
	}
	if content.Unproven = present && l.unproven(entry, content); content.Unproven {
		return content, present // it is not sent yet
	}
	l.past.sent = max(l.past.sent, content.Revision)
	content.TraceParent = l.causes[entry]
	delete(l.causes, entry)
	return content, present
}

// made is the content of an entry that is about to be sent, so that it is not made
// twice.
type made struct {
	object  string // resourceVersion of the object it is of
	content link.Content
}

// What is kept of content between the look at an object and its being sent. More
// is made again.
const (
	maxMade      = 1024
	maxMadeBytes = 4 << 20
)

// keep keeps the content of an entry that changed, if there is room.
func (l *loop) keep(entry stream.EntryKey, current *object, content link.Content) {
	l.unkeep(entry)
	if l.session == nil || current == nil || content.Data == nil ||
		len(l.made) == maxMade || l.madeBytes+len(content.Data) > maxMadeBytes {
		return
	}
	l.made[entry] = made{object: current.meta("resourceVersion"), content: content}
	l.madeBytes += len(content.Data)
}

func (l *loop) unkeep(entry stream.EntryKey) {
	if m, ok := l.made[entry]; ok {
		l.madeBytes -= len(m.content.Data)
		delete(l.made, entry)
	}
}

// recall returns what is kept of an entry, once, unless its object has changed.
func (l *loop) recall(entry stream.EntryKey, key stream.ResourceKey) (link.Content, bool) {
	m, kept := l.made[entry]
	if !kept {
		return link.Content{}, false
	}
	l.unkeep(entry)
	o, ok := l.newest(key)
	return m.content, ok && o.ResourceVersion == m.object
}

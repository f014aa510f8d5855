package link_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// linkEnv is the two ends of one link and an ordered pipe between them, which
// loses what it carries when it is cut. Nothing happens in it by itself.
type linkEnv struct {
	cfg     link.Config
	now     time.Time
	hub     *end
	spoke   *end
	trace   []string
	verdict link.HistoryChecked // what the hub's guard is told
	later   bool                // it is not told yet
	older   bool                // the spoke does not check what a Delete names
	asked   bool                // it waits
	// judged says that the guard was told on this connection that the history
	// continues, and broken what of the guard's promises was not kept.
	judged   bool
	doomed   map[string]string // places, as the guard is told
	broken   []string
	accepted map[stream.EntryKey]bool
	versions map[stream.Version]string // how versions are written in the trace
}

// end is one side: its link, what its stores hold, and what is on its way to it.
type end struct {
	name    string
	side    stream.Side
	link    *link.Link
	peer    *end
	content map[stream.EntryKey]link.Content   // what our sources show
	held    map[stream.EntryKey]stream.Version // what our sinks hold
	inbox   []stream.Message
	pending []stream.Event // taken, not yet answered
	refuses map[stream.EntryKey]stream.RefusalKind
	makes   map[stream.EntryKey]stream.Version // what a sink holds after any event; absent: what it says
	slow    bool                               // events stay pending until answer
	stuck   bool                               // the connection takes nothing from us
	settled []link.Answered
	ended   []link.Cause
}

func newLinkEnv(cfg link.Config) *linkEnv {
	w := &linkEnv{cfg: cfg, now: time.Unix(1_700_000_000, 0), accepted: map[stream.EntryKey]bool{}, doomed: map[string]string{}, versions: map[stream.Version]string{}}
	w.hub = &end{name: "hub", side: stream.Hub}
	w.spoke = &end{name: "spoke", side: stream.Spoke}
	w.hub.peer, w.spoke.peer = w.spoke, w.hub
	for _, e := range w.ends() {
		e.content = map[stream.EntryKey]link.Content{}
		e.held = map[stream.EntryKey]stream.Version{}
		e.refuses = map[stream.EntryKey]stream.RefusalKind{}
		e.makes = map[stream.EntryKey]stream.Version{}
		w.boot(e)
	}
	return w
}

func (w *linkEnv) ends() []*end { return []*end{w.hub, w.spoke} }

// source is the end that knows what the collection should hold.
func (w *linkEnv) source(c stream.Collection) *end {
	if c.Source(w.cfg.Mode) == stream.Hub {
		return w.hub
	}
	return w.spoke
}

func (w *linkEnv) sink(c stream.Collection) *end { return w.source(c).peer }

// boot gives e a new process, which reads its stores before anything else.
func (w *linkEnv) boot(e *end) {
	cfg := w.cfg
	cfg.Side = e.side
	cfg.Guard = e.side == stream.Hub
	e.link = link.New(cfg)
	e.inbox, e.pending = nil, nil
	for _, key := range sortedKeys(e.content) {
		w.step(e, link.Desired{Key: key, Version: e.content[key].Version, Leaving: e.content[key].Leaving})
	}
	for _, key := range sortedKeys(e.held) {
		w.step(e, link.Stored{Key: key, Version: e.held[key]})
	}
}

func (w *linkEnv) connect(id string) {
	w.judged, w.asked = false, false
	for _, e := range w.ends() {
		e.inbox = nil
		w.step(e, link.Connected{ID: id, SeenDeletes: !w.older})
	}
}

func (w *linkEnv) cut() {
	for _, e := range w.ends() {
		e.inbox = nil
		w.step(e, link.Disconnected{})
	}
}

func (w *linkEnv) step(e *end, in link.Input) {
	for _, action := range e.link.Step(w.now, in) {
		switch a := action.(type) {
		case link.Apply:
			if e == w.hub {
				w.checkAbsence(a.Event)
			}
			e.pending = append(e.pending, a.Event)
		case link.Answered:
			e.settled = append(e.settled, a)
			w.log("%s settled %s", e.name, w.settledText(a))
		case link.Contested:
			if e.link.Contest(a.Key) != nil {
				w.log("%s: %s is contested", e.name, keyText(a.Key))
			} else {
				w.log("%s: %s is contested no more", e.name, keyText(a.Key))
			}
		case link.RefusalEnded:
			w.log("%s: %s is held though it was refused", e.name, keyText(a.Key))
		case link.CheckHistory:
			w.asked = true
			if w.later || w.verdict != (link.HistoryChecked{}) {
				w.log("%s asks for a judgement", e.name)
			}
		case link.Begin:
			w.log("%s begins a new history", e.name)
		case link.Disconnect:
			e.ended = append(e.ended, a.Cause)
			w.log("%s ends the connection: %s", e.name, a.Cause)
		}
	}
	if w.asked && !w.later && e == w.hub {
		w.judge()
	}
	if !e.slow {
		w.answer(e)
	}
}

// judge answers the guard.
func (w *linkEnv) judge() {
	w.asked = false
	if !w.verdict.Unknown { // what was judged before stays so
		w.judged = w.verdict == link.HistoryChecked{}
	}
	doomed := map[string]string{}
	for _, place := range w.hub.link.EndingNamespaces() {
		if why := w.doomed[place]; why != "" {
			doomed[place] = why
		}
	}
	w.step(w.hub, link.Doomed{Namespaces: doomed})
	w.step(w.hub, w.verdict)
}

// checkAbsence notes an absence that the guard let go though it must not.
func (w *linkEnv) checkAbsence(e stream.Event) {
	existence := slices.Contains([]stream.Collection{
		stream.Applications, stream.AppProjects, stream.Repositories, stream.Trust,
	}, e.Key.Collection)
	held := w.sink(e.Key.Collection).held[e.Key]
	if existence && e.Verb == stream.Delete && !held.Absent() && !w.judged && !w.accepted[e.Key] {
		w.broken = append(w.broken, fmt.Sprintf("the absence of %s went without a judgement", keyText(e.Key)))
	}
}

// accept takes at their word what the guard of the hub holds back.
func (w *linkEnv) accept() {
	withheld := w.hub.link.Withheld()
	for _, key := range withheld.Keys {
		w.accepted[key] = true
	}
	w.step(w.hub, link.Accepted{ID: withheld.ID})
}

// answer carries out all that is pending at e's sinks.
func (w *linkEnv) answer(e *end) {
	events := e.pending
	e.pending = nil
	for _, event := range events {
		in := link.Stored{Key: event.Key, Event: event.ID}
		if kind, refused := e.refuses[event.Key]; refused {
			in.Version = e.held[event.Key]
			in.Refusal = &stream.Refusal{Kind: kind, Message: "no"}
		} else {
			in.Version = event.Version
			if v, otherwise := e.makes[event.Key]; otherwise {
				in.Version = v
			}
			w.hold(e, event.Key, in.Version)
		}
		w.step(e, in)
	}
}

// hold changes a sink's store without telling the link.
func (w *linkEnv) hold(e *end, key stream.EntryKey, v stream.Version) {
	if v.Absent() {
		delete(e.held, key)
	} else {
		e.held[key] = v
	}
}

// set changes a source's store without telling the link.
func (w *linkEnv) set(key stream.EntryKey, c link.Content) {
	if e := w.source(key.Collection); c.Version.Absent() {
		delete(e.content, key)
	} else {
		e.content[key] = c
	}
}

// tell lets the link of the source see what its store shows.
func (w *linkEnv) tell(key stream.EntryKey) {
	e := w.source(key.Collection)
	w.step(e, link.Desired{Key: key, Version: e.content[key].Version, Leaving: e.content[key].Leaving})
}

// send flushes e into the pipe.
func (w *linkEnv) send(e *end) {
	if e.stuck {
		return
	}
	load := func(key stream.EntryKey) (link.Content, bool) {
		c, ok := e.content[key]
		return c, ok
	}
	for _, m := range e.link.Flush(w.now, load) {
		w.log("%s > %s", e.name, w.text(m))
		if batch, ok := m.(stream.Batch); ok && e == w.hub {
			for _, event := range batch.Events {
				w.checkAbsence(event)
			}
		}
		e.peer.inbox = append(e.peer.inbox, m)
	}
}

// receive takes one message out of the pipe; false when there is none.
func (w *linkEnv) receive(e *end) bool {
	if len(e.inbox) == 0 {
		return false
	}
	m := e.inbox[0]
	e.inbox = e.inbox[1:]
	w.step(e, link.Received{Message: m})
	return true
}

// deliver lets messages flow until nothing is left to say.
func (w *linkEnv) deliver() {
	for again := true; again; {
		again = false
		for _, e := range w.ends() {
			w.send(e)
		}
		for _, e := range w.ends() {
			again = w.receive(e) || again
		}
	}
}

func (w *linkEnv) advance(d time.Duration) {
	w.now = w.now.Add(d)
	for _, e := range w.ends() {
		w.step(e, link.Tick{})
	}
}

func (w *linkEnv) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// content makes content that is the same for the same label.
func (w *linkEnv) content(label string, size int, leaving bool) link.Content {
	data := []byte(label)
	for len(data) < size {
		data = append(data, '.')
	}
	v := stream.Version{SourceUID: "u", Hash: stream.HashOf(data)}
	w.versions[v] = label
	return link.Content{Version: v, Leaving: leaving, Revision: 1, Data: data}
}

// How collections are written in scripts.
var collectionNames = map[stream.Collection]string{
	stream.Applications: "app", stream.AppProjects: "project", stream.Statuses: "status", stream.Commands: "command", stream.Children: "child",
	stream.Repositories: "repository", stream.Trust: "trust",
}

func keyText(k stream.EntryKey) string {
	if k.Namespace != "" {
		return collectionNames[k.Collection] + ":" + k.Namespace + "/" + k.Name
	}
	return collectionNames[k.Collection] + ":" + k.Name
}

func sortedKeys[V any](m map[stream.EntryKey]V) []stream.EntryKey {
	keys := make([]stream.EntryKey, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b stream.EntryKey) int { return strings.Compare(keyText(a), keyText(b)) })
	return keys
}

func (w *linkEnv) versionText(v stream.Version) string {
	if v.Absent() {
		return "nothing"
	}
	return w.versions[v]
}

// maxListed is how many entries the trace lists; of more it tells the number.
const maxListed = 6

func (w *linkEnv) text(m stream.Message) string {
	switch m := m.(type) {
	case stream.Digests:
		return "digests" + digestText(m.Digests)
	case stream.Heartbeat:
		return "heartbeat" + digestText(m.Digests) + absenceText(m.Absences)
	case stream.Buckets:
		used := 0
		for i := range m.Sums {
			if m.Sums[i] != (stream.Sum{}) {
				used++
			}
		}
		return fmt.Sprintf("buckets %s, %d used", collectionNames[m.Collection], used)
	case stream.Inventory:
		return w.inventoryText(m)
	case stream.Batch:
		return w.batchText(m)
	case stream.Applied:
		var parts []string
		for _, r := range m.Results {
			part := fmt.Sprintf("%s holds %s", keyText(r.Key), w.versionText(r.Held))
			if r.Event != "" {
				part += " #" + r.Event
			}
			if r.Refusal != nil {
				part += " refused " + string(r.Refusal.Kind)
			}
			parts = append(parts, part)
		}
		return "applied " + listText(parts)
	case stream.Goodbye:
		return "goodbye " + string(m.Reason)
	}
	return fmt.Sprintf("%T", m)
}

func digestText(digests []stream.Digest) string {
	out := ""
	for _, d := range digests {
		out += fmt.Sprintf(" %s=%d", collectionNames[d.Collection], d.Entries)
	}
	return out
}

func (w *linkEnv) inventoryText(m stream.Inventory) string {
	differing := 0
	for b := range stream.BucketCount {
		if m.Buckets.Has(uint8(b)) {
			differing++
		}
	}
	var parts []string
	for _, e := range m.Entries {
		key := stream.EntryKey{Collection: m.Collection, Namespace: e.Namespace, Name: e.Name}
		parts = append(parts, keyText(key)+" "+w.versionText(e.Version))
	}
	text := fmt.Sprintf("inventory %s, %d buckets: %s", collectionNames[m.Collection], differing, listText(parts))
	if m.More {
		text += ", more"
	}
	return text
}

func (w *linkEnv) batchText(m stream.Batch) string {
	var parts []string
	for _, e := range m.Events {
		part := fmt.Sprintf("%s %s", e.Verb, keyText(e.Key))
		if e.Verb == stream.Apply {
			part += " " + w.versionText(e.Version)
		}
		if e.Revision != 0 && e.Deleted != "" {
			part += fmt.Sprintf(" (%s at %d)", e.Deleted, e.Revision)
		}
		parts = append(parts, part+" #"+e.ID)
	}
	return "batch " + listText(parts) + absenceText(m.Absences)
}

func absenceText(absences []stream.Absence) string {
	var out string
	for _, a := range absences {
		if a.Entries > 0 {
			out += fmt.Sprintf(", %s lacks %d", collectionNames[a.Collection], a.Entries)
		}
	}
	return out
}

func listText(parts []string) string {
	switch {
	case len(parts) == 0:
		return "none"
	case len(parts) > maxListed:
		return fmt.Sprintf("%d entries", len(parts))
	}
	return strings.Join(parts, ", ")
}

func (w *linkEnv) settledText(a link.Answered) string {
	text := fmt.Sprintf("%s %s: holds %s", keyText(a.Key), w.versionText(a.Sent), w.versionText(a.Stored))
	if a.Refusal != nil {
		text += ", refused " + string(a.Refusal.Kind)
	}
	if !a.Current {
		text += ", superseded"
	}
	if a.Gone {
		text += ", gone"
	}
	return text
}

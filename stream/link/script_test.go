package link_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// TestScripts runs the stories in testdata: two real links, and what they say to
// each other. Run with -rewrite to accept a new trace, and read the difference.
//
// A line of the trace is a message ("hub > batch …", with the ids of events after
// #) or what a link asks of its caller. The commands, one a line:
//
//	new [mode=managed] [window=] [window-bytes=]  two new ends, nothing in their stores
//	set KEY VERSION [size=] [uid=] [leaving] [accepted] [untold]  what a source's store shows; untold: the link does not know yet
//	remove KEY [accepted]                         the source's store shows nothing
//	delete KEY [uid=u] | COLLECTION FIRST LAST    the same, and the deletion was seen; of the entries of fill so many
//	lose COLLECTION FIRST LAST                    remove entries of fill
//	hold KEY VERSION|nothing [untold] [retry]     what a sink's store holds, by itself; retry: for a reason of its own
//	fill COLLECTION source=N sink=N               that many entries, all alike
//	sink KEY refuse=KIND|as=VERSION|accept        how a sink answers from now on; as: what it holds then
//	slow END / answer END                         keep events unanswered / answer them
//	stuck END / free END                          its connection takes nothing / takes again
//	connect ID [older], cut, restart END          connections and processes; older: of a peer without seen-deletes
//	pause COLLECTION, resume COLLECTION           sources
//	depart COLLECTION                             a source tells of ends only
//	flow                                          let messages pass until all is said
//	send END / take END                           put what it says into the pipe / take one message out
//	advance DURATION                              time passes, and is told
//	next                                          when each end wants to be woken
//	verdict ok|later|unknown|broken|stale         what the hub's guard is told when it asks; later: nothing until judge
//	judge                                         answer the guard
//	cascades ok|held|counting                     what the caller makes of the number of ends
//	doom NAMESPACE, save NAMESPACE                what the guard is told of a place from now on
//	accept [ID]                                   accept what the guard holds back, or that set of it
//	inject END MESSAGE                            give it a message that the other end did not send
//	state                                         what both ends know
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newLinkEnv(link.Config{Mode: stream.Managed})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			w.trace = nil
			commands := []datadriven.TestData{{Pos: d.Pos, Cmd: d.Cmd, CmdArgs: d.CmdArgs}}
			for line := range strings.Lines(d.Input) {
				cmd, args, err := datadriven.ParseLine(line)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				commands = append(commands, datadriven.TestData{Pos: d.Pos, Cmd: cmd, CmdArgs: args})
			}
			for _, command := range commands {
				if command.Cmd == "new" {
					w = newLinkEnv(scriptConfig(t, &command))
				} else {
					w.command(t, &command)
				}
			}
			if len(w.trace) == 0 {
				return "nothing happens\n"
			}
			return strings.Join(summary(w.trace), "\n") + "\n"
		})
	})
}

// summary tells of long runs of settled entries how many there were.
func summary(trace []string) []string {
	var out []string
	for len(trace) > 0 {
		prefix, _, settled := strings.Cut(trace[0], " settled ")
		run := 1
		for settled && run < len(trace) && strings.HasPrefix(trace[run], prefix+" settled ") {
			run++
		}
		if run > maxListed {
			out = append(out, fmt.Sprintf("%s settled %d entries", prefix, run))
		} else {
			out = append(out, trace[:run]...)
		}
		trace = trace[run:]
	}
	return out
}

func scriptConfig(t *testing.T, d *datadriven.TestData) link.Config {
	t.Helper()
	mode := "managed"
	var cfg link.Config
	d.MaybeScanArgs(t, "mode", &mode)
	d.MaybeScanArgs(t, "window", &cfg.Window)
	d.MaybeScanArgs(t, "window-bytes", &cfg.WindowBytes)
	var err error
	if cfg.Mode, err = stream.ParseMode(mode); err != nil {
		d.Fatalf(t, "%v", err)
	}
	return cfg
}

func (w *linkEnv) command(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	arg := func(i int) string {
		if i >= len(d.CmdArgs) {
			d.Fatalf(t, "%s needs more arguments", d.Cmd)
		}
		return d.CmdArgs[i].Key
	}
	switch d.Cmd {
	case "set":
		size := 0
		d.MaybeScanArgs(t, "size", &size)
		key := parseKey(t, d, arg(0))
		c := w.content(arg(1), size, d.HasArg("leaving"))
		d.MaybeScanArgs(t, "uid", &c.Version.SourceUID)
		w.versions[c.Version] = arg(1)
		w.set(key, c)
		switch {
		case d.HasArg("accepted"):
			w.step(w.source(key.Collection), link.Desired{Key: key, Version: c.Version, Leaving: c.Leaving, Accepted: true})
		case !d.HasArg("untold"):
			w.tell(key)
		}
	case "remove":
		key := parseKey(t, d, arg(0))
		w.set(key, link.Content{})
		if d.HasArg("accepted") {
			w.step(w.source(key.Collection), link.Desired{Key: key, Accepted: true})
			return
		}
		w.tell(key)
	case "delete", "lose":
		w.loseCommand(t, d)
	case "hold":
		w.holdCommand(parseKey(t, d, arg(0)), arg(1), d.HasArg("untold"), d.HasArg("retry"))
	case "fill":
		w.fill(t, d)
	case "sink":
		key := parseKey(t, d, arg(0))
		e := w.sink(key.Collection)
		delete(e.refuses, key)
		delete(e.makes, key)
		var value string
		switch {
		case d.HasArg("refuse"):
			d.ScanArgs(t, "refuse", &value)
			e.refuses[key] = stream.ParseRefusalKind(value)
		case d.HasArg("as"):
			d.ScanArgs(t, "as", &value)
			e.makes[key] = w.versionOf(value)
		}
	case "slow":
		w.end(t, d, arg(0)).slow = true
	case "answer":
		e := w.end(t, d, arg(0))
		e.slow = false
		w.answer(e)
	case "stuck", "free":
		w.end(t, d, arg(0)).stuck = d.Cmd == "stuck"
	case "connect":
		w.older = d.HasArg("older")
		w.connect(arg(0))
	case "cut":
		w.cut()
	case "restart":
		w.boot(w.end(t, d, arg(0)))
	case "pause", "resume", "depart":
		c := parseCollection(t, d, arg(0))
		w.step(w.source(c), link.Paused{Collection: c, Waits: map[string]link.Pause{"pause": link.PauseAll, "depart": link.PauseChanges}[d.Cmd]})
	case "flow":
		w.deliver()
	case "send":
		w.send(w.end(t, d, arg(0)))
	case "take":
		if !w.receive(w.end(t, d, arg(0))) {
			d.Fatalf(t, "nothing is on its way to the %s", arg(0))
		}
	case "advance":
		duration, err := time.ParseDuration(arg(0))
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		w.advance(duration)
	case "next":
		for _, e := range w.ends() {
			if next := e.link.Next(); next.IsZero() {
				w.log("%s: never", e.name)
			} else {
				w.log("%s: in %s", e.name, next.Sub(w.now))
			}
		}
	case "verdict":
		w.later = arg(0) == "later"
		w.verdict = link.HistoryChecked{Unknown: arg(0) == "unknown"}
		if arg(0) == "broken" || arg(0) == "stale" {
			w.verdict.Broken, w.verdict.Stale = "restored", arg(0) == "stale"
		}
	case "judge":
		if !w.asked {
			d.Fatalf(t, "nobody asks for a judgement")
		}
		w.judge()
	case "cascades":
		c := link.Cascades{Counting: arg(0) == "counting"}
		if arg(0) == "held" {
			c.Held = "too many"
		}
		w.step(w.hub, c)
	case "doom", "save":
		delete(w.doomed, arg(0))
		if d.Cmd == "doom" {
			w.doomed[arg(0)] = arg(0) + " goes"
		}
	case "accept":
		if len(d.CmdArgs) > 0 {
			w.step(w.hub, link.Accepted{ID: arg(0)})
		} else {
			w.accept()
		}
	case "inject":
		e := w.end(t, d, arg(0))
		var words []string
		for _, a := range d.CmdArgs[1:] {
			words = append(words, a.Key)
		}
		w.step(e, link.Received{Message: w.parseMessage(t, d, words)})
	case "state":
		w.state()
	default:
		d.Fatalf(t, "unknown command")
	}
}

// loseCommand takes entries from a source's store, with or without telling the link
// that their deletion was seen.
func (w *linkEnv) loseCommand(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	uid := "u"
	d.MaybeScanArgs(t, "uid", &uid)
	var keys []stream.EntryKey
	if first := d.CmdArgs[0].Key; strings.Contains(first, ":") {
		keys = append(keys, parseKey(t, d, first))
	} else {
		var bounds [2]int
		for i := range bounds {
			var err error
			if bounds[i], err = strconv.Atoi(d.CmdArgs[i+1].Key); err != nil {
				d.Fatalf(t, "%v", err)
			}
		}
		for i := bounds[0]; i <= bounds[1]; i++ {
			keys = append(keys, stream.EntryKey{Collection: parseCollection(t, d, first), Name: fmt.Sprint("n", i)})
		}
	}
	for _, key := range keys {
		w.set(key, link.Content{})
		if d.Cmd == "delete" {
			w.step(w.source(key.Collection), link.Seen{Key: key, UID: uid, Revision: 7})
		}
		w.tell(key)
	}
}

func (w *linkEnv) holdCommand(key stream.EntryKey, label string, untold, retry bool) {
	v := w.versionOf(label)
	e := w.sink(key.Collection)
	w.hold(e, key, v)
	if !untold {
		w.step(e, link.Stored{Key: key, Version: v, Retry: retry})
	}
}

func (w *linkEnv) versionOf(label string) stream.Version {
	if label == "nothing" {
		return stream.Version{}
	}
	return w.content(label, 0, false).Version
}

// fill gives a source and a sink the first so many of the same entries.
func (w *linkEnv) fill(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	c := parseCollection(t, d, d.CmdArgs[0].Key)
	var source, sink int
	d.MaybeScanArgs(t, "source", &source)
	d.MaybeScanArgs(t, "sink", &sink)
	for i := range max(source, sink) {
		key := stream.EntryKey{Collection: c, Name: fmt.Sprint("n", i)}
		if i < source {
			w.set(key, w.content("v1", 0, false))
			w.tell(key)
		}
		if i < sink {
			w.holdCommand(key, "v1", false, false)
		}
	}
}

func (w *linkEnv) state() {
	for _, e := range w.ends() {
		w.log("%s: agreed %t", e.name, e.link.Agreed())
		parked := e.link.Parked()
		for _, key := range sortedKeys(parked) {
			w.log("%s: parked %s %s", e.name, keyText(key), parked[key].Kind)
		}
		if held := e.link.Withheld(); held.Total > 0 || held.Broken != "" {
			var parts []string
			for _, key := range held.Keys {
				parts = append(parts, keyText(key))
			}
			w.log("%s: withholds %d (%s), history %q", e.name, held.Total, listText(parts), held.Broken)
			if held.Cascades != "" {
				w.log("%s: of them %d end, %s", e.name, len(held.Ending), held.Cascades)
			}
		}
		if n := e.link.SeenDeletes(); n > 0 {
			w.log("%s: %d deletions that were seen are not over", e.name, n)
		}
		for _, c := range stream.Collections() {
			if w.source(c) == e && e.link.Entries(c)+e.peer.link.Entries(c) > 0 {
				w.log("%s: %s desires %d, the %s holds %d", e.name, collectionNames[c], e.link.Entries(c), e.peer.name, e.peer.link.Entries(c))
			}
		}
		if len(e.content) > maxListed {
			continue
		}
		for _, key := range sortedKeys(e.content) {
			w.log("%s: %s should be %s, is believed to be %s", e.name, keyText(key),
				w.versionText(e.link.Desired(key)), w.versionText(e.link.Believed(key)))
		}
	}
}

func (w *linkEnv) end(t *testing.T, d *datadriven.TestData, name string) *end {
	t.Helper()
	for _, e := range w.ends() {
		if e.name == name {
			return e
		}
	}
	d.Fatalf(t, "no end is called %q", name)
	return nil
}

func parseCollection(t *testing.T, d *datadriven.TestData, name string) stream.Collection {
	t.Helper()
	for c, n := range collectionNames {
		if n == name {
			return c
		}
	}
	d.Fatalf(t, "no collection is called %q", name)
	return 0
}

func parseKey(t *testing.T, d *datadriven.TestData, text string) stream.EntryKey {
	t.Helper()
	collection, name, ok := strings.Cut(text, ":")
	if !ok {
		d.Fatalf(t, "%q is no key", text)
	}
	key := stream.EntryKey{Collection: parseCollection(t, d, collection), Name: name}
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		key.Namespace, key.Name = namespace, name
	}
	return key
}

// parseMessage reads what inject gives: batch KEY VERSION ID, applied KEY
// VERSION|nothing ID|-, inventory COLLECTION [KEY VERSION], buckets COLLECTION,
// digests COLLECTION ENTRIES, heartbeat COLLECTION ENTRIES, goodbye REASON.
func (w *linkEnv) parseMessage(t *testing.T, d *datadriven.TestData, words []string) stream.Message {
	t.Helper()
	word := func(i int) string {
		if i >= len(words) {
			d.Fatalf(t, "message %q is too short", words)
		}
		return words[i]
	}
	switch word(0) {
	case "batch":
		c := w.content(word(2), 0, false)
		return stream.Batch{Events: []stream.Event{{
			ID: word(3), Key: parseKey(t, d, word(1)), Verb: stream.Apply, Version: c.Version, Data: c.Data,
		}}}
	case "applied":
		r := stream.Result{Key: parseKey(t, d, word(1)), Held: w.versionOf(word(2))}
		if word(3) != "-" {
			r.Event = word(3)
		}
		return stream.Applied{Results: []stream.Result{r}}
	case "inventory":
		m := stream.Inventory{Collection: parseCollection(t, d, word(1))}
		if len(words) > 2 {
			key := parseKey(t, d, word(2))
			m.Entries = []stream.Entry{{Namespace: key.Namespace, Name: key.Name, Version: w.versionOf(word(3))}}
		}
		return m
	case "buckets":
		return stream.Buckets{Collection: parseCollection(t, d, word(1))}
	case "digests", "heartbeat":
		entries, err := strconv.ParseUint(word(2), 10, 64)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		digests := []stream.Digest{{Collection: parseCollection(t, d, word(1)), Entries: entries}}
		if word(0) == "digests" {
			return stream.Digests{Digests: digests}
		}
		return stream.Heartbeat{Digests: digests}
	case "goodbye":
		return stream.Goodbye{Reason: stream.GoodbyeReason(word(1))}
	}
	d.Fatalf(t, "no message is called %q", word(0))
	return nil
}

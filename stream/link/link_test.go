package link_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// Whatever is lost, refused, late or changed under the link's feet: once that
// ends, sink and source are equal, and both ends know it.
func TestEndsAgree(t *testing.T) {
	const histories, steps = 400, 120
	for seed := range uint64(histories) {
		w := runHistory(seed, steps)
		if w.settle(); !w.agreed(t) || t.Failed() {
			t.Logf("seed %d", seed)
			for _, line := range w.trace[max(0, len(w.trace)-200):] {
				t.Log(line)
			}
			t.FailNow()
		}
	}
}

// history is a pair of ends for which chance is at work.
type history struct {
	*linkEnv
	chance *rand.Rand
	n      int // of versions and connections
	up     bool
}

func runHistory(seed uint64, steps int) *history {
	mode := stream.Managed
	if seed%2 == 1 {
		mode = stream.Autonomous
	}
	h := &history{
		linkEnv: newLinkEnv(link.Config{Mode: mode, Window: 1 + int(seed%5), WindowBytes: 100}),
		chance:  rand.New(rand.NewPCG(seed, 0)),
	}
	for range steps {
		h.act()
	}
	return h
}

func (h *history) key() stream.EntryKey {
	collections := slices.DeleteFunc(stream.Collections(), func(c stream.Collection) bool { return c.Source(h.cfg.Mode) == 0 })
	return stream.EntryKey{
		Collection: collections[h.chance.IntN(len(collections))],
		Namespace:  []string{"", "team"}[h.chance.IntN(2)],
		Name:       string(rune('a' + h.chance.IntN(4))),
	}
}

// label is of a version that was not there before, or of one that may have been.
func (h *history) label() string {
	h.n++
	if h.chance.IntN(3) == 0 {
		return fmt.Sprint("v", h.chance.IntN(3))
	}
	return fmt.Sprint("v", h.n)
}

func (h *history) act() {
	e := h.ends()[h.chance.IntN(2)]
	key := h.key()
	switch h.chance.IntN(26) {
	case 0, 1, 2, 3:
		h.set(key, h.content(h.label(), h.chance.IntN(80), h.chance.IntN(5) == 0))
		h.tell(key)
	case 4:
		h.set(key, h.content(h.label(), 0, false)) // the link is told with the next change
	case 5:
		h.set(key, link.Content{})
		h.tell(key)
	case 6, 7:
		h.holdCommand(key, h.label(), false, h.chance.IntN(3) == 0)
	case 8:
		h.holdCommand(key, "nothing", false, false)
	case 9:
		h.cut()
		h.up = false
	case 10, 11:
		if !h.up {
			h.n++
			h.connect(fmt.Sprint("c", h.n))
			h.up = true
		}
	case 12:
		if h.chance.IntN(3) == 0 {
			h.boot(e)
			h.cut()
			h.up = false
		}
	case 13:
		e.slow = h.chance.IntN(2) == 0
		if !e.slow {
			h.answer(e)
		}
	case 14:
		e.stuck = h.chance.IntN(2) == 0
	case 15:
		kinds := []stream.RefusalKind{stream.RefusalUnavailable, stream.RefusalInvalid, stream.RefusalNotOwned}
		h.sink(key.Collection).refuses[key] = kinds[h.chance.IntN(len(kinds))]
	case 16:
		clear(e.refuses)
	case 17:
		h.step(h.source(key.Collection), link.Paused{
			Collection: key.Collection, Waits: []link.Pause{link.PauseNone, link.PauseNone, link.PauseChanges, link.PauseAll, link.PauseAll, link.PauseAll}[h.chance.IntN(6)],
		})
	case 19:
		verdicts := []link.HistoryChecked{{}, {}, {Broken: "restored"}, {Unknown: true}}
		h.verdict = verdicts[h.chance.IntN(len(verdicts))]
		h.later = h.chance.IntN(3) == 0
	case 20:
		if h.asked {
			h.judge()
		}
		if h.chance.IntN(4) == 0 {
			h.accept()
		}
	case 18:
		h.advance(time.Duration(h.chance.IntN(3000)) * time.Millisecond)
	default:
		h.send(e)
		for range h.chance.IntN(4) {
			h.receive(h.ends()[h.chance.IntN(2)])
		}
	}
}

// settle ends all faults and lets time pass.
func (h *history) settle() {
	for _, e := range h.ends() {
		clear(e.refuses)
		e.stuck, e.slow = false, false
		h.answer(e)
		for _, c := range stream.Collections() {
			h.step(e, link.Paused{Collection: c})
		}
	}
	h.verdict, h.later = link.HistoryChecked{}, false
	if h.asked {
		h.judge()
	}
	for _, key := range sortedKeys(h.hub.content) {
		h.tell(key)
	}
	for _, key := range sortedKeys(h.spoke.content) {
		h.tell(key)
	}
	if !h.up {
		h.connect("last")
	}
	h.deliver()
	// What is parked waits up to five minutes and a quarter.
	for range 7 * 6 {
		h.advance(10 * time.Second)
		h.deliver()
	}
}

// agreed compares the stores, the digests and what the links believe.
func (h *history) agreed(t *testing.T) bool {
	t.Helper()
	for _, e := range h.ends() {
		want := map[string]string{}
		for key, c := range e.content {
			want[keyText(key)] = h.versionText(c.Version)
		}
		got := map[string]string{}
		for key, v := range e.peer.held {
			got[keyText(key)] = h.versionText(v)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("what the %s desires and its peer holds (-want +got):\n%s", e.name, diff)
		}
		if len(e.ended) > 0 {
			t.Errorf("the %s ended the connection: %s", e.name, e.ended)
		}
		if !e.link.Agreed() || len(e.link.Parked()) > 0 {
			t.Errorf("the %s does not know of agreement: Agreed() = %t, Parked() = %v", e.name, e.link.Agreed(), e.link.Parked())
		}
		for key, c := range e.content {
			if got := e.link.Believed(key); got != c.Version {
				t.Errorf("the %s believes %s to be %s", e.name, keyText(key), h.versionText(got))
			}
		}
	}
	for _, promise := range h.broken {
		t.Error(promise)
	}
	// The digests are equal, or there would be something to ask.
	before := len(h.trace)
	h.cut()
	h.connect("proof")
	h.deliver()
	if spoken := h.trace[before:]; len(spoken) != 2 {
		t.Errorf("an unchanged reconnect exchanged %q, want the digests of both", spoken)
	}
	return !t.Failed()
}

// The same inputs lead to the same messages, in the same order.
func TestLinkIsDeterministic(t *testing.T) {
	for seed := range uint64(20) {
		first, second := runHistory(seed, 200), runHistory(seed, 200)
		first.settle()
		second.settle()
		if diff := cmp.Diff(first.trace, second.trace); diff != "" {
			t.Fatalf("two runs of seed %d (-first +second):\n%s", seed, diff)
		}
	}
}

// frameBytes is what a message takes on an HTTP/2 connection: the gRPC message
// prefix and the header of a DATA frame included.
func frameBytes(m stream.Message) int { return proto.Size(stream.FrameOf(m)) + 5 + 9 }

// manyEntries gives both ends the same n Applications with their statuses.
func manyEntries(n int) *linkEnv {
	w := newLinkEnv(link.Config{Mode: stream.Managed})
	app, status := w.content("v1", 2000, false), w.content("synced", 5000, false)
	for i := range n {
		for key, c := range map[stream.EntryKey]link.Content{
			{Collection: stream.Applications, Name: fmt.Sprint("application-", i)}: app,
			{Collection: stream.Statuses, Name: fmt.Sprint("application-", i)}:     status,
		} {
			w.set(key, c)
			w.hold(w.sink(key.Collection), key, c.Version)
		}
	}
	for _, e := range w.ends() {
		w.boot(e)
	}
	return w
}

// T4 of docs/design: under 4 KiB of frames.
func TestUnchangedReconnectIsSmall(t *testing.T) {
	w := manyEntries(10_000)
	for _, connection := range []string{"after a restart of both ends", "after a cut"} {
		w.cut()
		w.connect(connection)
		if got := conversation(w); got == 0 || got > 4<<10 {
			t.Errorf("unchanged reconnect %s: %d bytes of frames, want at most 4096", connection, got)
		}
		if !w.hub.link.Agreed() || !w.spoke.link.Agreed() {
			t.Errorf("unchanged reconnect %s: the ends do not agree", connection)
		}
	}
}

// One entry that changed costs little more than its content: the sums of the
// buckets and the entries of one of them.
func TestRepairIsProportional(t *testing.T) {
	w := manyEntries(10_000)
	key := stream.EntryKey{Collection: stream.Applications, Name: "application-77"}
	w.set(key, w.content("v2", 2000, false))
	w.tell(key)
	w.connect("c1")
	if got := conversation(w); got > 16<<10 {
		t.Errorf("reconnect after one change: %d bytes of frames, want at most 16384", got)
	}
	if got, want := w.spoke.held[key], w.hub.content[key].Version; got != want {
		t.Errorf("the spoke holds %v, want %v", got, want)
	}
}

// conversation lets the ends talk until all is said, and returns the bytes of
// their frames.
func conversation(w *linkEnv) int {
	bytes := 0
	for again := true; again; {
		again = false
		for _, e := range w.ends() {
			w.send(e)
			for _, m := range e.peer.inbox {
				bytes += frameBytes(m)
			}
			again = len(e.peer.inbox) > 0 || again
			for w.receive(e.peer) {
			}
		}
	}
	return bytes
}

func TestZeroAndForeignInputsAreHarmless(t *testing.T) {
	w := newLinkEnv(link.Config{Mode: stream.Managed})
	status := stream.EntryKey{Collection: stream.Statuses, Name: "a"}
	app := stream.EntryKey{Collection: stream.Applications, Name: "a"}
	v := w.content("v1", 0, false).Version
	for name, in := range map[string]link.Input{
		"a desired entry of the peer's source": link.Desired{Key: status, Version: v},
		"a held entry of the peer's sink":      link.Stored{Key: app, Version: v},
		"a pause of the peer's source":         link.Paused{Collection: stream.Statuses, Waits: link.PauseAll},
		"an absent entry nobody knew":          link.Desired{Key: app},
		"no collection":                        link.Desired{Version: v},
		"an end of no connection":              link.Disconnected{},
		"a tick without a connection":          link.Tick{},
	} {
		if got := w.hub.link.Step(w.now, in); len(got) != 0 {
			t.Errorf("%s: Step() = %v, want nothing", name, got)
		}
	}
	if got := w.hub.link.Flush(w.now, nil); got != nil {
		t.Errorf("Flush() without a connection = %v, want nothing", got)
	}
	if got := w.hub.link.Entries(stream.Applications) + w.hub.link.Entries(stream.Statuses); got != 0 {
		t.Errorf("Entries() = %d, want 0", got)
	}
	if got := w.hub.link.Believed(status); !got.Absent() {
		t.Errorf("Believed() of the peer's source = %v, want nothing", got)
	}
	if got := w.hub.link.Next(); !got.IsZero() {
		t.Errorf("Next() without a connection = %v, want zero", got)
	}
}

// BenchmarkChange is one change from the source's Desired to its Answered, both
// ends included, with 10,000 entries on the link.
func BenchmarkChange(b *testing.B) {
	w := manyEntries(10_000)
	w.connect("c1")
	w.deliver()
	contents := []link.Content{w.content("v2", 2000, false), w.content("v3", 2000, false)}
	keys := make([]stream.EntryKey, 10_000)
	for i := range keys {
		keys[i] = stream.EntryKey{Collection: stream.Applications, Name: fmt.Sprint("application-", i)}
	}
	load := map[*end]link.Load{}
	for _, e := range w.ends() {
		load[e] = func(key stream.EntryKey) (link.Content, bool) {
			c, ok := e.content[key]
			return c, ok
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		key := keys[i%len(keys)]
		c := contents[i/len(keys)%2]
		w.hub.content[key] = c
		w.hub.link.Step(w.now, link.Desired{Key: key, Version: c.Version})
		for _, m := range w.hub.link.Flush(w.now, load[w.hub]) {
			for _, a := range w.spoke.link.Step(w.now, link.Received{Message: m}) {
				event := a.(link.Apply).Event
				w.spoke.link.Step(w.now, link.Stored{Key: event.Key, Version: event.Version, Event: event.ID})
			}
		}
		for _, m := range w.spoke.link.Flush(w.now, load[w.spoke]) {
			w.hub.link.Step(w.now, link.Received{Message: m})
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
}

// BenchmarkUnchangedReconnect is a new connection with 10,000 Applications and
// their statuses on both ends.
func BenchmarkUnchangedReconnect(b *testing.B) {
	w := manyEntries(10_000)
	bytes := 0
	b.ReportAllocs()
	for b.Loop() {
		w.trace = nil
		w.cut()
		w.connect("c")
		bytes = conversation(w)
	}
	b.ReportMetric(float64(bytes), "frame-bytes/op")
}

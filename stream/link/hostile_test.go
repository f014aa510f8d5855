package link_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// connected returns one end of a connection whose sources know what the peer holds,
// which is nothing.
func connected(side stream.Side, mode stream.Mode) (l *link.Link, now time.Time) {
	l, now = link.New(link.Config{Side: side, Mode: mode}), time.Unix(0, 0)
	l.Step(now, link.Connected{ID: "c"})
	var digests []stream.Digest
	for _, c := range stream.Collections() {
		digests = append(digests, stream.Digest{Collection: c})
	}
	l.Step(now, link.Received{Message: stream.Digests{Digests: digests}})
	l.Flush(now, nil)
	return l, now
}

// Of each message that is about a collection one side sends only the one half and
// the other side the other: the wrong way round it ends the connection, on either
// side and in either mode.
func TestTheWrongDirectionEndsTheConnection(t *testing.T) {
	held := stream.Version{SourceUID: "u", Hash: stream.HashOf(nil)}
	for _, mode := range []stream.Mode{stream.Managed, stream.Autonomous} {
		for _, side := range []stream.Side{stream.Hub, stream.Spoke} {
			for _, c := range stream.Collections() {
				key := stream.EntryKey{Collection: c, Name: "a"}
				ofSources := map[string]stream.Message{
					"an apply":   stream.Batch{Events: []stream.Event{{ID: "e", Verb: stream.Apply, Key: key, Version: held, Data: []byte("{}")}}},
					"a deletion": stream.Batch{Events: []stream.Event{{ID: "e", Verb: stream.Delete, Key: key}}},
					"buckets":    stream.Buckets{Collection: c},
				}
				ofSinks := map[string]stream.Message{
					"a report":     stream.Applied{Results: []stream.Result{{Key: key, Held: held}}},
					"an answer":    stream.Applied{Results: []stream.Result{{Key: key, Event: "e"}}},
					"an inventory": stream.Inventory{Collection: c, Buckets: all()},
				}
				wrong := ofSources
				if c.Source(mode) != side {
					wrong = ofSinks // the peer is the source
				}
				if c.Source(mode) == 0 {
					wrong = map[string]stream.Message{}
					for _, messages := range []map[string]stream.Message{ofSources, ofSinks} {
						for name, m := range messages {
							wrong[name] = m
						}
					}
				}
				for name, m := range wrong {
					l, now := connected(side, mode)
					what := fmt.Sprintf("%s of %q to the %s of a %s agent", name, c, side, mode)
					wantViolation(t, what, l.Step(now, link.Received{Message: m}), stream.ViolationDirection)
				}
			}
		}
	}
}

// What no one asked for, or asks for twice.
func TestMessagesOutOfOrderEndTheConnection(t *testing.T) {
	l, now := connected(stream.Hub, stream.Managed)
	wantViolation(t, "a list that nobody asked for",
		l.Step(now, link.Received{Message: stream.Inventory{Collection: stream.Applications, Buckets: all()}}), stream.ViolationOrder)

	l, now = connected(stream.Hub, stream.Managed)
	ask := link.Received{Message: stream.Buckets{Collection: stream.Statuses}}
	if actions := l.Step(now, ask); len(actions) > 0 {
		t.Fatalf("the first question: %v", actions)
	}
	wantViolation(t, "a question before the answer was taken", l.Step(now, ask), stream.ViolationOrder)

	l, now = connected(stream.Hub, stream.Managed)
	l.Step(now, link.Received{Message: stream.Digests{Digests: []stream.Digest{{Collection: stream.Applications, Entries: 7}}}})
	key := stream.EntryKey{Collection: stream.Applications, Name: "a"}
	wantViolation(t, "an entry of another bucket than it says", l.Step(now, link.Received{Message: stream.Inventory{
		Collection: stream.Applications, Entries: []stream.Entry{{Name: key.Name, Version: stream.Version{SourceUID: "u"}}},
	}}), stream.ViolationMalformed)

	l, now = connected(stream.Spoke, stream.Managed)
	event := stream.Event{ID: "e", Verb: stream.Delete, Key: key}
	wantViolation(t, "two events of one id",
		l.Step(now, link.Received{Message: stream.Batch{Events: []stream.Event{event, event}}}), stream.ViolationMalformed)
}

// A peer that does not know what it was sent says so by the event's id. The window
// is free again, the entry is parked, and what comes after it is sent.
func TestUnsupportedEventIsParked(t *testing.T) {
	l, now := link.New(link.Config{Side: stream.Hub, Mode: stream.Managed, Window: 1, Heartbeat: time.Hour}), time.Unix(0, 0)
	load := func(key stream.EntryKey) (link.Content, bool) {
		return link.Content{Version: stream.Version{SourceUID: "u", Hash: stream.HashOf([]byte(key.Name))}, Data: []byte(key.Name)}, true
	}
	first, second := stream.EntryKey{Collection: stream.Commands, Name: "first"}, stream.EntryKey{Collection: stream.Commands, Name: "second"}
	for _, key := range []stream.EntryKey{first, second} {
		content, _ := load(key)
		l.Step(now, link.Desired{Key: key, Version: content.Version})
	}
	l.Step(now, link.Connected{ID: "c"})
	l.Step(now, link.Received{Message: stream.Digests{Digests: []stream.Digest{{Collection: stream.Commands}}}})
	sent := func(want stream.EntryKey) string {
		t.Helper()
		var events []stream.Event
		for _, m := range l.Flush(now, load) {
			if batch, ok := m.(stream.Batch); ok {
				events = append(events, batch.Events...)
			}
		}
		if len(events) != 1 || events[0].Key != want {
			t.Fatalf("sent is %v, want %s", events, want)
		}
		return events[0].ID
	}
	no := &stream.Refusal{Kind: stream.RefusalUnsupported, Message: "what is that?"}
	answer := func(id string) []link.Action {
		return l.Step(now, link.Received{Message: stream.Applied{Results: []stream.Result{{Event: id, Refusal: no}}}})
	}
	if actions := answer("c.nobody"); len(actions) > 0 {
		t.Errorf("the answer to nothing: %v", actions)
	}
	id := sent(first)
	content, _ := load(first)
	actions := answer(id)
	if len(actions) != 1 || actions[0] != link.Action(link.Answered{Key: first, Sent: content.Version, Current: true, Refusal: no}) {
		t.Fatalf("the answer settles %+v", actions)
	}
	if actions := answer(id); len(actions) > 0 {
		t.Errorf("a second answer: %v", actions)
	}
	if parked := l.Parked(); len(parked) != 1 || parked[first] != *no {
		t.Errorf("parked is %v", parked)
	}
	answer(sent(second))
	if next := l.Next(); next.Sub(now) < time.Second || next.Sub(now) > time.Minute {
		t.Errorf("it is tried again after %s", next.Sub(now))
	}
}

// What we do not know is answered, with the rest of its batch.
func TestUnsupportedEventIsAnswered(t *testing.T) {
	l, now := connected(stream.Spoke, stream.Managed)
	event := stream.Event{ID: "e1", Verb: stream.Delete, Key: stream.EntryKey{Collection: stream.Applications, Name: "a"}}
	actions := l.Step(now, link.Received{Message: stream.Batch{
		Events: []stream.Event{event}, Unsupported: []stream.Unsupported{{ID: "e2", Type: "io.argomesh.secret.apply"}},
	}})
	if len(actions) != 1 {
		t.Fatalf("Step() = %v, want the event to be applied", actions)
	}
	l.Step(now, link.Stored{Key: event.Key, Event: event.ID})
	answered := map[string]string{}
	for _, m := range l.Flush(now, nil) {
		if applied, ok := m.(stream.Applied); ok {
			for _, r := range applied.Results {
				kind := ""
				if r.Refusal != nil {
					kind = string(r.Refusal.Kind)
				}
				answered[r.Event] = strings.TrimSpace(r.Key.Name + " " + kind)
			}
		}
	}
	if len(answered) != 2 || answered["e1"] != "a" || answered["e2"] != "unsupported" {
		t.Errorf("answered is %v", answered)
	}
}

// A sink whose digest never is that of what it lists is asked a few times at once
// and then seldom, however often it tells its digest.
func TestDigestsThatLieAreAskedSeldom(t *testing.T) {
	l, now := connected(stream.Hub, stream.Managed)
	began := now
	questions := 0
	flush := func() {
		for _, m := range l.Flush(now, nil) {
			if _, asked := m.(stream.Buckets); asked {
				questions++
				l.Step(now, link.Received{Message: stream.Inventory{Collection: stream.Applications, Buckets: all()}})
			}
		}
	}
	for ; now.Sub(began) < 10*time.Minute; now = now.Add(10 * time.Millisecond) {
		lie := []stream.Digest{{Collection: stream.Applications, Entries: 7}}
		var m stream.Message = stream.Heartbeat{Digests: lie}
		if questions%2 == 0 {
			m = stream.Digests{Digests: lie}
		}
		if actions := l.Step(now, link.Received{Message: m}); len(actions) > 0 {
			t.Fatalf("after %s: %v", now.Sub(began), actions)
		}
		flush()
		if now.Sub(began) == time.Second && (questions < 3 || questions > 5) {
			t.Fatalf("in the first second it is asked %d times, want a few", questions)
		}
	}
	// Often enough to agree within a minute of the last lie (I8).
	if questions < 10 || questions > 24 {
		t.Errorf("in ten minutes of lies it is asked %d times, want between 10 and 24", questions)
	}
}

// A source that asks without end what we hold gets one list in a second.
func TestListsAreBounded(t *testing.T) {
	l, now := connected(stream.Hub, stream.Managed)
	began := now
	key := stream.EntryKey{Collection: stream.Statuses, Name: "a"}
	l.Step(now, link.Stored{Key: key, Version: stream.Version{SourceUID: "u", Hash: stream.HashOf(nil)}})
	lists, waits := 0, false
	for ; now.Sub(began) < 20*time.Second; now = now.Add(10 * time.Millisecond) {
		if !waits {
			if actions := l.Step(now, link.Received{Message: stream.Buckets{Collection: stream.Statuses}}); len(actions) > 0 {
				t.Fatalf("after %s: %v", now.Sub(began), actions)
			}
			waits = true
		}
		for _, m := range l.Flush(now, nil) {
			if inventory, ok := m.(stream.Inventory); ok {
				waits = false
				lists++
				if len(inventory.Entries) != 1 {
					t.Fatalf("the list is %v", inventory.Entries)
				}
			}
		}
		if next := l.Next(); waits && next.Sub(now) > time.Second {
			t.Fatalf("it looks at the question only after %s", next.Sub(now))
		}
	}
	if lists != 20 {
		t.Errorf("%d lists in 20 seconds, want 20", lists)
	}
}

// A peer that asks again and again for a deletion that is held back is answered, and
// the hub's API server is not asked each time.
func TestJudgementsAreBounded(t *testing.T) {
	l, now := link.New(link.Config{Side: stream.Hub, Mode: stream.Autonomous, Guard: true}), time.Unix(0, 0)
	key := stream.EntryKey{Collection: stream.Applications, Name: "a"}
	held := stream.Version{SourceUID: "u", Hash: stream.HashOf(nil)}
	l.Step(now, link.Stored{Key: key, Version: held})
	checks, answers := 0, 0
	step := func(in link.Input) {
		t.Helper()
		actions := l.Step(now, in)
		for _, action := range actions {
			if action != link.Action(link.CheckHistory{}) {
				t.Fatalf("%+v leads to %+v", in, action)
			}
			checks++
			l.Step(now, link.HistoryChecked{Broken: "restored"})
		}
	}
	step(link.Connected{ID: "c"})
	began, asked := now, 0
	for ; now.Sub(began) < time.Minute; now = now.Add(10 * time.Millisecond) {
		asked++
		step(link.Tick{})
		step(link.Received{Message: stream.Batch{Events: []stream.Event{{ID: fmt.Sprint("e", asked), Verb: stream.Delete, Key: key}}}})
		for _, m := range l.Flush(now, nil) {
			if applied, ok := m.(stream.Applied); ok {
				for _, r := range applied.Results {
					if r.Refusal == nil || r.Refusal.Kind != stream.RefusalHeld || r.Held != held {
						t.Fatalf("the answer is %+v", r)
					}
					answers++
				}
			}
		}
	}
	if answers != asked {
		t.Errorf("%d of %d are answered", answers, asked)
	}
	if checks < 5 || checks > 10 {
		t.Errorf("in a minute it is checked %d times, want about every ten seconds", checks)
	}
	// Once the history goes on it is let go.
	step(link.Disconnected{})
	l.Step(now, link.Connected{ID: "d"})
	l.Step(now, link.HistoryChecked{})
	l.Step(now, link.Received{Message: stream.Batch{Events: []stream.Event{{ID: "f", Verb: stream.Delete, Key: key}}}})
	if actions := l.Step(now, link.HistoryChecked{}); len(actions) != 1 {
		t.Errorf("after a check that the history goes on: %v, want the deletion", actions)
	}
}

// Each check costs the hub reads of its API server and a write of the Agent. Anyone who
// reconnects without a pause has no more of them than who stays, and is checked in the end.
func TestJudgementsOfWhoConnectsAnew(t *testing.T) {
	hub := link.New(link.Config{Side: stream.Hub, Mode: stream.Managed, Heartbeat: 10 * time.Second, Guard: true})
	now, checked := time.Unix(0, 0), 0
	count := func(actions []link.Action) {
		for _, a := range actions {
			if _, is := a.(link.CheckHistory); is {
				checked++
			}
		}
	}
	const seconds = 60
	for i := range seconds * 50 {
		now = now.Add(20 * time.Millisecond)
		count(hub.Step(now, link.Connected{ID: fmt.Sprint(i)}))
		count(hub.Step(now, link.HistoryChecked{}))
	}
	if most := 20*seconds/10 + seconds; checked > most || checked < seconds {
		t.Errorf("%d checks in %d s, want %d at most", checked, seconds, most)
	}
	before := checked
	count(hub.Step(now, link.Connected{ID: "stays"}))
	for range 4 {
		now = now.Add(500 * time.Millisecond)
		count(hub.Step(now, link.Tick{}))
	}
	if checked == before {
		t.Error("who stays is not checked")
	}
}

package link_test

import (
	"testing"
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// Someone on the sink's side who undoes again and again what is applied is
// answered ever more seldom, and at once again when he has stopped for a while.
func TestFightIsDamped(t *testing.T) {
	key := stream.EntryKey{Collection: stream.Applications, Name: "app"}
	version := stream.Version{SourceUID: "uid", Hash: stream.HashOf([]byte("{}"))}
	load := func(stream.EntryKey) (link.Content, bool) {
		return link.Content{Version: version, Revision: 1, Data: []byte("{}")}, true
	}
	l := link.New(link.Config{Side: stream.Hub, Mode: stream.Managed, Heartbeat: time.Hour})
	now := time.Unix(0, 0)
	l.Step(now, link.Desired{Key: key, Version: version})
	l.Step(now, link.Connected{ID: "c"})
	l.Step(now, link.Received{Message: stream.Digests{Digests: []stream.Digest{
		{Collection: stream.Applications}, {Collection: stream.AppProjects}, {Collection: stream.Commands},
	}}})
	l.Step(now, link.Received{Message: stream.Inventory{Collection: stream.Applications, Buckets: all()}})
	// sent answers what is sent and reports whether anything was.
	sent := func() bool {
		l.Step(now, link.Tick{})
		for _, m := range l.Flush(now, load) {
			if batch, ok := m.(stream.Batch); ok {
				l.Step(now, link.Received{Message: stream.Applied{Results: []stream.Result{
					{Key: key, Event: batch.Events[0].ID, Held: version},
				}}})
				return true
			}
		}
		return false
	}
	undo := func() { l.Step(now, link.Received{Message: stream.Applied{Results: []stream.Result{{Key: key}}}}) }
	if !sent() {
		t.Fatal("nothing was sent at first")
	}
	var pauses []time.Duration
	for range 8 {
		undo()
		undone := now
		for !sent() {
			now = now.Add(100 * time.Millisecond)
		}
		pauses = append(pauses, now.Sub(undone))
	}
	if pauses[0] != 0 || pauses[2] != 0 {
		t.Errorf("the first are not mended at once: %v", pauses)
	}
	for i := 4; i < len(pauses); i++ {
		if pauses[i] <= pauses[i-1] && pauses[i] < 15*time.Second {
			t.Errorf("pause %d is no longer than the one before: %v", i, pauses)
		}
	}
	now = now.Add(10 * time.Minute)
	undo()
	if !sent() {
		t.Error("after a while of peace it is not mended at once")
	}
}

// A sink that knows of an object before its source does has undone nothing: later
// it may undo as often as any other before that is answered more seldom.
func TestFirstReportIsNoFight(t *testing.T) {
	key := stream.EntryKey{Collection: stream.Applications, Name: "app"}
	early := stream.Version{SourceUID: "uid", Hash: stream.HashOf([]byte("early"))}
	version := stream.Version{SourceUID: "uid", Hash: stream.HashOf([]byte("{}"))}
	load := func(stream.EntryKey) (link.Content, bool) {
		return link.Content{Version: version, Revision: 1, Data: []byte("{}")}, true
	}
	l := link.New(link.Config{Side: stream.Hub, Mode: stream.Managed, Heartbeat: time.Hour})
	now := time.Unix(0, 0)
	l.Step(now, link.Connected{ID: "c"})
	l.Step(now, link.Received{Message: stream.Digests{Digests: []stream.Digest{
		{Collection: stream.Applications}, {Collection: stream.AppProjects}, {Collection: stream.Commands},
	}}})
	report := func(event string, held stream.Version) {
		l.Step(now, link.Received{Message: stream.Applied{Results: []stream.Result{{Key: key, Event: event, Held: held}}}})
	}
	report("", early)
	l.Step(now, link.Desired{Key: key, Version: version})
	for undoings := range 4 {
		var sent stream.Batch
		for _, m := range l.Flush(now, load) {
			if batch, ok := m.(stream.Batch); ok {
				sent = batch
			}
		}
		if len(sent.Events) != 1 {
			t.Fatalf("after %d undoings %d events are sent, want 1", undoings, len(sent.Events))
		}
		report(sent.Events[0].ID, version)
		report("", stream.Version{})
	}
}

func all() (set stream.BucketSet) {
	for i := range set {
		set[i] = 0xff
	}
	return set
}

// A peer that sends more than its own window allows is disconnected.
func TestUnansweredEventsAreBounded(t *testing.T) {
	const limit = 2048
	l := link.New(link.Config{Side: stream.Spoke, Mode: stream.Managed})
	now := time.Unix(0, 0)
	l.Step(now, link.Connected{ID: "c"})
	event := func(i int) stream.Event {
		id := time.Duration(i).String()
		return stream.Event{ID: id, Verb: stream.Delete, Key: stream.EntryKey{Collection: stream.Applications, Name: "app"}}
	}
	// Answered ones do not count.
	for i := range 2 * limit {
		l.Step(now, link.Received{Message: stream.Batch{Events: []stream.Event{event(i)}}})
		l.Step(now, link.Stored{Key: event(i).Key, Event: event(i).ID})
		l.Flush(now, nil)
	}
	for i := range limit + 1 {
		actions := l.Step(now, link.Received{Message: stream.Batch{Events: []stream.Event{event(i)}}})
		_, ended := actions[len(actions)-1].(link.Disconnect)
		if ended != (i == limit) {
			t.Fatalf("after %d events: %v", i+1, actions)
		}
	}
}

// So is one whose unanswered events are too large together.
func TestUnansweredBytesAreBounded(t *testing.T) {
	const limit, share = 8 << 20, 1 << 20
	l := link.New(link.Config{Side: stream.Spoke, Mode: stream.Managed})
	now := time.Unix(0, 0)
	l.Step(now, link.Connected{ID: "c"})
	data := make([]byte, share)
	event := func(i, size int) link.Received {
		return link.Received{Message: stream.Batch{Events: []stream.Event{{
			ID: time.Duration(i).String(), Verb: stream.Apply, Data: data[:size],
			Key:     stream.EntryKey{Collection: stream.Applications, Name: "app"},
			Version: stream.Version{SourceUID: "u", Hash: stream.HashOf(nil)},
		}}}}
	}
	for i := range limit / share {
		if actions := l.Step(now, event(i, share)); len(actions) != 1 {
			t.Fatalf("after %d bytes: %v", (i+1)*share, actions)
		}
	}
	wantViolation(t, "one byte more", l.Step(now, event(limit/share, 1)), stream.ViolationLimit)
}

// A peer that does not read our answers cannot have us keep ever more of them, not
// even those to events that we do not know.
func TestUnsupportedEventsAreBounded(t *testing.T) {
	const limit = 1 << 16
	l := link.New(link.Config{Side: stream.Hub, Mode: stream.Managed})
	now := time.Unix(0, 0)
	l.Step(now, link.Connected{ID: "c"})
	some := link.Received{Message: stream.Batch{Unsupported: make([]stream.Unsupported, 1024)}}
	for i := 0; i < limit; i += 1024 {
		if actions := l.Step(now, some); len(actions) > 0 {
			t.Fatalf("after %d events: %v", i+1024, actions)
		}
	}
	actions := l.Step(now, link.Received{Message: stream.Batch{Unsupported: make([]stream.Unsupported, 1)}})
	if len(actions) != 1 || actions[0] != link.Action(link.Disconnect{Cause: link.CauseStalled}) {
		t.Errorf("one more: %v, want the end of the connection", actions)
	}
}

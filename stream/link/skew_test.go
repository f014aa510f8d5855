package link_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// A sink of another release says by its digests which collections it knows: what
// it does not know is never sent, and what only it knows does no harm.
func TestOnlyCollectionsOfTheSinkAreSent(t *testing.T) {
	now := time.Unix(0, 0)
	hub := link.New(link.Config{Side: stream.Hub, Mode: stream.Managed})
	version := stream.Version{SourceUID: "u", Hash: stream.HashOf([]byte("x"))}
	for _, c := range []stream.Collection{stream.Applications, stream.AppProjects, stream.Commands} {
		hub.Step(now, link.Desired{Key: stream.EntryKey{Collection: c, Name: "a"}, Version: version})
	}
	hub.Step(now, link.Connected{ID: "c"})
	// ParseFrame leaves out the digests of collections that we do not know.
	hub.Step(now, link.Received{Message: stream.Digests{Digests: []stream.Digest{{Collection: stream.Applications}}}})
	sent := map[string]int{}
	for range 20 {
		for _, m := range hub.Flush(now, func(stream.EntryKey) (link.Content, bool) {
			return link.Content{Version: version, Data: []byte("x")}, true
		}) {
			if batch, ok := m.(stream.Batch); ok {
				for _, e := range batch.Events {
					sent[e.Key.Collection.String()]++
				}
			}
		}
		now = now.Add(5 * time.Second)
		hub.Step(now, link.Received{Message: stream.Heartbeat{}}) // it lives
		if actions := hub.Step(now, link.Tick{}); len(actions) > 0 {
			t.Fatalf("after %s the link asks for %s", now, fmt.Sprint(actions))
		}
	}
	if diff := cmp.Diff(map[string]int{"application": 1}, sent); diff != "" {
		t.Errorf("events by collection (-want +got):\n%s", diff)
	}
}

// A sink of an older release, which knows nothing of some collections, keeps neither
// a new history from beginning nor both sides from agreeing.
func TestUnknownCollectionsHoldNothingUp(t *testing.T) {
	now := time.Unix(0, 0)
	hub := link.New(link.Config{Side: stream.Hub, Mode: stream.Managed, Guard: true})
	judges := func(actions []link.Action) bool {
		for _, a := range actions {
			if _, ok := a.(link.CheckHistory); ok {
				return true
			}
		}
		return false
	}
	if !judges(hub.Step(now, link.Connected{ID: "c"})) {
		t.Fatal("nobody is asked whether the history continues")
	}
	hub.Step(now, link.HistoryChecked{Broken: "restored"})
	if hub.Agreed() {
		t.Error("the link agrees before its peer said anything")
	}
	hub.Step(now, link.Received{Message: stream.Digests{Digests: []stream.Digest{
		{Collection: stream.Applications}, {Collection: stream.AppProjects}, {Collection: stream.Commands},
	}}})
	if !hub.Agreed() {
		t.Error("the link does not agree with a peer that holds all that it can")
	}
	begun := false
	step := func(in link.Input) (asked bool) {
		actions := hub.Step(now, in)
		for _, a := range actions {
			if _, ok := a.(link.Begin); ok {
				begun = true
			}
		}
		return judges(actions)
	}
	for range 12 {
		now = now.Add(5 * time.Second)
		for _, in := range []link.Input{link.Received{Message: stream.Heartbeat{}}, link.Tick{}} {
			if step(in) {
				step(link.HistoryChecked{Broken: "restored"})
			}
		}
	}
	if !begun {
		t.Error("no new history begins")
	}
	repository := stream.EntryKey{Collection: stream.Repositories, Name: "a"}
	hub.Step(now, link.Desired{Key: repository, Version: stream.Version{SourceUID: "u", Hash: stream.HashOf([]byte("x"))}})
	if hub.Agreed() {
		t.Error("the link agrees with a peer that cannot hold what it desires")
	}
}

// A peer whose words wait on our side to be read is not silent, however long that takes; it
// is again from then on.
func TestWhoWaitsIsNotSilent(t *testing.T) {
	now := time.Unix(0, 0)
	hub := link.New(link.Config{Side: stream.Hub, Mode: stream.Managed, Heartbeat: 10 * time.Second})
	silent := func(actions []link.Action) bool {
		return slices.ContainsFunc(actions, func(a link.Action) bool {
			end, is := a.(link.Disconnect)
			return is && end.Cause == link.CauseSilent
		})
	}
	hub.Step(now, link.Connected{ID: "c"})
	for range 60 {
		now = now.Add(10 * time.Second)
		if actions := hub.Step(now, link.Tick{Waits: true}); silent(actions) {
			t.Fatalf("it counts as silent at %s", now)
		}
	}
	now = now.Add(26 * time.Second)
	if actions := hub.Step(now, link.Tick{}); !silent(actions) {
		t.Errorf("it is not silent after 26 s: %v", actions)
	}
}

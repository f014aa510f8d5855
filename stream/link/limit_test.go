package link_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// A peer that takes nothing while ever more is to be said to it costs a bounded
// number of results.
func TestUnsentResultsAreBounded(t *testing.T) {
	const limit = 1 << 16
	l := link.New(link.Config{Side: stream.Spoke, Mode: stream.Managed})
	now := time.Unix(0, 0)
	l.Step(now, link.Connected{ID: "c"})
	for i := range limit + 1 {
		actions := l.Step(now, link.Held{
			Key:     stream.EntryKey{Collection: stream.Applications, Name: "app"},
			Version: stream.Version{SourceUID: "uid", Hash: stream.HashOf(fmt.Append(nil, i))},
		})
		switch {
		case i < limit && len(actions) > 0:
			t.Fatalf("after %d results: %v", i, actions)
		case i == limit && (len(actions) != 1 || actions[0] != link.Action(link.Disconnect{Cause: link.CauseStalled})):
			t.Fatalf("after %d results: %v, want a disconnect", i, actions)
		}
	}
}

// A peer cannot make us remember more entries than any spoke can have, whether it
// reports or lists them; and as many as that it can.
func TestInventedEntriesAreBounded(t *testing.T) {
	const limit, share = 1 << 16, 1024
	held := stream.Version{SourceUID: "uid", Hash: stream.HashOf(nil)}
	reported := func(from, n int) stream.Message {
		m := stream.Applied{}
		for i := range n {
			key := stream.EntryKey{Collection: stream.Applications, Name: fmt.Sprint("invented-", from+i)}
			m.Results = append(m.Results, stream.Result{Key: key, Held: held})
		}
		return m
	}
	listed := func(from, n int) stream.Message {
		m := stream.Inventory{Collection: stream.Applications, Buckets: all(), More: true}
		for i := range n {
			m.Entries = append(m.Entries, stream.Entry{Name: fmt.Sprint("invented-", from+i), Version: held})
		}
		return m
	}
	for name, message := range map[string]func(from, n int) stream.Message{"reported": reported, "listed": listed} {
		l := link.New(link.Config{Side: stream.Hub, Mode: stream.Managed})
		now := time.Unix(0, 0)
		l.Step(now, link.Connected{ID: "c"})
		l.Step(now, link.Received{Message: stream.Digests{Digests: []stream.Digest{{Collection: stream.Applications, Entries: 1}}}})
		for from := 0; from < limit; from += share {
			if actions := l.Step(now, link.Received{Message: message(from, share)}); len(actions) > 0 {
				t.Fatalf("%s: %d entries are taken for %v", name, from+share, actions)
			}
		}
		wantViolation(t, name+": one more than the limit", l.Step(now, link.Received{Message: message(limit, 1)}), stream.ViolationLimit)
	}
}

// wantViolation fails the test unless the connection ends for that.
func wantViolation(t *testing.T, what string, actions []link.Action, want stream.Violation) {
	t.Helper()
	wanted := link.Disconnect{Cause: link.CauseProtocol, Violation: want}
	if len(actions) == 0 || actions[len(actions)-1] != link.Action(wanted) {
		t.Errorf("%s: %v, want the end of the connection for %q", what, actions, want)
	}
}

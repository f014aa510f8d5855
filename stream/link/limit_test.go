package link_test

import (
	"fmt"
	"strings"
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
		actions := l.Step(now, link.Stored{
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

// Content that no API server takes is not sent, which would end the connection: it is
// parked with the reason, what comes after it is sent, and it is tried when it has
// changed.
func TestContentThatIsTooLongIsParked(t *testing.T) {
	long, short := stream.EntryKey{Collection: stream.Commands, Name: "long"}, stream.EntryKey{Collection: stream.Commands, Name: "short"}
	content := map[stream.EntryKey]link.Content{
		long:  {Data: make([]byte, stream.MaxDataBytes+1)},
		short: {Data: make([]byte, stream.MaxDataBytes)},
	}
	load := func(key stream.EntryKey) (link.Content, bool) {
		c := content[key]
		c.Version = stream.Version{SourceUID: "u", Hash: stream.HashOf(c.Data)}
		return c, true
	}
	l, now := link.New(link.Config{Side: stream.Hub, Mode: stream.Managed, Heartbeat: time.Hour}), time.Unix(0, 0)
	l.Step(now, link.Connected{ID: "c"})
	l.Step(now, link.Received{Message: stream.Digests{Digests: []stream.Digest{{Collection: stream.Commands}}}})
	sent := func() (names []string) {
		for _, m := range l.Flush(now, load) {
			if batch, ok := m.(stream.Batch); ok {
				for _, e := range batch.Events {
					names = append(names, e.Key.Name)
				}
			}
		}
		return names
	}
	desire := func(key stream.EntryKey) {
		c, _ := load(key)
		l.Step(now, link.Desired{Key: key, Version: c.Version})
	}
	desire(long)
	desire(short)
	if got := sent(); len(got) != 1 || got[0] != "short" {
		t.Errorf("%v are sent", got)
	}
	parked := l.Parked()
	if r := parked[long]; len(parked) != 1 || r.Kind != stream.RefusalInvalid || !strings.Contains(r.Message, "3145729 bytes") {
		t.Errorf("parked is %v", parked)
	}
	if l.Agreed() {
		t.Error("it counts as agreed")
	}
	content[long] = link.Content{Data: []byte("{}")}
	desire(long)
	if got := sent(); len(got) != 1 || got[0] != "long" {
		t.Errorf("after it was cut %v are sent", got)
	}
}

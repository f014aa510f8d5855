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

// A peer cannot make us remember more entries than any spoke can have.
func TestInventedEntriesAreBounded(t *testing.T) {
	const limit = 1 << 20
	l := link.New(link.Config{Side: stream.Hub, Mode: stream.Managed})
	now := time.Unix(0, 0)
	l.Step(now, link.Connected{ID: "c"})
	reports := stream.Applied{Results: make([]stream.Result, 1024)}
	for sent := 0; sent <= limit+len(reports.Results); sent += len(reports.Results) {
		for i := range reports.Results {
			reports.Results[i] = stream.Result{
				Key:  stream.EntryKey{Collection: stream.Applications, Name: fmt.Sprint("invented-", sent+i)},
				Held: stream.Version{SourceUID: "uid", Hash: stream.HashOf(nil)},
			}
		}
		for _, action := range l.Step(now, link.Received{Message: reports}) {
			if action != link.Action(link.Disconnect{Cause: link.CauseProtocol}) {
				t.Fatalf("after %d entries: %v", sent, action)
			}
			if sent+len(reports.Results) < limit {
				t.Fatalf("ended after %d entries", sent)
			}
			return
		}
	}
	t.Fatal("a million invented entries were taken")
}

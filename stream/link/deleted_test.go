package link_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// A Delete is about what the sink held as far as the source knew, whatever another
// connection has made of it by the time that it comes; that of an older peer, which does not
// say it, about what the sink holds when it comes.
func TestDeleteNamesWhatWasHeld(t *testing.T) {
	key := stream.EntryKey{Collection: stream.Applications, Name: "app"}
	before := stream.Version{SourceUID: "before", Hash: stream.HashOf([]byte("before"))}
	since := stream.Version{SourceUID: "since", Hash: stream.HashOf([]byte("since"))}
	for name, c := range map[string]struct {
		older bool
		want  string
	}{
		"names it":      {want: "before"},
		"an older peer": {older: true, want: "since"},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1_700_000_000, 0)
			source := link.New(link.Config{Side: stream.Spoke, Mode: stream.Autonomous})
			sink := link.New(link.Config{Side: stream.Hub, Mode: stream.Autonomous})
			sink.Step(now, link.Stored{Key: key, Version: before})
			source.Step(now, link.Desired{Key: key, Version: before})
			source.Step(now, link.Connected{ID: "c1"})
			sink.Step(now, link.Connected{ID: "c1"})
			nothing := func(stream.EntryKey) (link.Content, bool) { return link.Content{}, false }
			for _, m := range sink.Flush(now, nothing) {
				source.Step(now, link.Received{Message: m})
			}
			source.Step(now, link.Desired{Key: key})
			sink.Step(now, link.Stored{Key: key, Version: since})
			var named []string
			for _, m := range source.Flush(now, nothing) {
				batch, is := m.(stream.Batch)
				if !is {
					continue
				}
				if c.older {
					batch.Events[0].Deleted = ""
				}
				for _, action := range sink.Step(now, link.Received{Message: batch}) {
					if apply, is := action.(link.Apply); is {
						named = append(named, apply.Event.Deleted)
					}
				}
			}
			if diff := cmp.Diff([]string{c.want}, named); diff != "" {
				t.Errorf("the sink is to apply deletions of (-want +got):\n%s", diff)
			}
		})
	}
}

package link_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// What the sink holds and the source never desired does not end before the API server was
// asked: an entry of which nothing was ever desired, or another object of that name.
func TestUnfamiliar(t *testing.T) {
	key := stream.EntryKey{Collection: stream.Applications, Name: "app"}
	ours := stream.Version{SourceUID: "ours", Hash: stream.HashOf([]byte("ours"))}
	theirs := stream.Version{SourceUID: "theirs", Hash: stream.HashOf([]byte("theirs"))}
	for name, c := range map[string]struct {
		desired, held stream.Version
		verify        bool
		asks          bool
	}{
		"never desired":                        {held: theirs, verify: true, asks: true},
		"another object was desired":           {desired: ours, held: theirs, verify: true, asks: true},
		"desired before":                       {desired: ours, held: ours, verify: true},
		"nobody asks, and it is taken as gone": {held: theirs},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1_700_000_000, 0)
			source := link.New(link.Config{Side: stream.Spoke, Mode: stream.Autonomous, Verify: c.verify})
			sink := link.New(link.Config{Side: stream.Hub, Mode: stream.Autonomous})
			sink.Step(now, link.Stored{Key: key, Version: c.held})
			source.Step(now, link.Connected{ID: "c1"})
			sink.Step(now, link.Connected{ID: "c1"})
			deleted := 0
			content := map[stream.EntryKey]link.Content{}
			exchange := func() {
				for range 4 {
					for _, m := range sink.Flush(now, nil) {
						source.Step(now, link.Received{Message: m})
					}
					for _, m := range source.Flush(now, func(key stream.EntryKey) (link.Content, bool) {
						content, ok := content[key]
						return content, ok
					}) {
						if batch, ok := m.(stream.Batch); ok {
							for _, e := range batch.Events {
								if e.Verb == stream.Delete {
									deleted++ // and not answered
									continue
								}
								source.Step(now, link.Received{Message: stream.Applied{Results: []stream.Result{{Key: e.Key, Event: e.ID, Held: c.held}}}})
							}
							continue
						}
						sink.Step(now, link.Received{Message: m})
					}
				}
			}
			if !c.desired.Absent() {
				source.Step(now, link.Desired{Key: key, Version: c.desired})
				content[key] = link.Content{Version: c.desired}
			}
			exchange()
			delete(content, key)
			source.Step(now, link.Desired{Key: key})
			exchange()
			var want []stream.EntryKey
			if c.asks {
				want = append(want, key)
			}
			if diff := cmp.Diff(want, source.Unfamiliar()); diff != "" {
				t.Fatalf("Unfamiliar() (-want +got):\n%s", diff)
			}
			if c.asks == (deleted == 1) || deleted > 1 {
				t.Fatalf("%d deletions were sent", deleted)
			}
			if !c.asks {
				return
			}
			source.Step(now, link.Verified{Key: key})
			exchange()
			if deleted != 1 || source.Unfamiliar() != nil {
				t.Errorf("%d deletions were sent once it is known that it is gone", deleted)
			}
		})
	}
}

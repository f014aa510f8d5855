package link

import (
	"strconv"
	"testing"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// TestPeerThatSaysOneThingAndThenTheOther: what is kept for the work on entries does not grow
// with what a peer says of them, but with their number, whether the window lets anything
// leave or not.
func TestPeerThatSaysOneThingAndThenTheOther(t *testing.T) {
	const entries, rounds = 20, 2000
	version := func(content string) stream.Version {
		return stream.Version{SourceUID: "u", Hash: stream.HashOf([]byte(content))}
	}
	refused := &stream.Refusal{Kind: stream.RefusalInvalid}
	for name, c := range map[string]struct {
		says   []stream.Result // in turn, of every entry
		leaves bool            // what is due is sent, and answered by what is said next
		names  int             // how many are invented beside
	}{
		"it has it and has it not":                   {says: []stream.Result{{Held: version("ours")}, {Held: version("other")}}},
		"the same while it is sent":                  {says: []stream.Result{{Held: version("ours")}, {Held: version("other")}}, leaves: true},
		"it may take now what it refuses":            {says: []stream.Result{{Refusal: refused}, {Refusal: refused}, {Retry: true}}, leaves: true},
		"it holds what there is not, and lets it go": {says: []stream.Result{{Held: version("invented")}, {}}, names: entries},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			l := New(Config{Side: stream.Hub, Mode: stream.Managed})
			s := l.ends.source(stream.Applications)
			var keys []stream.EntryKey
			for i := range entries + c.names {
				key := stream.EntryKey{Collection: stream.Applications, Name: strconv.Itoa(i)}
				if keys = append(keys, key); i < entries {
					l.Step(now, Desired{Key: key, Version: version("ours")})
				}
			}
			load := func(stream.EntryKey) (Content, bool) {
				return Content{Version: version("ours"), Data: []byte("{}")}, true
			}
			l.Step(now, Connected{ID: "c"})
			if c.leaves {
				l.Step(now, Received{Message: stream.Digests{Digests: []stream.Digest{{Collection: stream.Applications}}}})
			}
			for i := range rounds {
				now = now.Add(time.Millisecond)
				var results []stream.Result
				for _, key := range keys {
					r := c.says[i%len(c.says)]
					if r.Key = key; c.leaves {
						if e := s.entries.get(key); e != nil {
							r.Event = e.inFlight()
						}
					}
					results = append(results, r)
				}
				l.Step(now, Received{Message: stream.Applied{Results: results}})
				l.Step(now, Tick{})
				if c.leaves {
					l.Flush(now, load)
				}
			}
			if most := 2*len(keys) + maxSpare; s.agenda.dirty.len() > most || len(s.agenda.parked) > most || len(s.agenda.calming) > most {
				t.Errorf("after %d rounds of %d entries %d are queued, %d parked, %d remembered; want %d at most",
					rounds, len(keys), s.agenda.dirty.len(), len(s.agenda.parked), len(s.agenda.calming), most)
			}
		})
	}
}

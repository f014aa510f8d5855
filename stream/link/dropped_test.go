package link_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

var (
	droppedKey     = stream.EntryKey{Collection: stream.Applications, Name: "app"}
	droppedVersion = stream.Version{SourceUID: "uid", Hash: stream.HashOf([]byte("{}"))}
)

func loadDropped(stream.EntryKey) (link.Content, bool) {
	return link.Content{Version: droppedVersion, Revision: 1, Data: []byte("{}")}, true
}

// results are those of what a link says.
func results(l *link.Link, now time.Time) (all []stream.Result) {
	for _, m := range l.Flush(now, loadDropped) {
		if applied, ok := m.(stream.Applied); ok {
			all = append(all, applied.Results...)
		}
	}
	return all
}

// A sink says what its API server does not keep when that changes, and again at the
// beginning of each connection.
func TestSinkTellsWhatIsDropped(t *testing.T) {
	l := link.New(link.Config{Side: stream.Spoke, Mode: stream.Managed})
	now := time.Unix(0, 0)
	held := func(paths ...string) {
		l.Step(now, link.Stored{Key: droppedKey, Version: droppedVersion, Dropped: paths})
	}
	said := func(want ...stream.Result) {
		t.Helper()
		if diff := cmp.Diff(want, results(l, now)); diff != "" {
			t.Errorf("it says (-want +got):\n%s", diff)
		}
	}
	with := stream.Result{Key: droppedKey, Held: droppedVersion, Dropped: []string{"spec.a"}}
	held("spec.a")
	l.Step(now, link.Connected{ID: "c-1"})
	said(with)
	held("spec.a")
	said()
	held()
	said(stream.Result{Key: droppedKey, Held: droppedVersion})
	held("spec.a")
	said(with)
	l.Step(now, link.Connected{ID: "c-2"})
	said(with)
	l.Step(now, link.Stored{Key: droppedKey})
	said(stream.Result{Key: droppedKey})
	l.Step(now, link.Connected{ID: "c-3"})
	said()
}

// A source keeps what the sink said while it is away, and until a new connection
// has said all.
func TestSourceKnowsWhatIsDropped(t *testing.T) {
	l := link.New(link.Config{Side: stream.Hub, Mode: stream.Managed})
	now := time.Unix(0, 0)
	knows := func(moment string, paths []string, known bool) {
		t.Helper()
		if got, ok := l.Dropped(droppedKey); !slices.Equal(got, paths) || ok != known {
			t.Errorf("%s: Dropped() = %q, %t, want %q, %t", moment, got, ok, paths, known)
		}
		if got := l.AllDropped()[droppedKey]; !slices.Equal(got, paths) {
			t.Errorf("%s: AllDropped() has %q, want %q", moment, got, paths)
		}
	}
	tells := func(moment string, news bool, paths ...string) {
		t.Helper()
		actions := l.Step(now, link.Received{Message: stream.Applied{Results: []stream.Result{
			{Key: droppedKey, Held: droppedVersion, Dropped: paths},
		}}})
		if got := slices.Contains(actions, link.Action(link.Shortened{Key: droppedKey})); got != news {
			t.Errorf("%s: the caller is told: %t, want %t", moment, got, news)
		}
	}
	beat := func() { l.Step(now, link.Received{Message: stream.Heartbeat{}}) }
	l.Step(now, link.Desired{Key: droppedKey, Version: droppedVersion})
	knows("at first", nil, false)
	l.Step(now, link.Connected{ID: "c-1"})
	tells("said", true, "spec.a")
	tells("said again", false, "spec.a")
	knows("said", []string{"spec.a"}, true)
	l.Step(now, link.Disconnected{})
	knows("away", []string{"spec.a"}, true)
	l.Step(now, link.Connected{ID: "c-2"})
	knows("back", []string{"spec.a"}, true)
	tells("said on the new connection", false, "spec.a")
	beat()
	knows("all said", []string{"spec.a"}, true)
	tells("no more", true)
	knows("no more", nil, true)
	tells("once more", true, "spec.b")
	l.Step(now, link.Connected{ID: "c-3"})
	beat()
	knows("not said again", nil, true)

	invented := stream.EntryKey{Collection: stream.Applications, Name: "invented"}
	l.Step(now, link.Received{Message: stream.Applied{Results: []stream.Result{{Key: invented, Held: droppedVersion, Dropped: []string{"x"}}}}})
	if got := l.AllDropped(); len(got) > 0 {
		t.Errorf("of an entry that is not there it keeps %q", got)
	}
}

// What waits since it was refused is tried again soon when the sink says that it may
// be taken now, and not more often however often it says so.
func TestRetry(t *testing.T) {
	spoke, hub := link.New(link.Config{Side: stream.Spoke, Mode: stream.Managed}), link.New(link.Config{Side: stream.Hub, Mode: stream.Managed, Heartbeat: time.Hour})
	now := time.Unix(0, 0)
	spoke.Step(now, link.Connected{ID: "c"})
	hub.Step(now, link.Connected{ID: "c"})
	hub.Step(now, link.Desired{Key: droppedKey, Version: droppedVersion})
	hub.Step(now, link.Received{Message: stream.Digests{Digests: []stream.Digest{{Collection: stream.Applications}, {Collection: stream.AppProjects}, {Collection: stream.Commands}}}})
	hub.Step(now, link.Received{Message: stream.Inventory{Collection: stream.Applications, Buckets: all()}})
	// refused answers what is sent, and reports whether anything was.
	refused := func() bool {
		hub.Step(now, link.Tick{})
		for _, m := range hub.Flush(now, loadDropped) {
			if batch, ok := m.(stream.Batch); ok {
				hub.Step(now, link.Received{Message: stream.Applied{Results: []stream.Result{
					{Key: droppedKey, Event: batch.Events[0].ID, Refusal: &stream.Refusal{Kind: stream.RefusalInvalid}},
				}}})
				return true
			}
		}
		return false
	}
	waited := func() time.Duration {
		from := now
		for !refused() {
			now = now.Add(100 * time.Millisecond)
		}
		return now.Sub(from)
	}
	for range 8 {
		waited()
	}
	spoke.Step(now, link.Retry{Key: droppedKey})
	said := results(spoke, now)
	if diff := cmp.Diff([]stream.Result{{Key: droppedKey, Retry: true}}, said); diff != "" {
		t.Fatalf("the sink says (-want +got):\n%s", diff)
	}
	for range 20 {
		hub.Step(now, link.Received{Message: stream.Applied{Results: said}})
		now = now.Add(100 * time.Millisecond)
	}
	if after := waited(); after < time.Second || after > 10*time.Second {
		t.Errorf("after it was asked to, it tries again after %s", after+2*time.Second)
	}
	now = now.Add(time.Second)
	hub.Step(now, link.Disconnected{})
	spoke.Step(now, link.Disconnected{})
	spoke.Step(now, link.Retry{Key: droppedKey})
	spoke.Step(now, link.Connected{ID: "c-2"})
	if said := results(spoke, now); len(said) > 0 {
		t.Errorf("without a connection, what it would have said is %v", said)
	}
}

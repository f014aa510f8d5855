package refusals_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/refusals"
	"github.com/argomesh/argomesh/stream"
)

func entry(name string) stream.EntryKey {
	return stream.EntryKey{Collection: stream.Applications, Name: name}
}

func event(name string) stream.Event {
	return stream.Event{Key: entry(name), Version: stream.Version{SourceUID: "uid-" + name, Hash: stream.HashOf([]byte(name))}}
}

// TestRefusals follows refusals until they are taken back, held all the same, or forgotten.
func TestRefusals(t *testing.T) {
	now := time.Unix(1000, 0)
	r := refusals.Refusals{}
	refuse := func(name string, kind stream.RefusalKind) {
		r.Record(event(name), &stream.Refusal{Kind: kind, Message: name}, now)
	}
	refuse("b", stream.RefusalInvalid)
	refuse("a", stream.RefusalInvalid)
	refuse("c", stream.RefusalNotOwned)
	refuse("d", stream.RefusalUnavailable) // it passes by itself
	if _, refused := r.Of(entry("d")); refused || len(r) != 3 {
		t.Errorf("%d are remembered", len(r))
	}
	if keys := r.OfKind(stream.RefusalInvalid); !slices.Equal(keys, []stream.EntryKey{entry("a"), entry("b")}) {
		t.Errorf("of one kind: %v", keys)
	}
	r.Stored(entry("a"), event("a").Version)
	r.Record(event("b"), nil, now)
	if refusal, refused := r.Of(entry("c")); !refused || refusal.Message != "c" || len(r) != 1 {
		t.Errorf("of c %v, %d in all", refusal, len(r))
	}
	if standing := r.Active(now.Add(14 * time.Minute)); len(standing) != 1 {
		t.Errorf("after 14 minutes %d stand", len(standing))
	}
	if standing := r.Active(now.Add(16 * time.Minute)); len(standing) != 0 || len(r) != 0 {
		t.Errorf("after 16 minutes %d stand", len(standing))
	}
}

// TestRefusalIsFreed once, when what stood in the way has gone, is another, or says otherwise.
func TestRefusalIsFreed(t *testing.T) {
	at := func(uid, policy string) *object.Object {
		return &object.Object{Fields: map[string]any{"metadata": map[string]any{"uid": uid, "annotations": map[string]any{object.AdoptionPolicyKey: policy}}}}
	}
	for name, now := range map[string]*object.Object{"it has gone": nil, "it is another": at("u-2", "never"), "its owner says otherwise": at("u-1", "always")} {
		r := refusals.Refusals{}
		r.Record(event("a"), &stream.Refusal{Kind: stream.RefusalNotOwned}, time.Unix(1000, 0))
		r.StoodIn(entry("a"), at("u-1", "never"))
		if r.Freed(entry("a"), at("u-1", "never")) {
			t.Errorf("%s: freed while it is as it was", name)
		}
		if !r.Freed(entry("a"), now) || r.Freed(entry("a"), now) {
			t.Errorf("%s: not freed once", name)
		}
	}
}

// TestRefusalsHaveALimit: a peer can invent entries.
func TestRefusalsHaveALimit(t *testing.T) {
	const most = refusals.MaxRefusals
	r, now := refusals.Refusals{}, time.Unix(1000, 0)
	for i := range most + 10 {
		r.Record(event(fmt.Sprint(i)), &stream.Refusal{Kind: stream.RefusalInvalid}, now)
	}
	r.Record(event("0"), &stream.Refusal{Kind: stream.RefusalDenied}, now) // one that is known changes
	if refusal, _ := r.Of(entry("0")); len(r) != most || refusal.Kind != stream.RefusalDenied {
		t.Errorf("%d are remembered, the first as %s", len(r), refusal.Kind)
	}
}

// TestAwaiting follows which entries wait for which project.
func TestAwaiting(t *testing.T) {
	a := refusals.NewAwaiting()
	for _, name := range []string{"b", "a"} {
		if !a.Set(entry(name), "web") {
			t.Error("there is no room")
		}
	}
	if got := a.Of("web"); !slices.Equal(got, []stream.EntryKey{entry("a"), entry("b")}) {
		t.Errorf("for web wait %v", got)
	}
	a.Set(entry("a"), "shop")
	a.Set(entry("b"), "")
	if entries, projects := a.Size(); entries != 1 || projects != 1 || len(a.Of("web")) != 0 {
		t.Errorf("%d entries wait for %d projects, for web %v", entries, projects, a.Of("web"))
	}
}

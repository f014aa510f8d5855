package mirror_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/test/heap"
)

// applying is an event that carries data.
func applying(c stream.Collection, name string, data []byte) stream.Event {
	return stream.Event{
		ID: "e-" + name, Verb: stream.Apply, Revision: 1, Data: data,
		Key:     stream.EntryKey{Collection: c, Name: name},
		Version: stream.Version{SourceUID: "uid-" + name, Hash: stream.HashOf(data)},
	}
}

// Content of any collection that takes much more memory than it has bytes is refused by
// what it would take, and nothing of it is decoded.
func TestContentIsCountedBeforeItIsDecoded(t *testing.T) {
	agent, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	fill := func(element string) []byte {
		return []byte(`{"spec":{},"status":{},"x":[` + strings.Repeat(element+",", (stream.MaxDataBytes-64)/(len(element)+1)) + element + `]}`)
	}
	for shape, data := range map[string][]byte{
		"empty objects":         fill(`{}`),
		"objects of one member": fill(`{"a":1}`),
		"numbers":               fill(`1`),
		"a great depth":         []byte(strings.Repeat(`{"a":`, 1000) + `1` + strings.Repeat(`}`, 1000)),
	} {
		for c, tt := range map[stream.Collection]struct {
			side stream.Side
			mode stream.Mode
			kind stream.Kind
		}{
			stream.Applications: {stream.Spoke, stream.Managed, stream.Application}, stream.AppProjects: {stream.Spoke, stream.Managed, stream.AppProject},
			stream.Children:     {stream.Hub, stream.Managed, stream.Application},
			stream.Repositories: {stream.Spoke, stream.Managed, stream.Secret}, stream.Trust: {stream.Spoke, stream.Managed, stream.ConfigMap},
		} {
			name := "guestbook"
			if c == stream.Trust {
				name = "argocd-ssh-known-hosts-cm"
			}
			rules := ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: tt.side, Mode: tt.mode, Agent: agent, Namespace: "argocd"}, Children: true}}
			key := stream.ResourceKey{Kind: tt.kind, Namespace: "argocd", Name: name}
			e := applying(c, name, data)
			var refusal *stream.Refusal
			took := heap.Of(func() { _, refusal = rules.Plan(e, key, nil, operations.Requests{}) })
			if refusal == nil || refusal.Kind != stream.RefusalInvalid {
				t.Errorf("%s in %s: %+v", shape, c, refusal)
			}
			if took > 1<<20 {
				t.Errorf("%s in %s: %d bytes of heap for %d", shape, c, took, len(data))
			}
		}
	}
}

// Content that there is no room for is not kept: the answer says so at once, and neither
// what has room nor another agent waits for it. When it is sent again it is applied.
func TestContentWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := quota.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		r := newPair(t, options{mode: stream.Autonomous, configure: func(_ stream.Side, cfg *mirror.Config) { cfg.Quota = q }})
		agent, err := identity.ParseAgentName("edge-1")
		if err != nil {
			t.Fatal(err)
		}
		release, ok := q.TryAcquire(agent, quota.Open, quota.PeerOpen)
		if !ok {
			t.Fatal("there is no room at first")
		}
		a := r.attack(r.hub)
		data := []byte(`{"spec":{"project":"default"}}`)
		event := applying(stream.Applications, "guestbook", data)
		a.say(stream.Batch{Events: []stream.Event{event}})
		if got := a.results()[event.ID]; got.Refusal == nil || got.Refusal.Kind != stream.RefusalUnavailable {
			t.Errorf("without room: %+v", got)
		}
		if o := r.get(r.hub, "guestbook"); o != nil {
			t.Errorf("without room it is applied: %v", o)
		}
		release()
		event.ID = "again"
		a.say(stream.Batch{Events: []stream.Event{event}})
		if got := a.results()[event.ID]; got.Refusal != nil || got.Event != event.ID {
			t.Errorf("with room: %+v", got)
		}
		for i := range 100 { // all of it is given back
			event := applying(stream.Applications, fmt.Sprint("app-", i), data)
			a.say(stream.Batch{Events: []stream.Event{event}})
		}
		if release, ok = q.TryAcquire(agent, quota.Open, quota.PeerOpen); !ok {
			t.Error("room of what was answered is not given back")
		} else {
			release()
		}
	})
}

// A worker begins when there is room for its work, and not before.
func TestWorkWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := quota.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		r := newPair(t, options{mode: stream.Autonomous, configure: func(_ stream.Side, cfg *mirror.Config) { cfg.Quota = q }})
		agent, err := identity.ParseAgentName("edge-1")
		if err != nil {
			t.Fatal(err)
		}
		release, err := q.Acquire(t.Context(), agent, quota.Working, quota.PeerWorking)
		if err != nil {
			t.Fatal(err)
		}
		a := r.attack(r.hub)
		event := applying(stream.Applications, "guestbook", []byte(`{"spec":{"project":"default"}}`))
		a.say(stream.Batch{Events: []stream.Event{event}})
		pass(time.Second)
		if len(a.results()) > 0 || r.get(r.hub, "guestbook") != nil {
			t.Errorf("without room: %+v", a.results())
		}
		release()
		pass(time.Second)
		if got := a.results()[event.ID]; got.Refusal != nil || got.Event != event.ID {
			t.Errorf("with room: %+v", got)
		}
	})
}

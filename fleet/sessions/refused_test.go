package sessions

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/server"
)

// A refusal is kept from the first of its kind until the agent connects; the same one again
// changes nothing, and one beside a live connection neither.
func TestRefusalsAreKept(t *testing.T) {
	name, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	s := New("here")
	told := 0
	s.Subscribe(func(identity.AgentName) { told++ })
	peer := identity.Peer{ID: spiffeid.RequireFromString("spiffe://hub.test/edge-1")}
	mode := server.Refusal{Peer: peer, Agent: name, Reason: server.RefusedMode, Message: "set mode"}

	s.Refuse("u1", mode)
	first := s.Session(name).Refused
	if first == nil || first.UID != "u1" || first.ID != peer.ID || first.What != "mode" || first.Message != "set mode" || first.Since.IsZero() || told != 1 {
		t.Fatalf("refused for %+v, told %d times", first, told)
	}
	s.Refuse("u1", mode)
	if again := s.Session(name).Refused; *again != *first || told != 1 {
		t.Errorf("the second time it is %+v, told %d times", again, told)
	}
	s.Refuse("u2", mode)
	if other := s.Session(name).Refused; other.UID != "u2" || told != 2 {
		t.Errorf("of another Agent it is %+v, told %d times", other, told)
	}
	closed := s.Open(server.Session{Agent: stream.Agent{Name: name}, Peer: peer})
	if r := s.Session(name).Refused; r != nil {
		t.Errorf("a connected agent is refused for %+v", r)
	}
	s.Refuse("u2", mode)
	if r := s.Session(name).Refused; r != nil {
		t.Errorf("beside a connection it is refused for %+v", r)
	}
	closed()
	s.Refuse("u2", mode)
	if r := s.Session(name).Refused; r == nil {
		t.Error("a refusal after the connection is not kept")
	}
	if id := s.Session(name).SPIFFEID; id != peer.ID {
		t.Errorf("it connected by %s", id)
	}
	s.Forget(name)
	if r := s.Session(name).Refused; r != nil {
		t.Errorf("an agent that is no longer registered is refused for %+v", r)
	}
}

// Who comes with SPIFFE IDs that no Agent has may have many: one of them stands for a minute.
func TestStrangersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name, err := identity.ParseAgentName("edge-1")
		if err != nil {
			t.Fatal(err)
		}
		s := New("here")
		told := 0
		s.Subscribe(func(identity.AgentName) { told++ })
		comes := func(id string) {
			s.Refuse("u1", server.Refusal{Peer: identity.Peer{ID: spiffeid.RequireFromString(id)}, Agent: name, Reason: server.RefusedID})
		}
		const one, another = "spiffe://hub.test/one", "spiffe://hub.test/another"
		for range 10 {
			comes(one)
			comes(another)
		}
		if r := s.Session(name).Refused; r == nil || r.ID.String() != one || told != 1 {
			t.Errorf("refused is %+v, told %d times", r, told)
		}
		<-time.After(strangerPause)
		comes(another)
		comes(one)
		if r := s.Session(name).Refused; r.ID.String() != another || told != 2 {
			t.Errorf("after a minute refused is %+v, told %d times", r, told)
		}
	})
}

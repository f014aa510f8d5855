package live

import (
	"testing"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/fleet/sessions"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/proxies/redis/warmplan"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/server"
)

// An agent has reconnected after it was away, or as another process; a proof that is
// renewed on another connection is nothing new.
func TestConnections(t *testing.T) {
	name, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	s := sessions.New("here")
	open := func(process string) func() {
		return s.Open(server.Session{Agent: stream.Agent{Name: name}, Hello: stream.Hello{Process: process}})
	}
	if got := s.Connections(); len(got) != 0 {
		t.Errorf("at first %v are connected", got)
	}
	first := open("a")
	is := s.Connections()[name]
	renewed := open("a")
	if first(); is == "" || s.Connections()[name] != is {
		t.Errorf("after a renewal it is %q, and was %q", s.Connections()[name], is)
	}
	restarted := open("b")
	renewed()
	other := s.Connections()[name]
	if other == is {
		t.Error("another process is none")
	}
	restarted()
	if got := s.Connections(); len(got) != 0 {
		t.Errorf("after the last connection %v are", got)
	}
	last := open("b")
	defer last()
	if got := s.Connections()[name]; got == other || got == is {
		t.Errorf("after it was away it is %q, as before", got)
	}
}

// Applications are told by the names that the hub's Argo CD has for them, and back.
func TestContentsOf(t *testing.T) {
	o := &Resolver{Namespace: "argocd"}
	object := func(namespace, resources string) backends.Object {
		return backends.Object{Key: stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: "shop"}, Raw: []byte(`{"status":{"resources":[` + resources + `]}}`)}
	}
	got := contentsOf([]backends.Object{object("argocd", `{"kind":"Pod"}`), object("edge-1", `{"kind":"Job"}`)}, o.instance)
	own, other := appkey.Instance{Name: "shop"}, appkey.Instance{Namespace: "edge-1", Name: "shop"}
	if len(got) != 2 || got[own] == got[other] || got[own] != warmplan.ContentOf(object("x", `{"kind":"Pod"}`).Raw) {
		t.Errorf("they are %v", got)
	}
	for instance, namespace := range map[appkey.Instance]string{own: "argocd", other: "edge-1"} {
		if key := o.keyOf(instance); key != object(namespace, "").Key || o.instance(key) != instance {
			t.Errorf("%v is %v", instance, key)
		}
	}
}

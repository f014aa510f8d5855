package main

import (
	"slices"
	"testing"

	"github.com/argomesh/argomesh/stream"
)

// TestFormerHubs: a hub inherits from the ones before it once its history is kept, and
// from those only that were this agent's.
func TestFormerHubs(t *testing.T) {
	m := &historyStore{}
	check := func(hub string, want []string, inherits bool) {
		t.Helper()
		former, got := m.formerHubs(hub)
		if !slices.Equal(former, want) || got != inherits {
			t.Errorf("formerHubs(%s) = %q, %t, want %q, %t", hub, former, got, want, inherits)
		}
	}
	keep := func(hub string) {
		former, _ := m.formerHubs(hub)
		m.set(historyRecord{hub: hub, history: stream.History{Token: "t"}, former: former})
	}
	check("a", nil, false) // its first
	keep("a")
	check("a", nil, true)
	check("b", []string{"a"}, false)
	keep("b")
	check("b", []string{"a"}, true)
	keep("c")
	check("c", []string{"b", "a"}, true)
	check("a", []string{"c", "b"}, false) // back again
	for _, hub := range []string{"d", "e", "f", "g", "h", "i", "j"} {
		keep(hub)
	}
	check("j", []string{"i", "h", "g", "f", "e", "d", "c", "b"}, true)
}

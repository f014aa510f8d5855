package server

import (
	"testing"
	"time"

	"github.com/argomesh/argomesh/identity"
)

// An agent may begin a hundred times at once, then once a second, whatever others do; who has
// not begun for long is forgotten.
func TestArrivals(t *testing.T) {
	name := func(s string) identity.AgentName {
		n, err := identity.ParseAgentName(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	bad, good := name("bad"), name("good")
	a, begin := newArrivals(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	let := 0
	for at := time.Duration(0); at <= time.Minute; at += 10 * time.Millisecond {
		if a.enter(bad, begin.Add(at)) {
			let++
		}
		if at%(10*time.Second) == 0 && !a.enter(good, begin.Add(at)) {
			t.Errorf("another agent waits after %s", at)
		}
	}
	if want := arrivalsAtOnce + 60*arrivalsPerSecond; let != want {
		t.Errorf("it began %d times in a minute, want %d", let, want)
	}
	if a.enter(bad, begin.Add(time.Hour)); len(a.of) != 1 {
		t.Errorf("%d agents are remembered after an hour, want 1", len(a.of))
	}
}

package call

import (
	"testing"
	"time"

	"github.com/argomesh/argomesh/identity"
)

// Each agent has so many at once, then so many a second, whatever others do; who had none for
// long is forgotten.
func TestAgentLimiter(t *testing.T) {
	name := func(s string) identity.AgentName {
		n, err := identity.ParseAgentName(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	bad, good := name("bad"), name("good")
	l, begin := NewAgentLimiter(2, 30), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	let := 0
	for at := time.Duration(0); at <= time.Minute; at += 10 * time.Millisecond {
		if l.Allow(bad, begin.Add(at)) {
			let++
		}
		if at%(10*time.Second) == 0 && !l.Allow(good, begin.Add(at)) {
			t.Errorf("another agent waits after %s", at)
		}
	}
	if want := 30 + 60*2; let != want {
		t.Errorf("it had %d in a minute, want %d", let, want)
	}
	if l.Allow(bad, begin.Add(time.Hour)); len(l.byAgent) != 1 {
		t.Errorf("%d agents are remembered after an hour, want 1", len(l.byAgent))
	}
}

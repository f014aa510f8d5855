package concurrency

import (
	"fmt"
	"testing"

	"github.com/argomesh/argomesh/test/kit"
)

// Agents whose calls hang take all there is, but for a few of each other agent.
func TestLimiterReserves(t *testing.T) {
	const all, each = 20, 10
	g := New(all, each)
	enter := func(agent string, n int) (entered int) {
		t.Helper()
		for range n {
			if g.Acquire(kit.Agent(t, agent)) == "" {
				entered++
			}
		}
		return entered
	}
	leave := func(agent string, n int) {
		for range n {
			g.Release(kit.Agent(t, agent))
		}
	}
	stuck := 0
	for n := range 4 {
		stuck += enter(fmt.Sprintf("stuck-%d", n), each+1)
	}
	if stuck != all+4*reserved {
		t.Errorf("%d calls to four agents, want %d", stuck, all+4*reserved)
	}
	for _, agent := range []string{"edge-1", "edge-2"} {
		if n := enter(agent, 2*reserved); n != reserved {
			t.Errorf("%d calls to %s beside them, want %d", n, agent, reserved)
		}
	}
	leave("edge-1", 1)
	if n := enter("edge-1", 2); n != 1 {
		t.Errorf("%d calls where one has ended, want 1", n)
	}
	leave("stuck-0", 2)
	if n := enter("edge-2", 3); n != 2 {
		t.Errorf("%d calls where two beyond the reserve have ended, want 2", n)
	}
	for _, agent := range []string{"stuck-0", "stuck-1", "stuck-2", "stuck-3", "edge-1", "edge-2"} {
		leave(agent, g.byAgent[kit.Agent(t, agent)])
	}
	if g.Count() != 0 || g.beyond != 0 || len(g.byAgent) != 0 {
		t.Errorf("%d calls, %d of them beyond, of %d agents after all have ended", g.Count(), g.beyond, len(g.byAgent))
	}
}

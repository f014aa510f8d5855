package quota_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/test/kit"
)

// pass lets time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// A peer that has computed more than its allowance takes turns at half of the processors;
// one that computes little waits for no one.
func TestTurnsAtTheProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		q, err := quota.New(r)
		if err != nil {
			t.Fatal(err)
		}
		begun := make(chan string, 10)
		end := map[string]chan struct{}{"bad": make(chan struct{}), "other": make(chan struct{}), "busy": make(chan struct{})}
		for of := range end {
			q.Spend(kit.Agent(t, of), time.Second)
		}
		for _, of := range []string{"bad", "bad", "bad", "other", "busy"} {
			go func() {
				turn := q.Compute(kit.Agent(t, of))
				begun <- of
				<-end[of]
				turn.End()
			}()
			synctest.Wait()
		}
		if first, second := <-begun, <-begun; first != "bad" || second != "bad" || len(begun) > 0 {
			t.Fatalf("%s and %s have turns, and %d more, want two of the first", first, second, len(begun))
		}
		q.Compute(kit.Agent(t, "good")).End()
		q.Compute(identity.AgentName{}).End() // before a call says whose it is
		q.Spend(kit.Agent(t, "good"), time.Millisecond)
		metrics := `
# HELP argomesh_computing Turns of peers at the processors that are under way: unpacking, decoding and comparing for those that have used more than their allowance.
# TYPE argomesh_computing gauge
argomesh_computing 2
# HELP argomesh_computing_waiting Goroutines that wait for the turn of their peer at the processors.
# TYPE argomesh_computing_waiting gauge
argomesh_computing_waiting 3
`
		if err := testutil.GatherAndCompare(r, strings.NewReader(metrics), "argomesh_computing", "argomesh_computing_waiting"); err != nil {
			t.Error(err)
		}
		for _, tc := range []struct{ ends, next string }{{"bad", "other"}, {"other", "busy"}, {"busy", "bad"}, {"bad", ""}, {"bad", ""}} {
			end[tc.ends] <- struct{}{}
			synctest.Wait()
			next := ""
			if len(begun) > 0 {
				next = <-begun
			}
			if next != tc.next || len(begun) > 0 {
				t.Errorf("after %s it is the turn of %q, want %q", tc.ends, next, tc.next)
			}
		}
	})
}

// What a peer may compute at once is 100 ms, and a tenth of a processor in the long run;
// what it had more is forgotten after nine seconds, however much that was.
func TestAllowanceAtTheProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // of which half is one
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(t)
		q.Spend(kit.Agent(t, "other"), time.Second)
		held := q.Compute(kit.Agent(t, "other")) // the only slot
		waits := func(of string) bool {
			done := make(chan struct{})
			go func() {
				q.Compute(kit.Agent(t, of)).End()
				close(done)
			}()
			synctest.Wait()
			select {
			case <-done:
				return false
			default:
			}
			held.End()
			synctest.Wait()
			<-done
			q.Spend(kit.Agent(t, "other"), time.Second)
			held = q.Compute(kit.Agent(t, "other"))
			return true
		}
		q.Spend(kit.Agent(t, "edge-1"), 99*time.Millisecond)
		if waits("edge-1") {
			t.Error("within its allowance it waits")
		}
		q.Spend(kit.Agent(t, "edge-1"), time.Millisecond)
		if !waits("edge-1") {
			t.Error("with its allowance used up it does not wait")
		}
		pass(10 * time.Millisecond)
		if waits("edge-1") {
			t.Error("with a tenth of the time after that it waits")
		}
		q.Spend(kit.Agent(t, "edge-2"), time.Hour)
		pass(8900 * time.Millisecond)
		if !waits("edge-2") {
			t.Error("after nearly nine seconds it is forgotten")
		}
		pass(200 * time.Millisecond)
		if waits("edge-2") {
			t.Error("after nine seconds it is not forgotten")
		}
		held.End()
	})
}

// A long turn is followed by as much time in which no one has it, 100 ms at most; a short
// one is not.
func TestRestAfterALongTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(t)
		q.Spend(kit.Agent(t, "bad"), time.Second)
		q.Spend(kit.Agent(t, "other"), time.Second)
		for _, tc := range []struct{ takes, rest time.Duration }{
			{time.Millisecond, 0}, {20 * time.Millisecond, 20 * time.Millisecond}, {time.Second, 100 * time.Millisecond},
		} {
			turn := q.Compute(kit.Agent(t, "bad"))
			pass(tc.takes)
			turn.End()
			ended := time.Now()
			q.Compute(kit.Agent(t, "other")).End()
			if rest := time.Since(ended); rest != tc.rest {
				t.Errorf("after a turn of %s the next begins after %s, want %s", tc.takes, rest, tc.rest)
			}
			q.Spend(kit.Agent(t, "bad"), time.Second)
			q.Spend(kit.Agent(t, "other"), time.Second)
		}
	})
}

// What is spent outside of turns waits for the peer's turn, and takes none of it.
func TestSpendWaitsForItsTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(t)
		q.Spend(kit.Agent(t, "bad"), time.Second)
		q.Spend(kit.Agent(t, "other"), time.Second)
		turn := q.Compute(kit.Agent(t, "bad"))
		done := make(chan string, 3)
		for _, of := range []string{"bad", "bad", "other"} {
			go func() {
				q.Spend(kit.Agent(t, of), time.Microsecond)
				done <- of
			}()
			synctest.Wait()
		}
		if len(done) > 0 {
			t.Errorf("%d do not wait", len(done))
		}
		turn.End()
		synctest.Wait()
		if len(done) != 3 {
			t.Errorf("%d have gone on, want all", len(done))
		}
	})
}

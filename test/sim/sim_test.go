package sim

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/argomesh/argomesh/stream"
)

// shrinkTime is how long a failing history may be made smaller, in real time.
const shrinkTime = 2 * time.Minute

// How many histories of a kind a test runs unless SIM_DURATION is set: fewer where one
// takes longer.
const (
	seeds     = 40
	seamSeeds = 8
)

// generators are the kinds of random histories. Each has a test. Without SIM_DURATION it
// runs the seeds from 1 on, so that two runs of one commit judge the same histories.
// SIM_DURATION draws seeds until that time is over; all tests together take it.
var generators = []func(seed uint64) Trace{
	Generate, GenerateBreaks, GenerateRestoredSpokes, GenerateTwins, GenerateFrozen, GenerateClocks,
	GenerateSeam, GenerateClusters, GenerateSettings, GenerateOlderRestores, GenerateDepartures,
}

// TestHistories runs histories, one on each processor; or one alone when SIM_SEED names it.
func TestHistories(t *testing.T) { histories(t, Generate, seeds) }

// TestBrokenHistories does so with restores of the hub and rebuilt spokes.
func TestBrokenHistories(t *testing.T) { histories(t, GenerateBreaks, seeds) }

// TestRestoredSpokes does so with restores of spokes whose agents live on.
func TestRestoredSpokes(t *testing.T) { histories(t, GenerateRestoredSpokes, seeds) }

// TestTwins does so with processes that live on beside their successors.
func TestTwins(t *testing.T) { histories(t, GenerateTwins, seeds) }

// TestFrozen does so with processes that are frozen.
func TestFrozen(t *testing.T) { histories(t, GenerateFrozen, seeds) }

// TestClocks does so with clocks that jump.
func TestClocks(t *testing.T) { histories(t, GenerateClocks, seeds) }

// TestSeam does so with what API servers and others do at the seam to Argo CD.
func TestSeam(t *testing.T) { histories(t, GenerateSeam, seamSeeds) }

// TestClusters does so with several agents on one cluster.
func TestClusters(t *testing.T) { histories(t, GenerateClusters, seeds/2) }

// TestSettings does so with settings that change.
func TestSettings(t *testing.T) { histories(t, GenerateSettings, seamSeeds) }

// TestOlderRestores does so with backups that are restored to an older Argo CD.
func TestOlderRestores(t *testing.T) { histories(t, GenerateOlderRestores, seamSeeds) }

// TestDepartures does so with Agents that are deleted.
func TestDepartures(t *testing.T) { histories(t, GenerateDepartures, seeds/2) }

func histories(t *testing.T, generate func(seed uint64) Trace, seeds uint64) {
	if text := os.Getenv("SIM_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SIM_SEED: %v", err)
		}
		history(t, generate(seed))
		return
	}
	more := func(seed uint64) bool { return seed <= seeds }
	var last, done atomic.Uint64
	if text := os.Getenv("SIM_DURATION"); text != "" {
		duration, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("SIM_DURATION: %v", err)
		}
		deadline := time.Now().Add(duration / time.Duration(len(generators)))
		more = func(uint64) bool { return time.Now().Before(deadline) }
		last.Store(uint64(time.Now().UnixNano()))
	}
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for !t.Failed() {
				seed := last.Add(1)
				if !more(seed) {
					return
				}
				history(t, generate(seed))
				done.Add(1)
			}
		})
	}
	workers.Wait()
	t.Logf("%d histories of %d commands", done.Load(), steps)
}

// history runs the history of one seed. A failing one is printed as the shortest
// trace that was found to break the same invariant.
func history(t *testing.T, trace Trace) {
	t.Run(fmt.Sprint("seed=", trace.Seed), func(t *testing.T) {
		broken := violations(t, trace)
		if len(broken) == 0 {
			return
		}
		t.Errorf("%s\nrepeat it with SIM_SEED=%d", describe(broken), trace.Seed)
		smallest := Shrink(trace, time.Now().Add(shrinkTime), func(smaller Trace) bool {
			return slices.ContainsFunc(violations(t, smaller), func(v Violation) bool { return v.Invariant == broken[0].Invariant })
		})
		t.Errorf("the smallest trace found that breaks %s, for a file in testdata:\n\n%s----\nall invariants hold\n",
			broken[0].Invariant, smallest)
	})
}

// violations runs a trace in a bubble of its own.
func violations(t *testing.T, trace Trace) []Violation {
	return Check(logOf(t, trace))
}

func logOf(t *testing.T, trace Trace) Log {
	var log Log
	synctest.Test(t, func(t *testing.T) { log = Run(t.Context(), trace) })
	return log
}

func describe(broken []Violation) string {
	var lines []string
	for _, v := range broken {
		lines = append(lines, v.String())
	}
	return strings.Join(lines, "\n")
}

// telling is what both ends name at the end of a history.
func telling(log Log) string {
	var lines []string
	for _, e := range log.Entries {
		for key, refusal := range e.Refused {
			if refusal.Kind.Passing() || key.Collection == stream.Commands {
				continue
			}
			lines = append(lines, fmt.Sprintf("%s on the %s: %s: %s\n", e.Place, e.Side, key, refusal.Kind))
		}
		for key, paths := range e.Dropped {
			lines = append(lines, fmt.Sprintf("%s on the %s: %s without %s\n", e.Place, e.Side, key, strings.Join(paths, ", ")))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// TestTraces replays the histories in testdata. The only command is run, with the
// trace as its input; the result is what is broken, and what the ends name at the end. SIM_LOG=1 shows with -v what happened.
func TestTraces(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "run" {
				d.Fatalf(t, "no such command: %s", d.Cmd)
			}
			trace, err := ParseTrace(d.CmdArgs, d.Input)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			log := logOf(t, trace)
			if os.Getenv("SIM_LOG") != "" {
				for _, e := range log.Entries {
					t.Log(e)
				}
			}
			if broken := Check(log); len(broken) > 0 {
				return describe(broken) + "\n"
			}
			return "all invariants hold\n" + telling(log)
		})
	})
}

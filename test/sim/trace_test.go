package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/stream"
)

func TestTraceReadsWhatItWrites(t *testing.T) {
	for seed := range uint64(50) {
		kinds := []func(uint64) Trace{Generate, GenerateBreaks, GenerateSeam, GenerateClusters, GenerateSettings, GenerateOlderRestores, GenerateDepartures}
		want := kinds[seed%uint64(len(kinds))](seed)
		first, rest, _ := strings.Cut(want.String(), "\n")
		_, args, err := datadriven.ParseLine(first)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseTrace(args, rest)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortStableFunc(want.Agents, func(a, b Agent) int { return int(a.Mode) - int(b.Mode) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}

func TestTraceRefuses(t *testing.T) {
	for name, c := range map[string]struct{ run, line string }{
		"an unknown verb":          {"run managed=(far)", "explode far"},
		"a place it does not know": {"run managed=(far)", "cut near"},
		"a third name":             {"run managed=(far)", "edit far app more"},
		"a number that is none":    {"run managed=(far)", "edit far app n=x"},
		"a side that is none":      {"run managed=(far)", "edit far app on=moon"},
		"an unknown setting":       {"run managed=(far) sky=blue", "cut far"},
		"an agent that is no name": {"run managed=(Far_)", "cut hub"},
	} {
		t.Run(name, func(t *testing.T) {
			_, args, err := datadriven.ParseLine(c.run)
			if err != nil {
				t.Fatal(err)
			}
			if trace, err := ParseTrace(args, c.line); err == nil {
				t.Errorf("ParseTrace() = %v", trace)
			}
		})
	}
}

func TestShrink(t *testing.T) {
	trace := Trace{Agents: []Agent{{Name: "a", Mode: stream.Managed}, {Name: "b", Mode: stream.Managed}}}
	for n := range 100 {
		trace.Commands = append(trace.Commands, Command{Verb: Cut, Place: []string{"a", "b"}[n%2], N: n})
	}
	runs := 0
	// It takes two commands of one agent to fail.
	fails := func(t Trace) bool {
		runs++
		has := func(n int) bool { return slices.ContainsFunc(t.Commands, func(c Command) bool { return c.N == n }) }
		return has(14) && has(76)
	}
	got := Shrink(trace, time.Now().Add(time.Minute), fails)
	want := Trace{Agents: []Agent{{Name: "a", Mode: stream.Managed}}, Commands: []Command{trace.Commands[14], trace.Commands[76]}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Shrink() (-want +got):\n%s", diff)
	}
	if runs > 60 {
		t.Errorf("Shrink() ran %d traces for a list of 100", runs)
	}
	if late := Shrink(trace, time.Now().Add(-time.Second), fails); len(late.Commands) != 100 {
		t.Errorf("Shrink() after its deadline left %d commands", len(late.Commands))
	}
}

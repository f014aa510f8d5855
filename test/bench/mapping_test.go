//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/test/bench/report"
)

// twice is a scenario that measures two numbers and a process, and fails by one of the
// mappings if that is not empty.
func twice(fails mappedBy) func(context.Context, *bench, *report.Scenario) error {
	return func(_ context.Context, b *bench, s *report.Scenario) error {
		s.Target("late", 1, "ms", report.AtMost(2), "by "+string(b.mapping))
		if b.mapping == fails {
			return errors.New("lost")
		}
		s.Note("CPU", 5, "s")
		s.Processes = append(s.Processes, report.Usage{Process: "principal", Phase: "idle"})
		return nil
	}
}

func TestInBoth(t *testing.T) {
	s := &report.Scenario{ID: "T9", Title: "A scenario", Setup: "On nothing."}
	if err := inBoth(twice(""))(t.Context(), &bench{progress: io.Discard}, s); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range s.Results {
		got = append(got, r.Name+" "+r.Mapping)
	}
	for _, u := range s.Processes {
		got = append(got, u.Process+" "+u.Mapping)
	}
	want := []string{"late namespace", "late destination", "CPU namespace", "CPU destination", "principal namespace", "principal destination"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was measured (-want +got):\n%s", diff)
	}
}

// What was measured before a failure is told with its mapping, as is the failure.
func TestInBothFails(t *testing.T) {
	s := &report.Scenario{}
	err := inBoth(twice(byDestination))(t.Context(), &bench{progress: io.Discard}, s)
	if err == nil || err.Error() != "by destination: lost" {
		t.Errorf("a failure is told as %v", err)
	}
	var got []string
	for _, r := range s.Results {
		got = append(got, r.Name+" "+r.Mapping)
	}
	if diff := cmp.Diff([]string{"late namespace", "late destination", "CPU namespace"}, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

func TestMappingNamespace(t *testing.T) {
	for by, want := range map[mappedBy]string{byNamespace: edge, "": edge, byDestination: "argocd"} {
		if got := by.namespace(edge); got != want {
			t.Errorf("mapping(%q).namespace() = %s, want %s", by, got, want)
		}
	}
}

//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// twice is a scenario that measures two numbers and a process, and fails by one of the
// mappings if that is not empty.
func twice(fails mappedBy) func(context.Context, *bench, *Scenario) error {
	return func(_ context.Context, b *bench, s *Scenario) error {
		s.target("late", 1, "ms", atMost(2), "by "+string(b.mapping))
		if b.mapping == fails {
			return errors.New("lost")
		}
		s.note("CPU", 5, "s")
		s.Processes = append(s.Processes, Usage{Process: "principal", Phase: "idle"})
		return nil
	}
}

func TestInBoth(t *testing.T) {
	s := &Scenario{ID: "T9", Title: "A scenario", Setup: "On nothing."}
	if err := inBoth(twice(""))(t.Context(), &bench{progress: io.Discard}, s); err != nil {
		t.Fatal(err)
	}
	want := `### T9: A scenario

On nothing. Load average at its start: 0.0.

| Measured | Mapping | Result | Target | | Remark |
|---|---|---:|---:|---|---|
| late | namespace | 1.00 ms | ≤ 2 ms | met | by namespace |
| late | destination | 1.00 ms | ≤ 2 ms | met | by destination |
| CPU | namespace | 5.00 s |  |  |  |
| CPU | destination | 5.00 s |  |  |  |

| Process | Phase | Mapping | CPU | Of a core | Resident | Peak |
|---|---|---|---:|---:|---:|---:|
| principal | idle | namespace | 0 s | 0% | 0 MiB | 0 MiB |
| principal | idle | destination | 0 s | 0% | 0 MiB | 0 MiB |
`
	if diff := cmp.Diff(want, s.markdown("")); diff != "" {
		t.Errorf("markdown() (-want +got):\n%s", diff)
	}
	var table strings.Builder
	if err := s.Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, row := range [][]string{{"late", "destination", "1.00 ms"}, {"process", "phase", "mapping", "cpu"}, {"principal", "idle", "namespace", "0 s"}} {
		if !strings.Contains(strings.Join(strings.Fields(table.String()), " "), strings.Join(row, " ")) {
			t.Errorf("Table() lacks %q:\n%s", row, table.String())
		}
	}
}

// What was measured before a failure is told with its mapping, as is the failure.
func TestInBothFails(t *testing.T) {
	s := &Scenario{}
	err := inBoth(twice(byDestination))(t.Context(), &bench{progress: io.Discard}, s)
	if err == nil || err.Error() != "by destination: lost" {
		t.Errorf("a failure is told as %v", err)
	}
	var got []string
	for _, r := range s.Results {
		got = append(got, r.Name+" "+string(r.Mapping))
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

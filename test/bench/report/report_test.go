package report

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuantity(t *testing.T) {
	for _, test := range []struct {
		value float64
		unit  string
		want  string
	}{
		{0, "s", "0 s"},
		{647, "B", "647 B"},
		{1234, "", "1234"},
		{0.0214, "s", "0.02 s"},
		{9.578, "ms", "9.58 ms"},
		{45.63, "MiB", "45.6 MiB"},
		{109.4, "ms", "109 ms"},
		{785.2, "/s", "785/s"},
		{48.07, "%", "48.1%"},
	} {
		if got := Quantity(test.value, test.unit); got != test.want {
			t.Errorf("Quantity(%v, %q) = %q, want %q", test.value, test.unit, got, test.want)
		}
	}
}

func TestTarget(t *testing.T) {
	var s Scenario
	s.Target("few enough", 5, "s", AtMost(5))
	s.Target("too many", 5.01, "s", AtMost(5))
	s.Target("fast enough", 10000, "/s", AtLeast(10000))
	s.Target("too slow", 9999, "/s", AtLeast(10000))
	s.Note("no target", 1, "ms")
	var got [][]string
	for _, r := range s.Results {
		got = append(got, []string{r.Name, r.goal(), r.verdict()})
	}
	want := [][]string{
		{"few enough", "≤ 5 s", "met"},
		{"too many", "≤ 5 s", "missed"},
		{"fast enough", "≥ 10000/s", "met"},
		{"too slow", "≥ 10000/s", "missed"},
		{"no target", "", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

// testReport is a report with every kind of row.
func testReport() *Report {
	s := &Scenario{
		ID: "T9", Title: "A scenario", Setup: "On nothing.", Load: 0.5, Failure: "two | were lost",
		Processes: []Usage{{Process: "agent", Phase: "idle", CPUSeconds: 1.5, CPUPercent: 2.5, ResidentMiB: 60, PeakMiB: 61}},
	}
	s.Target("a time", 0.25, "s", AtMost(1), "of 3")
	return &Report{
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Seconds: 61, Command: "make bench", Commit: "abc",
		Machine: Machine{Processor: "Some CPU", Cores: 2, MemoryGiB: 24, Kernel: "6.1", Go: "go1"}, Scenarios: []*Scenario{s},
	}
}

func TestMarkdown(t *testing.T) {
	want := "Measured on 2026-01-02 03:04 UTC with `make bench` at commit `abc`, in 1m1s, on 2 cores of Some CPU with 24.0 GiB of memory, Linux 6.1, go1.\n" + `
### T9: A scenario

On nothing. Load average at its start: 0.5.

**Failed: two \| were lost**

| Measured | Result | Target | | Remark |
|---|---:|---:|---|---|
| a time | 0.25 s | ≤ 1 s | met | of 3 |

| Process | Phase | CPU | Of a core | Resident | Peak |
|---|---|---:|---:|---:|---:|
| agent | idle | 1.50 s | 2.50% | 60.0 MiB | 61.0 MiB |
`
	if diff := cmp.Diff(want, testReport().firstSyncs()); diff != "" {
		t.Errorf("firstSyncs() (-want +got):\n%s", diff)
	}
}

// Of a scenario that was measured in both mappings the numbers of one name stand together.
func TestMappings(t *testing.T) {
	s := &Scenario{ID: "T9", Title: "A scenario", Setup: "On nothing."}
	for _, by := range []string{"namespace", "destination"} {
		s.Target("late", 1, "ms", AtMost(2), "by "+by)
		s.Note("CPU", 5, "s")
		s.Processes = append(s.Processes, Usage{Process: "principal", Phase: "idle"})
		s.MeasuredBy(by)
	}
	s.Pair()
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

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{7: "7", 999: "999", 1000: "1,000", 50_000: "50,000"} {
		if got := Thousands(n); got != want {
			t.Errorf("Thousands(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := testReport().Scenarios[0].Table(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"T9  A scenario", "a time", "0.25 s", "≤ 1 s", "met", "agent", "60.0 MiB", "FAILED: two | were lost"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("Table() lacks %q:\n%s", want, b.String())
		}
	}
}

// Anyone who reads the JSON later reads what was written.
func TestJSON(t *testing.T) {
	want := testReport()
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got *Report
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report from its JSON (-want +got):\n%s", diff)
	}
}

func TestSectionChange(t *testing.T) {
	part := section{"<!-- begin -->\n", "<!-- end -->\n"}
	document := "# Title\n" + part.begin + "old\n" + part.end + "after\n"
	renew := func(string) string { return "new\n" }
	got, err := part.change(document, renew)
	if err != nil {
		t.Fatal(err)
	}
	if want := "# Title\n" + part.begin + "\nnew\n\n" + part.end + "after\n"; got != want {
		t.Errorf("change() = %q, want %q", got, want)
	}
	again, err := part.change(got, func(old string) string { return old })
	if err != nil || again != got {
		t.Errorf("change() into the same = %q, %v", again, err)
	}
	for _, broken := range []string{"", part.begin, part.end, part.end + part.begin} {
		if _, err := part.change(broken, renew); err == nil {
			t.Errorf("change(%q) finds its markers", broken)
		}
	}
}

// Each section is written by runs that have something for it, and left alone by others.
func TestDocument(t *testing.T) {
	empty := firstSyncSection.begin + "old syncs\n" + firstSyncSection.end + resultSection.begin + "old results\n\n### T2: Kept\n\nrow\n\n### growth: Kept\n\n### T3: Replaced\n\nold row\n" + resultSection.end
	fleet := &Scenario{ID: "fleet", Title: "First sync of a growing fleet, by namespace", FirstSyncs: []FirstSync{
		{Agents: 20, Applications: 2000, Load: 0.5, ReadySeconds: 1, Seconds: 4, CPU: 0.0005, MemoryMiB: 100, IdlePercent: 2, Compared: 2000},
	}}
	const row = "| by namespace | 20 | 2,000 | 1.00 s | 4.00 s | 500/s | 500 µs | 100 MiB | 51.2 KiB | 2.00% | 2,000 | 0.5 |\n"
	other := testReport().Scenarios[0]
	for name, test := range map[string]struct {
		scenarios []*Scenario
		has, not  []string
	}{
		"first syncs": {[]*Scenario{fleet}, []string{row, "old results"}, []string{"old syncs"}},
		"others":      {[]*Scenario{other}, []string{"old syncs", "### T9"}, []string{"old results", "by namespace"}},
		"a part":      {[]*Scenario{{ID: "T3", Title: "Memory"}}, []string{"### T2: Kept\n\nrow\n\n### T3: Memory\n\nMeasured on 2026", "\n### growth: Kept\n"}, []string{"old results", "Replaced", "### T9"}},
		"both":        {[]*Scenario{other, fleet}, []string{row, "### T9"}, []string{"old syncs", "old results"}},
	} {
		r := testReport()
		r.Scenarios = test.scenarios
		got, err := r.Into(empty)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range test.has {
			if !strings.Contains(got, want) {
				t.Errorf("%s: lacks %q:\n%s", name, want, got)
			}
		}
		for _, not := range test.not {
			if strings.Contains(got, not) {
				t.Errorf("%s: has %q:\n%s", name, not, got)
			}
		}
	}
	r := testReport()
	r.Scenarios = []*Scenario{fleet}
	if _, err := r.Into("nothing"); err == nil {
		t.Error("a document without markers is written")
	}
}

//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is everything one run measured. It is written as JSON.
type Report struct {
	Started time.Time `json:"started"`
	// Seconds is how long the whole run took.
	Seconds float64 `json:"seconds"`
	Command string  `json:"command"`
	// Commit is that of the checkout; "+changes" says that files differ from it.
	Commit    string      `json:"commit"`
	Machine   Machine     `json:"machine"`
	Scenarios []*Scenario `json:"scenarios"`
}

// Scenario is one row of the targets, measured.
type Scenario struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	// Setup says on what it was measured.
	Setup string `json:"setup"`
	// Load is the machine's load average of one minute when it began: what else ran.
	Load      float64  `json:"load"`
	Seconds   float64  `json:"seconds"`
	Results   []Result `json:"results"`
	Processes []Usage  `json:"processes,omitempty"`
	// FirstSyncs are those of a growing fleet, the smallest first.
	FirstSyncs []FirstSync `json:"first_syncs,omitempty"`
	// Failure says what was lost or did not work. Times that miss a target are none.
	Failure string `json:"failure,omitempty"`
}

// FirstSync is one of a fleet whose agents had nothing.
type FirstSync struct {
	Agents       int `json:"agents"`
	Applications int `json:"applications"`
	// Load is the machine's load average of one minute when it began.
	Load float64 `json:"load"`
	// ReadySeconds is from the start of the principal until it was ready.
	ReadySeconds float64 `json:"ready_seconds"`
	// Seconds is from the first dial to the last Application on its spoke.
	Seconds float64 `json:"seconds"`
	// CPU is what the principal took in that time for one Application, in seconds.
	CPU float64 `json:"cpu_seconds"`
	// MemoryMiB is the most that was resident of the principal until then.
	MemoryMiB float64 `json:"memory_mib"`
	// IdlePercent is the share of a core that the principal took thereafter, when
	// nothing happened.
	IdlePercent float64 `json:"idle_percent"`
	// Compared is how many Applications were the same on both sides at the end.
	Compared int `json:"compared"`
}

// Result is one measured number.
type Result struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Unit is µs, ms, s, /s, B, KiB, MiB, % or empty for a count.
	Unit   string  `json:"unit,omitempty"`
	Target *Target `json:"target,omitempty"`
	// Met is null where there is no target.
	Met *bool `json:"met,omitempty"`
	// Note says how the number came about where the name does not.
	Note string `json:"note,omitempty"`
	// Mapping is that of the hub, in scenarios that are measured in both.
	Mapping mappedBy `json:"mapping,omitempty"`
}

// Target is a bound.
type Target struct {
	// Compare is "<=" or ">=".
	Compare string  `json:"compare"`
	Value   float64 `json:"value"`
}

func atMost(v float64) Target  { return Target{Compare: "<=", Value: v} }
func atLeast(v float64) Target { return Target{Compare: ">=", Value: v} }

// met reports whether v keeps the bound.
func (t Target) met(v float64) bool {
	if t.Compare == ">=" {
		return v >= t.Value
	}
	return v <= t.Value
}

// target records a number that has to keep a bound.
func (s *Scenario) target(name string, value float64, unit string, t Target, note ...string) {
	met := t.met(value)
	s.Results = append(s.Results, Result{Name: name, Value: value, Unit: unit, Target: &t, Met: &met, Note: strings.Join(note, "; ")})
}

// note records a number that explains others.
func (s *Scenario) note(name string, value float64, unit string, note ...string) {
	s.Results = append(s.Results, Result{Name: name, Value: value, Unit: unit, Note: strings.Join(note, "; ")})
}

// verdict is a word for a table.
func (r Result) verdict() string {
	switch {
	case r.Met == nil:
		return ""
	case *r.Met:
		return "met"
	}
	return "missed"
}

// quantity writes a number with its unit and about three digits.
func quantity(v float64, unit string) string {
	var number string
	switch {
	case v == float64(int64(v)) && (unit == "" || unit == "B" || v == 0):
		number = strconv.FormatInt(int64(v), 10)
	case v >= 100 || v <= -100:
		number = strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10 || v <= -10:
		number = strconv.FormatFloat(v, 'f', 1, 64)
	default:
		number = strconv.FormatFloat(v, 'f', 2, 64)
	}
	switch unit {
	case "":
		return number
	case "/s", "%":
		return number + unit
	}
	return number + " " + unit
}

// goal writes a target.
func (r Result) goal() string {
	if r.Target == nil {
		return ""
	}
	symbol := map[string]string{"<=": "≤", ">=": "≥"}[r.Target.Compare]
	number := strconv.FormatFloat(r.Target.Value, 'g', 6, 64)
	switch r.Unit {
	case "", "/s", "%":
		return symbol + " " + number + r.Unit
	}
	return symbol + " " + number + " " + r.Unit
}

// Table writes a scenario for people at a terminal.
func (s *Scenario) Table(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	_, err := fmt.Fprintf(tw, "\n%s  %s\n%s\n", s.ID, s.Title, s.Setup)
	row := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(tw, format+"\n", args...)
		}
	}
	row("")
	for _, r := range s.Results {
		row("  %s\t%s%s\t%s\t%s\t%s", r.Name, s.column(string(r.Mapping), "\t"), quantity(r.Value, r.Unit), r.goal(), r.verdict(), r.Note)
	}
	if len(s.Processes) > 0 {
		row("")
		row("  process\tphase\t%scpu\tof a core\tresident\tpeak", s.column("mapping", "\t"))
	}
	for _, u := range s.Processes {
		row("  %s\t%s\t%s%s\t%s\t%s\t%s", u.Process, u.Phase, s.column(string(u.Mapping), "\t"), quantity(u.CPUSeconds, "s"), quantity(u.CPUPercent, "%"),
			quantity(u.ResidentMiB, "MiB"), quantity(u.PeakMiB, "MiB"))
	}
	if s.Failure != "" {
		row("  FAILED: %s", s.Failure)
	}
	if err != nil {
		return err
	}
	return tw.Flush()
}

// Markdown writes a run of first syncs for docs: how they grow first.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(r.measured())
	r.curves(&b)
	for _, scenario := range r.Scenarios {
		b.WriteString("\n" + scenario.markdown(""))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// measured says when, how and where the run was made.
func (r *Report) measured() string {
	m := r.Machine
	return fmt.Sprintf("Measured on %s with `%s` at commit `%s`, in %s, on %d cores of %s with %s of memory, Linux %s, %s.\n",
		r.Started.UTC().Format("2006-01-02 15:04 UTC"), r.Command, r.Commit, time.Duration(r.Seconds*float64(time.Second)).Round(time.Second),
		m.Cores, m.Processor, quantity(m.MemoryGiB, "GiB"), m.Kernel, m.Go)
}

// markdown writes one scenario; measured is empty or says of which run it is.
func (s *Scenario) markdown(measured string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s: %s\n\n", s.ID, s.Title)
	if measured != "" {
		b.WriteString(measured + "\n")
	}
	fmt.Fprintf(&b, "%s Load average at its start: %.1f.\n\n", s.Setup, s.Load)
	if s.Failure != "" {
		fmt.Fprintf(&b, "**Failed: %s**\n\n", cell(s.Failure))
	}
	fmt.Fprintf(&b, "| Measured | %sResult | Target | | Remark |\n|---|%s---:|---:|---|---|\n", s.column("Mapping", " | "), s.column("---", "|"))
	for _, r := range s.Results {
		fmt.Fprintf(&b, "| %s | %s%s | %s | %s | %s |\n", cell(r.Name), s.column(string(r.Mapping), " | "), quantity(r.Value, r.Unit), r.goal(), r.verdict(), cell(r.Note))
	}
	if len(s.Processes) > 0 {
		fmt.Fprintf(&b, "\n| Process | Phase | %sCPU | Of a core | Resident | Peak |\n|---|---|%s---:|---:|---:|---:|\n", s.column("Mapping", " | "), s.column("---", "|"))
	}
	for _, u := range s.Processes {
		fmt.Fprintf(&b, "| %s | %s | %s%s | %s | %s | %s |\n", cell(u.Process), cell(u.Phase), s.column(string(u.Mapping), " | "), quantity(u.CPUSeconds, "s"),
			quantity(u.CPUPercent, "%"), quantity(u.ResidentMiB, "MiB"), quantity(u.PeakMiB, "MiB"))
	}
	return b.String()
}

// curves writes how first syncs grow, as one table; nothing when there are none.
func (r *Report) curves(b *strings.Builder) {
	begun := false
	for _, s := range r.Scenarios {
		for _, f := range s.FirstSyncs {
			if !begun {
				begun = true
				b.WriteString("\n| Mapping | Agents | Applications | Principal ready after its start | First sync | Applications | CPU of the principal for one | Memory of the principal at most | For one | " +
					"Idle, of a core | Compared, none lost | Load average |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
			}
			fmt.Fprintf(b, "| %s | %d | %s | %s | %s | %s | %s | %s | %s | %s | %s | %.1f |\n", mappingOf(s), f.Agents, thousands(f.Applications), quantity(f.ReadySeconds, "s"),
				quantity(f.Seconds, "s"), quantity(float64(f.Applications)/f.Seconds, "/s"), quantity(f.CPU*1e6, "µs"), quantity(f.MemoryMiB, "MiB"),
				quantity(f.MemoryMiB*1024/float64(f.Applications), "KiB"), quantity(f.IdlePercent, "%"), thousands(f.Compared), f.Load)
		}
	}
}

// mappingOf is the last part of the title of a scenario with first syncs.
func mappingOf(s *Scenario) string {
	_, mapping, _ := strings.Cut(s.Title, ", ")
	return mapping
}

// cell escapes what would end a cell of a table.
func cell(s string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s) }

// section is a part of a document that is written from results.
type section struct{ begin, end string }

var (
	resultSection    = section{"<!-- results: written by test/bench -->\n", "<!-- end of results -->\n"}
	firstSyncSection = section{"<!-- first syncs: written by test/bench -->\n", "<!-- end of first syncs -->\n"}
)

// document puts the results into a document. First syncs of fleets have a section of
// their own, which a run replaces; of the others a run replaces those scenarios that it
// has.
func (r *Report) document(text string) (string, error) {
	fleets, others := *r, []*Scenario(nil)
	fleets.Scenarios = nil
	for _, s := range r.Scenarios {
		if isFleet(s) {
			fleets.Scenarios = append(fleets.Scenarios, s)
		} else {
			others = append(others, s)
		}
	}
	var err error
	if len(fleets.Scenarios) > 0 {
		var syncs strings.Builder
		if err = fleets.Markdown(&syncs); err == nil {
			text, err = firstSyncSection.change(text, func(string) string { return syncs.String() })
		}
	}
	if err == nil && len(others) > 0 {
		text, err = resultSection.change(text, func(old string) string {
			for _, s := range others {
				old = replaceScenario(old, s.ID, s.markdown(r.measured()))
			}
			return old
		})
	}
	return text, err
}

// replaceScenario puts what a section says of one scenario in the place of what it said,
// in the order of the scenarios. What stands before the first one goes.
func replaceScenario(old, id, is string) string {
	const heading = "### "
	said := map[string]string{id: strings.TrimPrefix(is, heading)}
	for i, part := range strings.Split("\n"+old, "\n"+heading) {
		if other, _, _ := strings.Cut(part, ":"); i > 0 && other != id {
			said[other] = part
		}
	}
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(said)) {
		b.WriteString(heading + strings.TrimSpace(said[id]) + "\n\n")
	}
	return b.String()
}

func isFleet(s *Scenario) bool { return s.ID == "fleet" || s.ID == "destinations" }

// change replaces what is between the two markers of a document.
func (s section) change(document string, into func(string) string) (string, error) {
	before, rest, found := strings.Cut(document, s.begin)
	if !found {
		return "", fmt.Errorf("it has no line %q", strings.TrimSpace(s.begin))
	}
	old, after, found := strings.Cut(rest, s.end)
	if !found {
		return "", fmt.Errorf("it has no line %q after the other", strings.TrimSpace(s.end))
	}
	return before + s.begin + "\n" + strings.TrimSpace(into(strings.TrimSpace(old))) + "\n\n" + s.end + after, nil
}

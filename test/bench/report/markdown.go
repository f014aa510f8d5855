package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// firstSyncs writes a run of first syncs: how they grow first.
func (r *Report) firstSyncs() string {
	var b strings.Builder
	b.WriteString(r.measured())
	r.curves(&b)
	for _, scenario := range r.Scenarios {
		b.WriteString("\n" + scenario.markdown(""))
	}
	return b.String()
}

// measured says when, how and where the run was made.
func (r *Report) measured() string {
	m := r.Machine
	return fmt.Sprintf("Measured on %s with `%s` at commit `%s`, in %s, on %d cores of %s with %s of memory, Linux %s, %s.\n",
		r.Started.UTC().Format("2006-01-02 15:04 UTC"), r.Command, r.Commit, time.Duration(r.Seconds*float64(time.Second)).Round(time.Second),
		m.Cores, m.Processor, Quantity(m.MemoryGiB, "GiB"), m.Kernel, m.Go)
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
		fmt.Fprintf(&b, "| %s | %s%s | %s | %s | %s |\n", cell(r.Name), s.column(r.Mapping, " | "), Quantity(r.Value, r.Unit), r.goal(), r.verdict(), cell(r.Note))
	}
	if len(s.Processes) > 0 {
		fmt.Fprintf(&b, "\n| Process | Phase | %sCPU | Of a core | Resident | Peak |\n|---|---|%s---:|---:|---:|---:|\n", s.column("Mapping", " | "), s.column("---", "|"))
	}
	for _, u := range s.Processes {
		fmt.Fprintf(&b, "| %s | %s | %s%s | %s | %s | %s |\n", cell(u.Process), cell(u.Phase), s.column(u.Mapping, " | "), Quantity(u.CPUSeconds, "s"),
			Quantity(u.CPUPercent, "%"), Quantity(u.ResidentMiB, "MiB"), Quantity(u.PeakMiB, "MiB"))
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
			fmt.Fprintf(b, "| %s | %d | %s | %s | %s | %s | %s | %s | %s | %s | %s | %.1f |\n", mappingOf(s), f.Agents, Thousands(f.Applications), Quantity(f.ReadySeconds, "s"),
				Quantity(f.Seconds, "s"), Quantity(float64(f.Applications)/f.Seconds, "/s"), Quantity(f.CPU*1e6, "µs"), Quantity(f.MemoryMiB, "MiB"),
				Quantity(f.MemoryMiB*1024/float64(f.Applications), "KiB"), Quantity(f.IdlePercent, "%"), Thousands(f.Compared), f.Load)
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

// Into puts the results into a document. First syncs of fleets have a section of
// their own, which a run replaces; of the others a run replaces those scenarios that it
// has.
func (r *Report) Into(text string) (string, error) {
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
		text, err = firstSyncSection.change(text, func(string) string { return fleets.firstSyncs() })
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

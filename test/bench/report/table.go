package report

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

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

// Thousands writes n for people.
func Thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// Quantity writes a number with its unit and about three digits.
func Quantity(v float64, unit string) string {
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
		row("  %s\t%s%s\t%s\t%s\t%s", r.Name, s.column(r.Mapping, "\t"), Quantity(r.Value, r.Unit), r.goal(), r.verdict(), r.Note)
	}
	if len(s.Processes) > 0 {
		row("")
		row("  process\tphase\t%scpu\tof a core\tresident\tpeak", s.column("mapping", "\t"))
	}
	for _, u := range s.Processes {
		row("  %s\t%s\t%s%s\t%s\t%s\t%s", u.Process, u.Phase, s.column(u.Mapping, "\t"), Quantity(u.CPUSeconds, "s"), Quantity(u.CPUPercent, "%"),
			Quantity(u.ResidentMiB, "MiB"), Quantity(u.PeakMiB, "MiB"))
	}
	if s.Failure != "" {
		row("  FAILED: %s", s.Failure)
	}
	if err != nil {
		return err
	}
	return tw.Flush()
}

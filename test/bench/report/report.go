// Package report is what a run of the benchmarks has measured: numbers with their targets, as
// JSON, as a table for a terminal and as sections of a document.
package report

import (
	"strings"
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
	Mapping string `json:"mapping,omitempty"`
}

// Machine is what a run was measured on.
type Machine struct {
	Processor string  `json:"processor"`
	Cores     int     `json:"cores"`
	MemoryGiB float64 `json:"memory_gib"`
	Kernel    string  `json:"kernel"`
	Go        string  `json:"go"`
}

// Usage is what one process took during one phase of a scenario.
type Usage struct {
	Process string `json:"process"`
	Phase   string `json:"phase"`
	// CPUSeconds counts user and system time.
	CPUSeconds float64 `json:"cpu_seconds"`
	// CPUPercent is the share of one core.
	CPUPercent float64 `json:"cpu_percent"`
	// ResidentMiB is the resident set at the end of the phase, PeakMiB the largest
	// seen in it.
	ResidentMiB float64 `json:"resident_mib"`
	PeakMiB     float64 `json:"peak_mib"`
	// ProportionalMiB counts pages that processes share in parts (proc(5)).
	ProportionalMiB float64 `json:"proportional_mib"`
	// Mapping is as that of a Result.
	Mapping string `json:"mapping,omitempty"`
}

// Target is a bound.
type Target struct {
	// Compare is "<=" or ">=".
	Compare string  `json:"compare"`
	Value   float64 `json:"value"`
}

// AtMost is met by v and less.
func AtMost(v float64) Target { return Target{Compare: "<=", Value: v} }

// AtLeast is met by v and more.
func AtLeast(v float64) Target { return Target{Compare: ">=", Value: v} }

// met reports whether v keeps the bound.
func (t Target) met(v float64) bool {
	if t.Compare == ">=" {
		return v >= t.Value
	}
	return v <= t.Value
}

// Target records a number that has to keep a bound.
func (s *Scenario) Target(name string, value float64, unit string, t Target, note ...string) {
	met := t.met(value)
	s.Results = append(s.Results, Result{Name: name, Value: value, Unit: unit, Target: &t, Met: &met, Note: strings.Join(note, "; ")})
}

// Note records a number that explains others.
func (s *Scenario) Note(name string, value float64, unit string, note ...string) {
	s.Results = append(s.Results, Result{Name: name, Value: value, Unit: unit, Note: strings.Join(note, "; ")})
}

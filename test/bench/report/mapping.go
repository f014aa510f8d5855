package report

import (
	"cmp"
	"slices"
)

// MeasuredBy marks what was measured since the last call as of a hub that maps so.
func (s *Scenario) MeasuredBy(by string) {
	for i := range s.Results {
		s.Results[i].Mapping = cmp.Or(s.Results[i].Mapping, by)
	}
	for i := range s.Processes {
		s.Processes[i].Mapping = cmp.Or(s.Processes[i].Mapping, by)
	}
}

// Pair puts numbers of one name, and processes of one phase, beside each other, in the
// order in which the first of each was measured.
func (s *Scenario) Pair() {
	s.Results = together(s.Results, func(r Result) string { return r.Name })
	s.Processes = together(s.Processes, func(u Usage) string { return u.Phase + "\n" + u.Process })
}

// together sorts by where the first of the same name is.
func together[T any](all []T, name func(T) string) []T {
	first := make(map[string]int, len(all))
	for i, one := range all {
		if _, known := first[name(one)]; !known {
			first[name(one)] = i
		}
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b T) int { return first[name(a)] - first[name(b)] })
	return sorted
}

// mapped reports whether the scenario tells mappings apart.
func (s *Scenario) mapped() bool {
	return slices.ContainsFunc(s.Results, func(r Result) bool { return r.Mapping != "" }) ||
		slices.ContainsFunc(s.Processes, func(u Usage) bool { return u.Mapping != "" })
}

// column is a cell of the column Mapping and what ends it; nothing in a scenario without
// that column.
func (s *Scenario) column(text, end string) string {
	if !s.mapped() {
		return ""
	}
	return text + end
}

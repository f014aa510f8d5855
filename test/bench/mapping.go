//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/argomesh/argomesh/test/harness"
)

// mappedBy is a value of the principal's setting mapping.by. Empty means byNamespace,
// and in a result that its scenario is measured in one mapping only.
type mappedBy string

const (
	byNamespace   mappedBy = "namespace"
	byDestination mappedBy = "destination"
)

// namespace is where the hub has the Applications of an agent.
func (m mappedBy) namespace(agent string) string {
	if m == byDestination {
		return harness.ArgoCDNamespace
	}
	return agent
}

// inBoth runs a scenario in both mappings, one after the other, each in an environment of its own.
// What both have measured stands together in the end.
func inBoth(run func(context.Context, *bench, *Scenario) error) func(context.Context, *bench, *Scenario) error {
	return func(ctx context.Context, b *bench, s *Scenario) error {
		defer s.pair()
		for _, by := range []mappedBy{byNamespace, byDestination} {
			b.mapping = by
			b.say("mapping by %s", by)
			err := run(ctx, b, s)
			s.measuredBy(by)
			if err != nil {
				return fmt.Errorf("by %s: %w", by, err)
			}
		}
		return nil
	}
}

// measuredBy marks what has no mapping yet.
func (s *Scenario) measuredBy(by mappedBy) {
	for i := range s.Results {
		s.Results[i].Mapping = cmp.Or(s.Results[i].Mapping, by)
	}
	for i := range s.Processes {
		s.Processes[i].Mapping = cmp.Or(s.Processes[i].Mapping, by)
	}
}

// pair puts numbers of one name, and processes of one phase, beside each other, in the
// order in which the first of each was measured.
func (s *Scenario) pair() {
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

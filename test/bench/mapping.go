//go:build linux

package main

import (
	"context"
	"fmt"

	"github.com/argomesh/argomesh/test/bench/report"
	"github.com/argomesh/argomesh/test/harness"
)

// mappedBy is a value of the principal's setting mapping.by. Empty means byNamespace.
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
func inBoth(run func(context.Context, *bench, *report.Scenario) error) func(context.Context, *bench, *report.Scenario) error {
	return func(ctx context.Context, b *bench, s *report.Scenario) error {
		defer s.Pair()
		for _, by := range []mappedBy{byNamespace, byDestination} {
			b.mapping = by
			b.say("mapping by %s", by)
			err := run(ctx, b, s)
			s.MeasuredBy(string(by))
			if err != nil {
				return fmt.Errorf("by %s: %w", by, err)
			}
		}
		return nil
	}
}

package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/check"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/rights"
)

// refuseWithoutRights refuses a first install by a user who lacks rights, and names all that are known before anything
// is written: of those given, and to what the chart with such values has.
func refuseWithoutRights(ctx context.Context, s *side, o *options, needs []rights.Right, values map[string]any,
	more ...string) error {
	others, err := o.with.needs(ctx, s)
	if err != nil {
		return err
	}
	needs = unique(slices.Concat(rights.OfHelm(s.namespace), others, needs))
	lacks, err := rights.Missing(ctx, s.client, string(check.SideOf(s.chart)), needs)
	if err != nil {
		return s.explain(err, "ask for rights")
	}
	if lacks = append(lacks, more...); len(lacks) == 0 {
		return nil
	}
	folder, err := charts.Open(s.chart)
	if err != nil {
		return err
	}
	// Where it cannot be planned, as without the right to read records of Helm, what is known is told.
	desired := release.Desired{Name: s.chart, Chart: folder, Values: values}
	if plan, err := s.releases.Plan(ctx, desired); err == nil {
		if refusals, err := s.releases.Refusals(ctx, desired, plan); err == nil {
			for _, refusal := range refusals {
				lacks = append(lacks, cli.OneLine(refusal))
			}
		}
	}
	return fmt.Errorf("rights are missing, and nothing was written: %s; ask an administrator of the cluster for them, or"+
		" choose another --context or --user", strings.Join(lacks, "; "))
}

// unique returns each right once.
func unique(all []rights.Right) (out []rights.Right) {
	for _, right := range all {
		if !slices.Contains(out, right) {
			out = append(out, right)
		}
	}
	return out
}

// needsRights reports whether the rights of an install are asked for: of a first one, since what another needs
// depends on what differs. Who may not see whether it is the first lacks a right.
func needsRights(s *side, o *options) bool {
	first, err := isFirst(s)
	return o.outputDir == "" && (first || err != nil)
}

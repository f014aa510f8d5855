package install

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/check"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/images"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
)

// check looks for what must be there before a chart is installed with the values that are given: it refuses what
// is a problem, all at once, and says what may become one. Nothing is written.
func (s *side) check(ctx context.Context, o *options, given map[string]any) error {
	found, err := s.findings(ctx, given)
	if err != nil {
		return err
	}
	return s.refuse(o, found)
}

// findings are what "agentctl check --pre" finds for the values that are given, but for what registering mends.
func (s *side) findings(ctx context.Context, given map[string]any) (found []check.Finding, err error) {
	values, err := s.known(given)
	if err != nil {
		return nil, err
	}
	facts, err := check.ObserveBefore(ctx, check.SideOf(s.chart), s.conn, s.namespace, values)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(check.Run(facts, true), func(f check.Finding) bool { return f.Word == "WrongClass" }), nil
}

// ready refuses, before the first of what --with names is written, what would keep our chart from being installed with
// these values after that: problems that none of it mends, an Istio that is not there, what the chart or the API server
// refuses, and images that no registry has.
func (s *side) ready(ctx context.Context, o *options, brings []bringing, values map[string]any) error {
	brings = slices.DeleteFunc(slices.Clone(brings), func(b bringing) bool { return b.others() || b.keeps })
	if len(brings) == 0 || o.outputDir != "" {
		return nil // nothing is written before all of this is asked
	}
	found, err := s.findings(ctx, values)
	if err != nil {
		return err
	}
	if err := s.refuse(o, slices.DeleteFunc(found, func(f check.Finding) bool {
		mended := slices.ContainsFunc(brings, func(b bringing) bool { return slices.Contains(b.mends, f.Word) })
		return f.Level != check.Problem || mended || !o.preCheck
	})); err != nil {
		return err
	}
	if o.with.has(withIstio) {
		if _, err := o.with.istio.observe(ctx, s); err != nil {
			return err
		}
	}
	folder, err := charts.Open(s.chart)
	if err != nil {
		return err
	}
	desired := release.Desired{Name: s.chart, Chart: folder, Values: values, Force: o.force}
	plan, err := s.render(ctx, desired)
	if err != nil {
		return err
	}
	if err := s.checkPlan(ctx, desired, plan, true); err != nil || !o.askImages {
		return err
	}
	objects, err := plan.Objects()
	if err != nil {
		return err
	}
	return images.Ask(ctx, images.Of(objects)).Refusal()
}

// refuse returns the problems among what was found, and prints what is less. Where problems are no reason to end,
// they are printed, too.
func (s *side) refuse(o *options, found []check.Finding) error {
	var problems []error
	for _, f := range found {
		switch {
		case f.Level == check.Fine:
		case f.Level == check.Problem && o.preCheck:
			problems = append(problems, errors.New(f.String()))
		default:
			if err := s.say("%s: %s", f.Level, f); err != nil {
				return err
			}
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w\n%s: nothing was written; --pre-check=false goes on in spite of it", errors.Join(problems...),
		s.chart)
}

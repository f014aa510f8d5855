package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/images"
	meshcommand "github.com/argomesh/argomesh/cmd/agentctl/internal/mesh"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/project"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/rollout"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/turns"
)

// side is where one chart is installed.
type side struct {
	std       cli.Streams
	conn      *cli.Connection
	chart     string // its name, and that of its release and of its Deployment
	namespace string

	config   *rest.Config
	client   kubernetes.Interface
	releases *release.Client
}

// connect opens the connection. Nothing is contacted yet.
func (s *side) connect() error {
	var err error
	if s.config, err = s.conn.Config(); err != nil {
		return err
	}
	if s.client, err = kubernetes.NewForConfig(s.config); err != nil {
		return err
	}
	s.releases, err = release.New(release.Config{Getter: s.conn.Getter(s.namespace), Namespace: s.namespace})
	return err
}

// say prints a line of progress.
func (s *side) say(format string, args ...any) error {
	_, err := fmt.Fprintf(s.std.Out, format+"\n", args...)
	return err
}

// explain returns err, which doing met, as one line with the cure.
func (s *side) explain(err error, doing string) error {
	return cli.ExplainAPI(err, doing, "Kubernetes cluster", s.config.Host)
}

// wanted is what is to be on one side.
type wanted struct {
	values   map[string]any
	first    func(context.Context) error               // before all else; nil for nothing
	will     []string                                  // what first will do, for people
	identity *registering                              // with SPIRE; nil for nothing
	mesh     []meshcommand.State                       // what Istio, and on the hub SPIRE, is to have; none for nothing
	try      func(context.Context, release.Plan) error // before anything is written; nil for nothing
	server   serverPlan                                // of the hub
	told     []string                                  // what a person has to do
	project  project.Plan                              // on the hub, for a spoke
}

// around says, before it is done, what will be done around the chart.
func (w wanted) around() []string {
	lines := append(slices.Clone(w.will), w.identity.will()...)
	for _, state := range w.mesh {
		lines = append(lines, state.Will()...)
	}
	if w.server.change.Args != nil {
		lines = append(lines, fmt.Sprintf("Deployment %s will get %s, and restart", w.server.server.Name,
			strings.Join(argocd.Texts(w.server.flags), " ")))
	}
	return lines
}

// serverPlan is what becomes of the hub's argocd-server. The zero value is nothing.
type serverPlan struct {
	server *appsv1.Deployment
	change argocd.Change
	decide func(*appsv1.Deployment) argocd.Change
	flags  []argocd.Flag // that it will have
	told   []string      // what a person has to do
}

// install has the chart be installed with the values, its pods ready, and around it what else is
// wanted. All is planned and tried before anything is written.
func (s *side) install(ctx context.Context, o *options, w wanted) error {
	folder, err := charts.Open(s.chart)
	if err != nil {
		return err
	}
	desired := release.Desired{Name: s.chart, Chart: folder, Values: w.values, Force: o.force}
	plan, err := s.prepare(ctx, o, &desired)
	if err != nil {
		return err
	}
	dryRun := o.dryRun.Value == cli.DryRunServer
	if !dryRun {
		if err := sayAll(s, w.around()); err != nil {
			return err
		}
	}
	if w.try != nil && !dryRun && plan.Act != release.Keep {
		if err := w.try(ctx, plan); err != nil {
			return err
		}
	}
	if w.first != nil {
		if err := w.first(ctx); err != nil {
			return err
		}
	}
	if err := w.identity.do(ctx, s.std.Out, dryRun); err != nil {
		return err
	}
	for _, state := range w.mesh {
		if err := state.Carry(ctx, s.std.Out, dryRun); err != nil {
			return err
		}
	}
	if dryRun {
		return errors.Join(showAll(s, plan, w.server), sayAll(s, w.told))
	}
	if plan.Act != release.Keep {
		if err := s.apply(ctx, desired); err != nil {
			return err
		}
	}
	if !o.noWait {
		if err := s.waitReady(ctx, rollout.Workload{Kind: rollout.Deployment, Name: s.chart}, o.timeout); err != nil {
			return err
		}
	}
	return errors.Join(s.setServer(ctx, w.server, o), sayAll(s, w.told))
}

// sayAll prints lines.
func sayAll(s *side, lines []string) error {
	for _, line := range lines {
		if err := s.say("%s", line); err != nil {
			return err
		}
	}
	return nil
}

// plan looks at what there is and at what it should be. It has d name images by their digests, unless
// registries are not to be asked.
func (s *side) plan(ctx context.Context, o *options, d *release.Desired) (release.Plan, error) {
	plan, err := s.render(ctx, *d)
	if err != nil || !o.askImages {
		return plan, err
	}
	return pinImages(ctx, s, d, plan)
}

// prepare plans, and refuses what could not be carried out.
func (s *side) prepare(ctx context.Context, o *options, d *release.Desired) (release.Plan, error) {
	plan, err := s.plan(ctx, o, d)
	if err != nil {
		return plan, err
	}
	return plan, s.try(ctx, *d, plan)
}

// digestsValue is the value of a chart of ours that has digests of images by their names with tag.
const digestsValue = "imageDigests"

// pinImages asks the registries for the images of a plan, refuses what they do not have, and says which
// could not be asked for. It has d name the others by their digests, and returns the plan of that. Where
// nothing changes it asks for what is named by a tag alone, as when its registry was away. A digest stays
// as long as the name that it is of.
func pinImages(ctx context.Context, s *side, d *release.Desired, p release.Plan) (release.Plan, error) {
	ours, keeps := p.Defaults[digestsValue] != nil, p.Act == release.Keep
	if p.Act == release.Refuse || keeps && !ours {
		return p, nil
	}
	objects, err := p.Objects()
	if err != nil {
		return p, err
	}
	all := images.Of(objects)
	ask := all
	if keeps {
		ask = images.ByTag(all)
	}
	answer := images.Ask(ctx, ask)
	if err := sayAll(s, answer.Lines()); err != nil {
		return p, err
	}
	switch err := answer.Refusal(); {
	case err != nil && keeps:
		return p, s.say("%v", err)
	case err != nil, !ours:
		return p, err
	}
	was, _ := p.Values[digestsValue].(map[string]any)
	digests := images.Kept(was, all)
	for image, digest := range answer.Digests {
		digests[image] = digest
	}
	if maps.Equal(digests, was) || keeps && len(answer.Digests) == 0 {
		return p, nil
	}
	d.Whole = map[string]any{digestsValue: digests}
	return s.render(ctx, *d)
}

// showAll prints what a plan would change, and what would become of argocd-server.
func showAll(s *side, p release.Plan, server serverPlan) error {
	if err := show(s, p); err != nil {
		return err
	}
	if err := sayAll(s, server.told); err != nil || server.change.Args == nil {
		return err
	}
	return s.say("Deployment %s configured (server dry run)", server.server.Name)
}

// render looks at what there is and at what it should be.
func (s *side) render(ctx context.Context, d release.Desired) (release.Plan, error) {
	plan, err := s.releases.Plan(ctx, d)
	if refused := (*release.RefusedError)(nil); errors.As(err, &refused) {
		return plan, refused
	}
	if err != nil {
		return plan, s.explain(err, "plan "+s.chart)
	}
	return plan, nil
}

// try refuses a plan that could not be carried out, and says what will be done.
func (s *side) try(ctx context.Context, d release.Desired, plan release.Plan) error {
	if err := s.checkPlan(ctx, d, plan, false); err != nil || plan.Act == release.Keep {
		return err
	}
	return s.say("%s %s in namespace %s: %s, since %s", s.chart, plan.Version, s.namespace, plan.Act, plan.Why)
}

// checkPlan returns why a plan cannot be carried out, also by the API server, which is asked. With makes it
// is no reason that its namespace is not there yet.
func (s *side) checkPlan(ctx context.Context, d release.Desired, plan release.Plan, makes bool) error {
	switch plan.Act {
	case release.Keep:
		return nil
	case release.Refuse:
		return fmt.Errorf("%s: %s", s.chart, plan.Why)
	case release.Install, release.Upgrade, release.Mend:
	}
	refusals, err := s.releases.Refusals(ctx, d, plan)
	if err != nil {
		return s.explain(err, "check "+s.chart)
	}
	if makes {
		refusals = slices.DeleteFunc(refusals, apierrors.IsNotFound)
	}
	if len(refusals) > 0 {
		return &release.RefusedError{Reasons: refusals}
	}
	return nil
}

// show prints what a plan would change.
func show(s *side, p release.Plan) error {
	switch p.Act {
	case release.Keep:
		return s.say("%s %s in namespace %s: nothing would change", s.chart, p.Version, s.namespace)
	case release.Mend: // Helm renders nothing before it is
		return s.say("what would change then cannot be told before that")
	case release.Install, release.Upgrade, release.Refuse:
	}
	changes, err := p.Changes()
	if err != nil {
		return err
	}
	for _, c := range changes {
		if err := s.say("%s %s (server dry run)", c.Object, c.Act); err != nil {
			return err
		}
		for _, line := range c.Diff {
			if err := s.say("  %s", cli.CleanText(line)); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply does what has to be done, by what there is once no other agentctl works on it.
func (s *side) apply(ctx context.Context, d release.Desired) error {
	return s.turns().Take(ctx, func(ctx context.Context) error {
		done, err := s.releases.Apply(ctx, d)
		if err != nil {
			return s.explain(err, "install "+s.chart)
		}
		if done.Act == release.Keep { // someone else did it meanwhile
			return s.say("%s %s: %s", s.chart, done.Version, done.Why)
		}
		return s.say("%s %s: applied, revision %d", s.chart, done.Version, done.State.Revision+1)
	})
}

// turns are those of the agentctls that work on this namespace.
func (s *side) turns() turns.Turns {
	return turns.Turns{Client: s.client, Namespace: s.namespace, Out: s.std.Out, Explain: s.explain}
}

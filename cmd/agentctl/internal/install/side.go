package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/images"
	meshcommand "github.com/argomesh/argomesh/cmd/agentctl/internal/mesh"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
	"github.com/argomesh/argomesh/cmd/internal/lease"
)

// leaseName is the Lease under which one agentctl at a time installs or uninstalls.
const leaseName = "agentctl-install"

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
	first    func(context.Context) error // before all else; nil for nothing
	identity *registering                // with SPIRE; nil for nothing
	mesh     []meshcommand.State         // what Istio, and on the hub SPIRE, is to have; none for nothing
	server   serverPlan                  // of the hub
	told     []string                    // what a person has to do
}

// serverPlan is what becomes of the hub's argocd-server. The zero value is nothing.
type serverPlan struct {
	server *appsv1.Deployment
	change argocd.Change
	decide func(*appsv1.Deployment) argocd.Change
	// told is what a person has to do; empty for nothing.
	told string
}

// install has the chart be installed with the values, its pods ready, and around it what else is
// wanted. All is planned and tried before anything is written.
func (s *side) install(ctx context.Context, o *options, w wanted) error {
	folder, err := charts.Open(s.chart)
	if err != nil {
		return err
	}
	desired := release.Desired{Name: s.chart, Chart: folder, Values: w.values, Force: o.force}
	plan, err := s.prepare(ctx, o, desired)
	if err != nil {
		return err
	}
	dryRun := o.dryRun.Value == cli.DryRunServer
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
		return errors.Join(s.showAll(plan, w.server), sayAll(s, w.told))
	}
	if plan.Act != release.Keep {
		if err := s.apply(ctx, desired); err != nil {
			return err
		}
	}
	if !o.noWait {
		if err := s.waitReady(ctx, workload{deployment, s.chart}, o.timeout); err != nil {
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

// prepare plans, and refuses what could not be carried out.
func (s *side) prepare(ctx context.Context, o *options, d release.Desired) (release.Plan, error) {
	plan, err := s.plan(ctx, d)
	if err != nil {
		return plan, err
	}
	if plan.Act == release.Refuse {
		return plan, fmt.Errorf("%s: %s", s.chart, plan.Why)
	}
	if !o.askImages {
		return plan, nil
	}
	return plan, s.hasImagesOf(ctx, plan)
}

// hasImagesOf refuses a plan with an image that its registry does not have, and says which could not
// be asked for. Where nothing changes nothing is asked.
func (s *side) hasImagesOf(ctx context.Context, p release.Plan) error {
	if p.Act != release.Install && p.Act != release.Upgrade {
		return nil
	}
	objects, err := release.Objects(p.Manifest)
	if err != nil {
		return err
	}
	answer := images.Ask(ctx, images.Of(objects))
	for _, image := range slices.Sorted(maps.Keys(answer.Unasked)) {
		if err := s.say("whether there is an image %s could not be asked from here: %s", image,
			cli.OneLine(answer.Unasked[image])); err != nil {
			return err
		}
	}
	return answer.Refusal()
}

// showAll prints what a plan would change, and what would become of argocd-server.
func (s *side) showAll(p release.Plan, server serverPlan) error {
	if err := s.show(p); err != nil {
		return err
	}
	switch {
	case server.told != "":
		return s.say("%s", server.told)
	case server.change.Args != nil:
		return s.say("Deployment %s configured (server dry run)", server.server.Name)
	}
	return nil
}

// plan looks at what there is, says what will be done, and asks the API server whether it
// would refuse that.
func (s *side) plan(ctx context.Context, d release.Desired) (release.Plan, error) {
	plan, err := s.releases.Plan(ctx, d)
	if refused := (*release.RefusedError)(nil); errors.As(err, &refused) {
		return plan, refused
	}
	if err != nil {
		return plan, s.explain(err, "plan "+s.chart)
	}
	if plan.Act == release.Keep || plan.Act == release.Refuse {
		return plan, nil
	}
	refusals, err := s.releases.Refusals(ctx, d, plan)
	if err != nil {
		return plan, s.explain(err, "check "+s.chart)
	}
	if len(refusals) > 0 {
		return plan, &release.RefusedError{Reasons: refusals}
	}
	return plan, s.say("%s %s in namespace %s: %s, since %s", s.chart, plan.Version, s.namespace, plan.Act, plan.Why)
}

// show prints what a plan would change.
func (s *side) show(p release.Plan) error {
	if p.Act == release.Keep {
		return s.say("%s %s in namespace %s: nothing would change", s.chart, p.Version, s.namespace)
	}
	if p.Act == release.Mend { // Helm renders nothing before it is
		return s.say("what would change then cannot be told before that")
	}
	before, err := byName(p.State.Manifest)
	if err != nil {
		return err
	}
	after, err := byName(p.Manifest)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(keysOf(before, after)) {
		was, had := before[name]
		is, has := after[name]
		switch {
		case !had:
			err = s.say("%s created (server dry run)", name)
		case !has:
			err = s.say("%s deleted (server dry run)", name)
		case was != is || slices.Contains(p.Missing, name):
			err = s.say("%s configured (server dry run)", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// byName returns the objects of a manifest as YAML, by kind and name.
func byName(manifest string) (map[string]string, error) {
	objects, err := release.Objects(manifest)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(objects))
	for _, o := range objects {
		raw, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, err
		}
		out[o.GetKind()+" "+o.GetName()] = string(raw)
	}
	return out, nil
}

// keysOf yields the keys of both, each once.
func keysOf(a, b map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range a {
			if !yield(k) {
				return
			}
		}
		for k := range b {
			if _, both := a[k]; !both && !yield(k) {
				return
			}
		}
	}
}

// apply does what has to be done, by what there is once no other agentctl works on it.
func (s *side) apply(ctx context.Context, d release.Desired) error {
	return s.alone(ctx, func(ctx context.Context) error {
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

// alone runs f while no other agentctl works on this namespace.
func (s *side) alone(ctx context.Context, f func(context.Context) error) error {
	here := machine()
	if err := freeLease(ctx, s.client.CoordinationV1().Leases(s.namespace), leaseName, here); err != nil {
		return s.explain(err, "read Lease "+leaseName)
	}
	l, err := lease.New(lease.Config{
		Leases: s.client.CoordinationV1(), Namespace: s.namespace, Name: leaseName,
		Holder: newHolder(here, os.Getpid(), time.Now()),
	})
	if err != nil {
		return err
	}
	waiting := time.AfterFunc(waitingAfter, func() {
		_ = s.say("waiting for Lease %s of namespace %s: another agentctl works there, or was ended less than 15 s ago",
			leaseName, s.namespace) // its error is that of the next line
	})
	defer waiting.Stop()
	ran := false
	err = l.Run(ctx, func(ctx context.Context) error {
		waiting.Stop()
		ran = true
		return f(ctx)
	})
	switch {
	case err == nil && !ran:
		return errors.Join(errors.New("ended before anything was written"), ctx.Err())
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w: run the same command again, which goes on from what is there", context.Cause(ctx))
	}
	return err
}

// waitingAfter is when a person wants to know why nothing happens.
const waitingAfter = 3 * time.Second

package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

const (
	// manager owns the fields that are applied: Helm's own name for it, so that who upgrades by
	// helm meets no conflicts.
	manager = "helm"
	// history is how many revisions Helm keeps.
	history = 10
	// revisionLabel is on the record of a revision that was begun here, and has its number. Helm
	// carries labels over to the next revision, so the label alone says nothing.
	revisionLabel = "argomesh.io/agentctl-revision"

	defaultPatience = 5 * time.Minute
)

// Config holds what a Client needs. Fields without a stated default are required.
type Config struct {
	// Getter reaches the Kubernetes API.
	Getter genericclioptions.RESTClientGetter
	// Namespace is that of the release, and of its objects that have one.
	Namespace string
	// Patience is how long the operation of another program is believed to be under way. Zero
	// means 5m.
	Patience time.Duration
}

// Client plans and changes the releases of one namespace. Its methods may be called one at a
// time.
type Client struct {
	cfg  Config
	helm *action.Configuration
	live *live
}

// New checks cfg. Nothing is contacted yet.
func New(cfg Config) (*Client, error) {
	if cfg.Getter == nil || cfg.Namespace == "" || cfg.Patience < 0 {
		return nil, errors.New("release: getter and namespace are required, and patience is not negative")
	}
	if cfg.Patience == 0 {
		cfg.Patience = defaultPatience
	}
	kube.ManagedFieldsManager = manager // Helm asks for it there alone
	c := &Client{cfg: cfg, helm: action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))}
	if err := c.helm.Init(cfg.Getter, cfg.Namespace, "secret"); err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	c.live = &live{getter: cfg.Getter, namespace: cfg.Namespace}
	return c, nil
}

// Desired is what a release should be.
type Desired struct {
	// Name is that of the release, and Chart the folder of its chart; nil when Further has all of it.
	Name  string
	Chart fs.FS
	// Further are files of the chart beside those of the folder, by path; nil for none.
	Further map[string][]byte
	// Values are laid over those that the release has, and after that each of Whole, by its key, takes the place
	// of what there is.
	Values, Whole map[string]any
	// Force takes fields over that another manager has set since.
	Force bool
}

// Plan is what has to be done to have a release as it is desired.
type Plan struct {
	Act Act
	// Why says so for people.
	Why string
	// State is what there is. Version is that of the chart that is wanted, and AppVersion that of its programs.
	State               State
	Version, AppVersion string
	// Values are those that the release will have, without Defaults, the chart's own.
	Values, Defaults map[string]any
	// Manifest is what will be applied. It is empty where an operation was ended in the middle: Helm renders nothing
	// then. Draft has it there, as far as it is known without the API server: what the chart looks up is not found.
	Manifest, Draft string
	// Missing names the objects of Manifest that are not as it says.
	Missing []string
}

// Plan writes nothing.
func (c *Client) Plan(ctx context.Context, d Desired) (Plan, error) {
	chart, err := loadChart(d.Chart, d.Further)
	if err != nil {
		return Plan{}, err
	}
	state, err := c.Observe(d.Name)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{State: state, Version: chart.Metadata.Version, AppVersion: chart.Metadata.AppVersion,
		Values: loader.MergeMaps(state.Values, d.Values), Defaults: chart.Values}
	maps.Copy(p.Values, d.Whole)
	facts := Facts{
		State: state, Chart: chart.Metadata.Name, Version: chart.Metadata.Version, Now: time.Now(), Patience: c.cfg.Patience,
	}
	switch {
	case state.Revision == 0:
		p.Manifest, err = c.render(ctx, d, p.Values, c.install)
	case state.Status == common.StatusDeployed, state.Status == common.StatusFailed,
		state.Status == common.StatusSuperseded:
		p.Manifest, err = c.render(ctx, d, p.Values, c.upgrade)
	case state.Status.IsPending():
		p.Draft, err = c.draft(ctx, d, p.Values)
	}
	if err != nil {
		err = fmt.Errorf("chart %s: %w", chart.Metadata.Name, err)
		return Plan{}, cmp.Or(c.refused(ctx, d, p.Values), err)
	}
	if state.Status == common.StatusDeployed && state.Manifest == p.Manifest {
		if p.Missing, err = c.live.missing(ctx, d.Name, p.Manifest); err != nil {
			return Plan{}, err
		}
	}
	facts.Manifest, facts.Missing = p.Manifest, p.Missing
	p.Act, p.Why = Decide(facts)
	return p, nil
}

// Differs names the objects of a release that are not there, or that an apply of its manifest
// would change. Nothing is written; who may not apply them may not ask.
func (c *Client) Differs(ctx context.Context, name string, s State) ([]string, error) {
	return c.live.missing(ctx, name, s.Manifest)
}

// refused returns all refusals of the API server as one error, for a chart that could not be
// rendered there, since the first of them may be why: not that there is no namespace yet. Nil when
// there are none, or they are not known either.
func (c *Client) refused(ctx context.Context, d Desired, values map[string]any) error {
	if manifest, err := c.draft(ctx, d, values); err == nil {
		all, err := c.live.refusals(ctx, d.Name, manifest, true)
		if all = slices.DeleteFunc(all, apierrors.IsNotFound); err == nil && len(all) > 0 {
			return &RefusedError{Reasons: all}
		}
	}
	return nil
}

// draft returns what the chart renders to without the API server.
func (c *Client) draft(ctx context.Context, d Desired, values map[string]any) (string, error) {
	// It contacts no server, and changes what it works with.
	apart := &Client{cfg: c.cfg, helm: action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))}
	r, err := apart.install(ctx, d, values, operation{revision: "0", dry: action.DryRunClient})
	if err != nil {
		return "", err
	}
	if r == nil {
		return "", errNothing
	}
	return r.Manifest, nil
}

// errNothing is that of a chart without objects.
var errNothing = errors.New("helm rendered nothing")

// RefusedError has the reasons for which the API server would not take what would be applied.
type RefusedError struct{ Reasons []error }

// Error names all reasons, each once.
func (e *RefusedError) Error() string {
	var out []string
	for _, err := range e.Reasons {
		if text := err.Error(); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return "the Kubernetes API refuses what would be applied, and nothing was written: " + strings.Join(out, "; ")
}

// Refusals are all reasons for which the API server would refuse what a plan applies: rights
// that the caller lacks, policies, and fields that another manager has changed since, unless
// they are taken over by force. Nothing is written.
func (c *Client) Refusals(ctx context.Context, d Desired, p Plan) ([]error, error) {
	// An upgrade of what was not applied by the server does not ask who owns a field.
	return c.live.refusals(ctx, d.Name, p.Manifest, d.Force || p.State.Revision > 0 && !p.State.ServerSide)
}

// ErrRefused is wrapped by the error of Apply when a plan refuses.
var ErrRefused = errors.New("refused")

// Apply does what [Client.Plan] says now, and returns the plan that it carried out. It does
// not wait until what was applied is ready. The caller sees to it that no one else applies
// releases of this namespace by this package at the same time.
func (c *Client) Apply(ctx context.Context, d Desired) (Plan, error) {
	p, err := c.Plan(ctx, d)
	if err != nil {
		return p, err
	}
	next := strconv.Itoa(p.State.Revision + 1)
	switch p.Act {
	case Keep:
		return p, nil
	case Refuse:
		return p, fmt.Errorf("release %s of namespace %s: %w: %s", d.Name, c.cfg.Namespace, ErrRefused, p.Why)
	case Install:
		_, err = c.install(ctx, d, p.Values, operation{revision: next})
	case Mend:
		if err = c.fail(d.Name); err == nil {
			_, err = c.upgrade(ctx, d, p.Values, operation{revision: next})
		}
	case Upgrade:
		_, err = c.upgrade(ctx, d, p.Values, operation{revision: next})
	}
	if err != nil {
		return p, fmt.Errorf("%s release %s of namespace %s: %w", p.Act, d.Name, c.cfg.Namespace, err)
	}
	return p, nil
}

// operation says how an install or upgrade runs.
type operation struct {
	revision string
	dry      action.DryRunStrategy
}

func (c *Client) install(ctx context.Context, d Desired, values map[string]any,
	how operation) (*helmrelease.Release, error) {
	chart, err := loadChart(d.Chart, d.Further)
	if err != nil {
		return nil, err
	}
	i := action.NewInstall(c.helm)
	i.ReleaseName, i.Namespace = d.Name, c.cfg.Namespace
	i.ServerSideApply, i.ForceConflicts = true, d.Force
	i.WaitStrategy = kube.HookOnlyStrategy
	i.DryRunStrategy = cmp.Or(how.dry, action.DryRunNone) // what is empty contacts no server
	i.Labels = map[string]string{revisionLabel: how.revision}
	done, err := i.RunWithContext(ctx, chart, values)
	return recordOf(done), err
}

func (c *Client) upgrade(ctx context.Context, d Desired, values map[string]any,
	how operation) (*helmrelease.Release, error) {
	chart, err := loadChart(d.Chart, d.Further)
	if err != nil {
		return nil, err
	}
	u := action.NewUpgrade(c.helm)
	u.Namespace, u.MaxHistory = c.cfg.Namespace, history
	u.ServerSideApply, u.ForceConflicts = "auto", d.Force // as the release was made
	u.ResetValues = true                                  // values are all that people gave
	u.WaitStrategy = kube.HookOnlyStrategy
	u.DryRunStrategy = cmp.Or(how.dry, action.DryRunNone)
	u.Labels = map[string]string{revisionLabel: how.revision}
	done, err := u.RunWithContext(ctx, d.Name, chart, values)
	return recordOf(done), err
}

// recordOf returns what Helm made; nil when it is none.
func recordOf(done any) *helmrelease.Release {
	r, _ := done.(*helmrelease.Release)
	return r
}

// render returns the manifest that an operation would apply, as the API server defaults and
// validates it.
func (c *Client) render(ctx context.Context, d Desired, values map[string]any,
	run func(context.Context, Desired, map[string]any, operation) (*helmrelease.Release, error),
) (string, error) {
	r, err := run(ctx, d, values, operation{revision: "0", dry: action.DryRunServer})
	if err != nil {
		return "", err
	}
	if r == nil {
		return "", errNothing
	}
	return r.Manifest, nil
}

// fail records that the newest operation failed.
func (c *Client) fail(name string) error {
	last, err := c.last(name)
	if err != nil || last == nil {
		return err
	}
	if last.Info == nil {
		last.Info = &helmrelease.Info{}
	}
	last.SetStatus(common.StatusFailed, "agentctl found it ended in the middle ("+last.Info.Status.String()+")")
	return c.helm.Releases.Update(last)
}

// Removal is what an uninstall left.
type Removal struct {
	// Found says that there was a release.
	Found bool
	// Kept says, in the words of Helm, which objects stay by their policy.
	Kept string
}

// Remove uninstalls a release, calls beside once its objects are gone, and forgets the release then: when it is
// ended before, the record of the release is there for another run. Where there is no release it does nothing.
// A timeout of 0 means without limit.
func (c *Client) Remove(name string, timeout time.Duration, beside func() error) (Removal, error) {
	last, err := c.last(name)
	if err != nil || last == nil {
		return Removal{}, err
	}
	out := Removal{Found: true}
	if last.Info == nil || last.Info.Status != common.StatusUninstalled {
		if out.Kept, err = c.uninstall(name, timeout, true); err != nil {
			return out, err
		}
	}
	if err := beside(); err != nil {
		return out, err
	}
	_, err = c.uninstall(name, timeout, false)
	return out, err
}

// forEver is a timeout that no one lives to see; by 0 Helm means half a minute.
const forEver time.Duration = math.MaxInt64

// uninstall has Helm remove what it has not removed yet: the objects, and without keepHistory the records.
func (c *Client) uninstall(name string, timeout time.Duration, keepHistory bool) (kept string, err error) {
	u := action.NewUninstall(c.helm)
	u.IgnoreNotFound, u.Timeout, u.KeepHistory = true, cmp.Or(timeout, forEver), keepHistory
	u.WaitStrategy, u.DeletionPropagation = kube.StatusWatcherStrategy, "background"
	done, err := u.Run(name)
	if err != nil {
		return "", fmt.Errorf("uninstall release %s of namespace %s: %w", name, c.cfg.Namespace, err)
	}
	if done == nil {
		return "", nil
	}
	return done.Info, nil
}

package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli/values"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/federation"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/istiosetup"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/manifests"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/rights"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/rollout"
	"github.com/argomesh/argomesh/mesh/spire"
)

// What --with may name.
const (
	withSPIRE  = "spire"
	withArgoCD = "argocd"
	// withIstio configures an Istio that is there, and brings none.
	withIstio = "istio"
)

// with is what of others an install brings where it is not there.
type with struct {
	names     []string
	manifests string
	spire     values.Options // of its chart
	istio     istioFlags
}

func (w *with) addFlags(cmd *cobra.Command) {
	known := []string{withSPIRE, withArgoCD, withIstio}
	cmd.Flags().StringSliceVar(&w.names, "with", nil,
		"bring what is not there, spire and argocd, and leave what is there as it is; istio: be in the Istio that is there")
	w.istio.addFlags(cmd)
	cmd.Flags().StringVar(&w.manifests, "manifests", "",
		"folder or https URL with the archives of \"make manifests\", for --with (default those in agentctl)")
	cmd.Flags().StringArrayVar(&w.spire.ValueFiles, "spire-values", nil,
		"YAML file with values of the chart argomesh-spire, for --with spire; may be repeated, and is kept, as values are")
	cli.Register(cmd, "with", cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp))
}

// check refuses what is not known, and what does not go with it.
func (w *with) check() error {
	for _, name := range w.names {
		if name != withSPIRE && name != withArgoCD && name != withIstio {
			return fmt.Errorf("--with %s: it is %s, %s or %s", name, withSPIRE, withArgoCD, withIstio)
		}
	}
	if len(w.spire.ValueFiles) > 0 && !w.has(withSPIRE) {
		return errors.New("--spire-values: --with spire is missing")
	}
	if w.istio.given() && !w.has(withIstio) {
		return errors.New("--istio-gateway and --istio-exposure: --with istio is missing")
	}
	return nil
}

func (w *with) has(name string) bool { return slices.Contains(w.names, name) }

// extra is one thing of others, as a release of Helm.
type extra struct {
	title     string // for people
	file      string // of its folder, where files are written
	resource  schema.GroupVersionResource
	namespace string
	labels    map[string]string // of the namespace, if it is made
	desired   release.Desired
	// fixed is the value that a release keeps for as long as it lives, since all that is there hangs on it.
	fixed string
	mends []string // findings of "agentctl check --pre", by their words
	waits []rollout.Workload
}

// bring installs what --with names and is not there, or is there since an agentctl brought it, and waits
// for it, unless our chart could not be installed with these values after that. missing says that a dry run cannot go
// on, since what comes next needs it.
//
// Folder is where files of this side go, if files are written.
func bring(ctx context.Context, s *side, o *options, role argocd.Role, trustDomain, folder string,
	values map[string]any) (missing bool, err error) {
	brings, err := planExtras(ctx, s, o, role, trustDomain)
	if err != nil {
		return false, err
	}
	if err := s.ready(ctx, o, brings, values); err != nil {
		return false, err
	}
	for _, b := range brings {
		lacks, err := b.do(ctx, s, o, folder)
		if err != nil {
			return missing, fmt.Errorf("--with: %w", err)
		}
		missing = missing || lacks
	}
	if missing && o.outputDir != "" {
		return true, s.say("what is installed beside that is written once it is there: run this again then")
	}
	if missing {
		return true, s.say("what is installed beside that cannot be tried before it is there")
	}
	return false, nil
}

// planExtras plans what --with names, all before the first is written.
func planExtras(ctx context.Context, s *side, o *options, role argocd.Role, trustDomain string) ([]bringing, error) {
	var extras []extra
	if o.with.has(withSPIRE) {
		e, err := spireExtra(ctx, &o.with, trustDomain)
		if err != nil {
			return nil, err
		}
		extras = append(extras, e)
	}
	if o.with.has(withArgoCD) {
		e, err := argoCDExtra(ctx, &o.with, role, s.namespace)
		if err != nil {
			return nil, err
		}
		extras = append(extras, e)
	}
	brings := make([]bringing, len(extras))
	for i, e := range extras {
		var err error
		if brings[i], err = planExtra(ctx, s, o, e); err != nil {
			return nil, fmt.Errorf("--with: %w", err)
		}
	}
	return brings, nil
}

// bringing is one thing of others as it is to be brought.
type bringing struct {
	extra
	at       *side
	revision int  // of its release; 0 for none
	served   bool // its resource is there
	keeps    bool // it is as it should be
}

// planExtra looks for one thing, and refuses what cannot be brought. Nothing is written.
func planExtra(ctx context.Context, s *side, o *options, e extra) (b bringing, err error) {
	b = bringing{extra: e, at: &side{std: s.std, conn: s.conn, chart: e.desired.Name, namespace: e.namespace}}
	if err := b.at.connect(); err != nil {
		return b, err
	}
	is, err := b.at.releases.Observe(e.desired.Name)
	if err != nil {
		return b, s.explain(err, "look for "+e.desired.Name)
	}
	b.revision = is.Revision
	if b.served, err = cli.Serves(s.client.Discovery(), e.resource); err != nil {
		return b, s.explain(err, "look for "+e.title)
	}
	if was, to := is.Values[e.fixed], e.desired.Values[e.fixed]; was != nil && was != to {
		return b, fmt.Errorf("%s is there with %s %v, and is not changed to %v: is it the right --context? To have it so,"+
			" remove it first by \"helm uninstall %s -n %s\"", e.title, e.fixed, was, to, e.desired.Name, e.namespace)
	}
	b.desired.Force = o.force
	if b.others() || o.outputDir != "" {
		return b, nil
	}
	if err := isNotGoing(ctx, b.at); err != nil {
		return b, err
	}
	plan, err := b.at.plan(ctx, o, &b.desired)
	if err != nil {
		return b, err
	}
	b.keeps = plan.Act == release.Keep
	return b, b.at.checkPlan(ctx, b.desired, plan, true)
}

// isNotGoing refuses a namespace that is being deleted.
func isNotGoing(ctx context.Context, s *side) error {
	there, err := s.client.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return s.explain(err, "look at namespace "+s.namespace)
	}
	if there.DeletionTimestamp != nil {
		return fmt.Errorf("namespace %s is being deleted: wait until it is gone", s.namespace)
	}
	return nil
}

// needs are the rights to bring what is not there.
func (w *with) needs(ctx context.Context, s *side) (out []rights.Right, err error) {
	for _, of := range []struct {
		name, namespace string
		resource        schema.GroupVersionResource
	}{
		{withSPIRE, federation.Namespace, spire.Resource(spire.ClusterSPIFFEIDKind)},
		{withArgoCD, s.namespace, cli.ApplicationResource},
	} {
		if !w.has(of.name) {
			continue
		}
		served, err := cli.Serves(s.client.Discovery(), of.resource)
		if err != nil {
			return nil, s.explain(err, "look for what --with names")
		}
		if served {
			continue
		}
		out = append(out, rights.OfHelm(of.namespace)...)
		if _, err := s.client.CoreV1().Namespaces().Get(ctx, of.namespace, metav1.GetOptions{}); err != nil {
			out = append(out, rights.To("get,create", "", "namespaces", "")...)
		}
	}
	return out, nil
}

// others reports whether someone else brought it.
func (b bringing) others() bool { return b.served && b.revision == 0 }

// do brings it; missing says that a dry run, or one that writes files, did not.
func (b bringing) do(ctx context.Context, s *side, o *options, folder string) (missing bool, err error) {
	if b.others() {
		return false, s.say("%s is there (its resource %s): it is left as it is", b.title, b.resource.GroupResource())
	}
	if o.outputDir != "" {
		return !b.served, writeExtra(ctx, b.at, o, b.extra, folder+"/"+b.file)
	}
	dryRun := o.dryRun.Value != cli.DryRunNone
	made, err := ensureNamespace(ctx, b.at, b.labels, dryRun)
	if err != nil {
		return false, err
	}
	if made && dryRun {
		return true, s.say("%s would be installed there", b.title)
	}
	asked := *o
	asked.askImages = false // they were
	err = b.at.installRelease(ctx, &asked, b.desired, b.waits)
	return dryRun && b.revision == 0, err
}

// installRelease has a release be as desired, and its workloads be ready.
func (s *side) installRelease(ctx context.Context, o *options, d release.Desired, waits []rollout.Workload) error {
	plan, err := s.prepare(ctx, o, &d)
	if err != nil {
		return err
	}
	if o.dryRun.Value != cli.DryRunNone {
		return show(s, plan)
	}
	if plan.Act != release.Keep {
		if err := s.apply(ctx, d); err != nil {
			return err
		}
	}
	for _, w := range waits {
		if err := s.waitReady(ctx, w, o.timeout); err != nil {
			return err
		}
	}
	return nil
}

// ensureNamespace makes the namespace of this side, if it is not there.
func ensureNamespace(ctx context.Context, s *side, labels map[string]string, dryRun bool) (made bool, err error) {
	namespaces := s.client.CoreV1().Namespaces()
	_, err = namespaces.Get(ctx, s.namespace, metav1.GetOptions{})
	if err == nil {
		return false, nil
	}
	if !apierrors.IsNotFound(err) {
		return false, s.explain(err, "look at namespace "+s.namespace)
	}
	opts := metav1.CreateOptions{FieldManager: "agentctl"}
	how := ""
	if dryRun {
		opts.DryRun, how = []string{metav1.DryRunAll}, " (server dry run)"
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace, Labels: labels}}
	_, err = namespaces.Create(ctx, namespace, opts)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return false, s.explain(err, "create namespace "+s.namespace)
	}
	return true, s.say("namespace %s created%s", s.namespace, how)
}

// spireExtra is SPIRE for a cluster.
func spireExtra(ctx context.Context, w *with, trustDomain string) (e extra, err error) {
	if trustDomain == "" {
		return e, errors.New("--trust-domain is missing: that of the SPIRE that --with brings")
	}
	set, err := manifests.Open(ctx, manifests.SPIREControllerManager, w.manifests)
	if err != nil {
		return e, err
	}
	folder, err := charts.Open(charts.SPIRE)
	if err != nil {
		return e, err
	}
	given, err := w.spire.MergeValues(nil)
	if err != nil {
		return e, fmt.Errorf("--spire-values: %w", err)
	}
	definitions := map[string][]byte{}
	for name, file := range set.Files {
		if base, is := strings.CutPrefix(name, "crds/"); is {
			objects, err := release.Objects(string(file))
			if err != nil {
				return e, err
			}
			if definitions["templates/"+base], err = manifests.Template(objects); err != nil {
				return e, err
			}
		}
	}
	return extra{
		title: "SPIRE", file: withSPIRE, resource: spire.Resource(spire.ClusterSPIFFEIDKind), namespace: federation.Namespace,
		labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
		desired: release.Desired{
			Name: charts.SPIRE, Chart: folder, Further: definitions,
			Values: loader.MergeMaps(given, map[string]any{"trustDomain": trustDomain}),
		},
		fixed: "trustDomain", mends: []string{"CSIDriverMissing"},
		waits: []rollout.Workload{{Kind: rollout.StatefulSet, Name: charts.SPIRE + "-server"},
			{Kind: rollout.DaemonSet, Name: charts.SPIRE + "-agent"}},
	}, nil
}

// argoCDExtra is Argo CD for a role.
func argoCDExtra(ctx context.Context, w *with, role argocd.Role, namespace string) (e extra, err error) {
	set, err := manifests.Open(ctx, manifests.ArgoCD, w.manifests)
	if err != nil {
		return e, err
	}
	objects, err := argocd.StockObjects(set, role, namespace)
	if err != nil {
		return e, err
	}
	if role == argocd.Hub && w.has(withIstio) {
		labels, annotations := istiosetup.Injected(w.istio.place)
		if err := argocd.Inject(objects, labels, annotations); err != nil {
			return e, err
		}
	}
	chart, err := argocd.StockChart(set.Version, objects)
	if err != nil {
		return e, err
	}
	return extra{
		title: "Argo CD " + set.Version, file: withArgoCD, resource: cli.ApplicationResource, namespace: namespace,
		desired: release.Desired{
			Name: argocd.Stock, Further: chart, Values: map[string]any{"role": role.String()},
		},
		fixed: "role", waits: workloadsOf(objects),
		mends: []string{"NamespaceMissing", "ArgoCDMissing", "ControllerMissing", "ArgoCDTooOld"},
	}, nil
}

// workloadsOf returns those of the objects that have pods.
func workloadsOf(objects []*unstructured.Unstructured) (out []rollout.Workload) {
	for _, o := range objects {
		if slices.Contains([]string{rollout.Deployment, rollout.StatefulSet, rollout.DaemonSet}, o.GetKind()) {
			out = append(out, rollout.Workload{Kind: o.GetKind(), Name: o.GetName()})
		}
	}
	return out
}

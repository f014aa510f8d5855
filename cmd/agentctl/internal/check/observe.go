package check

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/rollout"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/mesh/spire"
)

// csiDriverName is that of SPIFFE's driver.
const csiDriverName = "csi.spiffe.io"

// observer reads one side.
type observer struct {
	side      Side
	conn      *cli.Connection
	namespace string
	config    *rest.Config
	client    kubernetes.Interface
	objects   dynamic.Interface
}

// UnreachableError says that an API server cannot be reached, and why.
type UnreachableError struct{ err error }

// Error implements error.
func (e *UnreachableError) Error() string { return e.err.Error() }

// Unwrap returns why.
func (e *UnreachableError) Unwrap() error { return e.err }

// Observe reads what there is on one side. It fails only when the API server cannot be reached, with an
// [UnreachableError], or the kubeconfig does not say where it is: what cannot be read beyond that is a fact.
func Observe(ctx context.Context, side Side, conn *cli.Connection, namespace string) (*Facts, error) {
	o, f, err := observeCluster(ctx, side, conn, namespace)
	if err != nil {
		return nil, err
	}
	o.installed(ctx, f)
	o.rights(ctx, f)
	o.pods(ctx, f)
	o.network(ctx, f)
	if side == Hub {
		o.hub(ctx, f)
	}
	f.Refused.is, f.Refused.err = o.refused(ctx, f)
	return f, nil
}

// ObserveBefore reads what has to be there before an install of one side, by which the chart is to have such
// values; nil for those that it has. It fails as [Observe] does.
func ObserveBefore(ctx context.Context, side Side, conn *cli.Connection, namespace string,
	values map[string]any) (*Facts, error) {
	o, f, err := observeCluster(ctx, side, conn, namespace)
	if err != nil {
		return nil, err
	}
	if f.Chart.Values = values; values == nil {
		o.release(f)
	}
	return f, nil
}

// observeCluster reads what a cluster has without us.
func observeCluster(ctx context.Context, side Side, conn *cli.Connection, namespace string) (*observer, *Facts, error) {
	o := &observer{side: side, conn: conn, namespace: namespace}
	var err error
	if o.config, err = conn.Config(); err != nil {
		return nil, nil, err
	}
	if o.client, err = kubernetes.NewForConfig(o.config); err != nil {
		return nil, nil, err
	}
	if o.objects, err = dynamic.NewForConfig(o.config); err != nil {
		return nil, nil, err
	}
	f := &Facts{Side: side, Namespace: namespace, Mounts: map[string]string{}}
	if f.Kubernetes.is, err = o.server(); err != nil {
		err = cli.ExplainAPI(err, "check the "+string(side), "Kubernetes cluster", o.config.Host)
		return nil, nil, &UnreachableError{err}
	}
	o.namespaceState(ctx, f)
	o.clock(ctx, f)
	o.argoCD(ctx, f)
	o.spire(ctx, f)
	return o, f, nil
}

// namespaceState reads how the namespace is.
func (o *observer) namespaceState(ctx context.Context, f *Facts) {
	is, err := o.client.CoreV1().Namespaces().Get(ctx, o.namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		f.NamespaceState.is = Missing
	case err == nil && is.DeletionTimestamp != nil:
		f.NamespaceState.is = Terminating
	default:
		f.NamespaceState.err = err
	}
}

func (o *observer) server() (string, error) {
	v, err := o.client.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	return v.GitVersion, nil
}

// clock reads the clock of the API server from the head of an answer.
func (o *observer) clock(ctx context.Context, f *Facts) {
	client, err := rest.HTTPClientFor(o.config)
	if err != nil {
		f.Clock.err = err
		return
	}
	url := strings.TrimSuffix(o.config.Host, "/") + "/version"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		f.Clock.err = err
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		f.Clock.err = err
		return
	}
	_ = resp.Body.Close() // nothing of it is read
	f.Now = time.Now()
	f.Clock.is, f.Clock.err = http.ParseTime(resp.Header.Get("Date"))
}

func (o *observer) argoCD(ctx context.Context, f *Facts) {
	f.Definitions.is, f.Definitions.err = cli.Serves(o.client.Discovery(), cli.ApplicationResource)
	f.ArgoCD.is, f.ArgoCD.err = argocd.Observe(ctx, o.client, o.namespace)
}

func (o *observer) spire(ctx context.Context, f *Facts) {
	_, err := o.client.StorageV1().CSIDrivers().Get(ctx, csiDriverName, metav1.GetOptions{})
	f.SPIRE.CSIDriver.is, f.SPIRE.CSIDriver.err = err == nil, unless(apierrors.IsNotFound, err)
	f.SPIRE.Served.is, f.SPIRE.Served.err = cli.Serves(o.client.Discovery(), spire.Resource(spire.ClusterSPIFFEIDKind))
	if !f.SPIRE.Served.is {
		return
	}
	f.SPIRE.IDs.is, f.SPIRE.IDs.err = o.list(ctx, spire.Resource(spire.ClusterSPIFFEIDKind), "")
	federations := spire.Resource(spire.ClusterFederatedTrustDomainKind)
	f.SPIRE.Federations.is, f.SPIRE.Federations.err = o.list(ctx, federations, "")
	if len(f.ours()) > 0 {
		f.SPIRE.Managers.is, f.SPIRE.Managers.err = o.managers(ctx)
	}
}

// unless returns err, unless it is one that is expected.
func unless(expected func(error) bool, err error) error {
	if expected(err) {
		return nil
	}
	return err
}

// list returns the objects of a resource, of a namespace unless that is empty. What the API server
// does not know has none.
func (o *observer) list(ctx context.Context, resource schema.GroupVersionResource,
	namespace string) (out []*unstructured.Unstructured, err error) {
	err = cli.EachOf(ctx, o.objects.Resource(resource).Namespace(namespace), func(obj *unstructured.Unstructured) error {
		out = append(out, obj)
		return nil
	})
	return out, unless(func(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }, err)
}

func (o *observer) installed(ctx context.Context, f *Facts) {
	name := o.side.chart()
	d, err := o.client.AppsV1().Deployments(o.namespace).Get(ctx, name, metav1.GetOptions{})
	if f.Deployment.err = unless(apierrors.IsNotFound, err); err == nil {
		f.Deployment.is = d
	}
	f.Config.is, f.Config.err = o.configuration(ctx)
	if folder, err := charts.Open(name); err == nil {
		if chart, err := release.LoadChart(folder); err == nil {
			f.Chart.Version = chart.Metadata.Version
		}
	}
	releases := o.release(f)
	if f.Differs.err = f.Release.err; f.Release.err != nil || f.Release.is.Revision == 0 {
		return // without a release nothing differs from it
	}
	f.Differs.is, f.Differs.err = releases.Differs(ctx, name, f.Release.is)
}

// release reads that of our chart, and returns what has read it; nil with the error of f.
func (o *observer) release(f *Facts) *release.Client {
	var releases *release.Client
	releases, f.Release.err = release.New(release.Config{Getter: o.conn.Getter(o.namespace), Namespace: o.namespace})
	if f.Release.err != nil {
		return nil
	}
	f.Release.is, f.Release.err = releases.Observe(o.side.chart())
	f.Chart.Values = f.Release.is.Values
	return releases
}

// configuration returns that of our program, as its ConfigMap has it; nil for none.
func (o *observer) configuration(ctx context.Context) (map[string]any, error) {
	cm, err := o.client.CoreV1().ConfigMaps(o.namespace).Get(ctx, o.side.chart(), metav1.GetOptions{})
	if err != nil {
		return nil, unless(apierrors.IsNotFound, err)
	}
	var out map[string]any
	err = yaml.Unmarshal([]byte(cm.Data[o.side.program()+".yaml"]), &out)
	return out, err
}

func (o *observer) pods(ctx context.Context, f *Facts) {
	list, err := o.client.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=" + o.side.chart() + ",!" + batchv1.JobNameLabel, // that is of a Job's
	})
	if err != nil {
		f.Pods.err = err
		return
	}
	f.Pods.is, f.Asked = list.Items, map[string]read[Readiness]{}
	answers := make([]read[Readiness], len(list.Items))
	var all sync.WaitGroup
	for i := range list.Items {
		pod := &list.Items[i]
		switch pod.Status.Phase { //nolint:exhaustive // one that has ended says nothing
		case corev1.PodPending:
			f.Mounts[pod.Name], _ = rollout.FailedMount(ctx, o.client, pod) // without it the pod is not ready, unexplained
		case corev1.PodRunning:
			all.Go(func() { answers[i].is, answers[i].err = o.ask(ctx, pod) })
		}
	}
	all.Wait()
	for i := range list.Items {
		if list.Items[i].Status.Phase == corev1.PodRunning {
			f.Asked[list.Items[i].Name] = answers[i]
		}
	}
}

func (o *observer) network(ctx context.Context, f *Facts) {
	policies, err := o.client.NetworkingV1().NetworkPolicies(o.namespace).List(ctx, metav1.ListOptions{})
	if f.Network.Policies.err = err; err == nil {
		f.Network.Policies.is = policies.Items
	}
	istio := schema.GroupVersionResource{Group: "security.istio.io", Version: "v1", Resource: "peerauthentications"}
	for _, namespace := range []string{o.namespace, "istio-system"} {
		list, err := o.list(ctx, istio, namespace)
		f.Network.PeerAuthentications.is = append(f.Network.PeerAuthentications.is, list...)
		if err != nil {
			f.Network.PeerAuthentications.err = err
		}
	}
}

func (o *observer) hub(ctx context.Context, f *Facts) {
	service, err := o.client.CoreV1().Services(o.namespace).Get(ctx, charts.Principal+"-stream", metav1.GetOptions{})
	if f.OfHub.Service.err = unless(apierrors.IsNotFound, err); err == nil {
		f.OfHub.Service.is = service
	}
	cm, err := o.client.CoreV1().ConfigMaps(o.namespace).Get(ctx, hubstate.ConfigMap, metav1.GetOptions{})
	if f.OfHub.Project.err = unless(apierrors.IsNotFound, err); err == nil {
		f.OfHub.Project.is = cm.Data[hubstate.DefaultProjectKey]
	}
	f.OfHub.Agents.is, f.OfHub.Agents.err = cli.ListAgents(ctx, o.conn, o.namespace)
	f.OfHub.Agents.err = unless(cli.IsCRDMissing, f.OfHub.Agents.err)
}

package check

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
	"github.com/argomesh/argomesh/identity/inspect"
)

// read is a fact, or why it is not known.
type read[T any] struct {
	is  T
	err error
}

// NamespaceState is how a namespace is. Its zero value is one that is there, as far as it may be read.
type NamespaceState int

// States of a namespace.
const (
	// Missing is one that is not there.
	Missing NamespaceState = iota + 1
	// Terminating is one that is being deleted.
	Terminating
)

// Facts are what there is on one side.
type Facts struct {
	Side      Side
	Namespace string
	// Now is the clock of this machine, and Clock that of the API server at the same time.
	Now   time.Time
	Clock read[time.Time]
	// Kubernetes is the version of the API server.
	Kubernetes read[string]
	// NamespaceState is how Namespace is.
	NamespaceState read[NamespaceState]
	// ArgoCD is what there is of it; Definitions says that its resources are there.
	ArgoCD      read[argocd.State]
	Definitions read[bool]
	// Release is that of our chart, and Differs are its objects that are not as it says.
	Release read[release.State]
	Differs read[[]string]
	// Chart is ours.
	Chart ChartFacts
	// Deployment is ours, nil for none, and Pods are its pods. Mounts says of a pod by name why a
	// volume is not mounted.
	Deployment read[*appsv1.Deployment]
	Pods       read[[]corev1.Pod]
	Mounts     map[string]string
	// Asked is what our programs say of themselves, by pod.
	Asked map[string]read[Readiness]
	SPIRE SPIREFacts
	OfHub HubFacts
	// Refused are Applications of a hub that their AppProjects do not admit, or what a hub has on a spoke that the
	// policy there does not.
	Refused read[[]Finding]
	// Config is the configuration of our program, nil for none.
	Config  read[map[string]any]
	Network NetworkFacts
}

// ChartFacts are what is known of our chart.
type ChartFacts struct {
	// Version is that of the chart in this agentctl.
	Version string
	// Values are those that it has there, or will have, without its own.
	Values map[string]any
	Rights RightsFacts
}

// RightsFacts are the rights that are missing.
type RightsFacts struct {
	// Of is whose they are: before an install this user's, else those of the service account of our program. Empty when
	// they were not asked for.
	Of string
	// Lacks are they, as people write them.
	Lacks read[[]string]
}

// NetworkFacts are what says who may connect to whom.
type NetworkFacts struct {
	Policies read[[]networkingv1.NetworkPolicy]
	// PeerAuthentications are Istio's, of our namespace and of the whole mesh; none without Istio.
	PeerAuthentications read[[]*unstructured.Unstructured]
}

// SPIREFacts are what there is of SPIRE.
type SPIREFacts struct {
	// CSIDriver says that SPIFFE's driver is registered.
	CSIDriver read[bool]
	// Served says that the resources of spire-controller-manager are there; IDs are the
	// ClusterSPIFFEIDs, and Federations the ClusterFederatedTrustDomains.
	Served      read[bool]
	IDs         read[[]*unstructured.Unstructured]
	Federations read[[]*unstructured.Unstructured]
	// Managers are those that look after them, as far as this cluster has them. They are not looked for where nothing
	// of ours is registered.
	Managers read[[]Manager]
}

// HubFacts are what there is on a hub alone.
type HubFacts struct {
	Agents  read[[]v1alpha1.Agent]
	Service read[*corev1.Service] // on which agents connect; nil for none
	Project read[string]          // default-project of ConfigMap argomesh-hub
}

// Readiness is what /readyz says, some numbers of /metrics, and /identity.
type Readiness struct {
	// Headerless is how many calls it refused since they had no client certificate in a header.
	Headerless float64 `json:"-"`
	// Cuts are how many connections of an agent ended without a word of either side, and CutAfter how old each was,
	// on the average, in seconds.
	Cuts, CutAfter float64 `json:"-"`
	// Identity is what it says of its SVID and of the bundles that it needs.
	Identity read[inspect.Held] `json:"-"`

	Ready  bool `json:"ready"`
	Checks []struct {
		Name   string `json:"name"`
		Ready  bool   `json:"ready"`
		Reason string `json:"reason"`
	} `json:"checks"`
}

// setting returns what the configuration says at a path; nil for nothing.
func (f *Facts) setting(path ...string) any {
	var at any = f.Config.is
	for _, key := range path {
		m, _ := at.(map[string]any)
		at = m[key]
	}
	return at
}

// text is setting as text.
func (f *Facts) text(path ...string) string {
	s, _ := f.setting(path...).(string)
	return s
}

// on is setting as a switch.
func (f *Facts) on(path ...string) bool {
	b, _ := f.setting(path...).(bool)
	return b
}

// list is setting as a list of texts.
func (f *Facts) list(path ...string) (out []string) {
	all, _ := f.setting(path...).([]any)
	for _, one := range all {
		if s, is := one.(string); is {
			out = append(out, s)
		}
	}
	return out
}

// Package istiosetup looks at the Istio of a cluster for an install: whether it is there, what it still has to be
// told for its proxies to have identities of SPIRE, where its gateway is, and which values of our charts follow.
// It changes nothing.
package istiosetup

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

const (
	// DefaultNamespace is that of istiod, unless it is elsewhere.
	DefaultNamespace = "istio-system"
	// defaultRevision is the revision of which istiod's objects have no suffix.
	defaultRevision = "default"
	// defaultTrustDomain is that of a mesh that is told none.
	defaultTrustDomain = "cluster.local"
	// spireTemplate is the template of the injector that gives a proxy the Workload API of SPIRE.
	spireTemplate = "spire"
	// spireDriver is the CSI driver that has that API in a pod.
	spireDriver = "csi.spiffe.io"
	// templatesKey names the templates by which a pod's proxy is injected.
	templatesKey = "inject.istio.io/templates"
	// injectKey is the label that has a proxy injected.
	injectKey = "sidecar.istio.io/inject"
)

// Place says which Istio of a cluster is meant. Its zero value is the default revision in DefaultNamespace.
type Place struct{ Namespace, Revision string }

// named is the name of an object of the revision.
func (p Place) named(base string) string {
	if p.Revision == "" || p.Revision == defaultRevision {
		return base
	}
	return base + "-" + p.Revision
}

// Istio is what istiod is told.
type Istio struct {
	// TrustDomain is that of the mesh, and Aliases are its aliases.
	TrustDomain string
	Aliases     []string
	// Template says that the injector has the template spire, with the CSI driver of SPIFFE.
	Template bool
}

// Observe reads what istiod is told. The error is as the API server has it: one for which apierrors.IsNotFound is
// true says that Istio is not there.
func Observe(ctx context.Context, client kubernetes.Interface, at Place) (Istio, error) {
	maps := client.CoreV1().ConfigMaps(cmp.Or(at.Namespace, DefaultNamespace))
	config, err := maps.Get(ctx, at.named("istio"), metav1.GetOptions{})
	if err != nil {
		return Istio{}, err
	}
	var mesh struct {
		TrustDomain        string   `json:"trustDomain"`
		TrustDomainAliases []string `json:"trustDomainAliases"`
	}
	if err := yaml.Unmarshal([]byte(config.Data["mesh"]), &mesh); err != nil {
		return Istio{}, fmt.Errorf("ConfigMap %s, key mesh: %w", config.Name, err)
	}
	out := Istio{TrustDomain: cmp.Or(mesh.TrustDomain, defaultTrustDomain), Aliases: mesh.TrustDomainAliases}
	injector, err := maps.Get(ctx, at.named("istio-sidecar-injector"), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return out, nil // without an injector there is no template
	}
	if err != nil {
		return Istio{}, err
	}
	var templates struct {
		Templates map[string]string `json:"templates"`
	}
	if err := yaml.Unmarshal([]byte(injector.Data["config"]), &templates); err != nil {
		return Istio{}, fmt.Errorf("ConfigMap %s, key config: %w", injector.Name, err)
	}
	out.Template = strings.Contains(templates.Templates[spireTemplate], spireDriver)
	return out, nil
}

// Lacks is what istiod has to be told for workloads of a trust domain to have identities of SPIRE, a sentence each.
func (i Istio) Lacks(trustDomain string) (out []string) {
	if i.TrustDomain != trustDomain {
		out = append(out, fmt.Sprintf("the trust domain of the mesh is %s and not %s (meshConfig.trustDomain)", i.TrustDomain,
			trustDomain))
	}
	if !i.Template {
		out = append(out, fmt.Sprintf("the injector has no template %s with the CSI driver %s"+
			" (sidecarInjectorWebhook.templates.%s)", spireTemplate, spireDriver, spireTemplate))
	}
	return out
}

// Gateway is a deployment of Istio's proxy that others reach from outside.
type Gateway struct {
	Namespace, Name, ServiceAccount string
	// Labels select its pods.
	Labels map[string]string
	// SPIRE says that its identity comes from SPIRE.
	SPIRE bool
}

// String is its name as --istio-gateway has it.
func (g Gateway) String() string { return g.Namespace + "/" + g.Name }

// Gateways returns those of a cluster, by name.
func Gateways(ctx context.Context, client kubernetes.Interface) ([]Gateway, error) {
	list, err := client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []Gateway
	for i := range list.Items {
		if d := &list.Items[i]; isGateway(d.Spec.Template) {
			out = append(out, Gateway{
				Namespace: d.Namespace, Name: d.Name, ServiceAccount: cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default"),
				Labels: selectorOf(d), SPIRE: slices.Contains(templatesOf(d.Spec.Template), spireTemplate),
			})
		}
	}
	slices.SortFunc(out, func(a, b Gateway) int { return cmp.Compare(a.String(), b.String()) })
	return out, nil
}

func selectorOf(d *appsv1.Deployment) map[string]string {
	if d.Spec.Selector == nil {
		return nil
	}
	return maps.Clone(d.Spec.Selector.MatchLabels)
}

// isGateway reports whether a pod is a proxy of its own: one that is injected as a gateway, or that was installed
// with istiod.
func isGateway(pod corev1.PodTemplateSpec) bool {
	if slices.Contains(templatesOf(pod), "gateway") {
		return true
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == "istio-proxy" && slices.Contains(c.Args, "router") {
			return true
		}
	}
	return false
}

func templatesOf(pod corev1.PodTemplateSpec) []string {
	text := strings.ReplaceAll(pod.Annotations[templatesKey], " ", "")
	return strings.Split(text, ",")
}

// Choose returns the gateway of a name, NAMESPACE/NAME, or the only one for an empty name.
func Choose(all []Gateway, name string) (Gateway, error) {
	var names []string
	for _, g := range all {
		if g.String() == name || name == "" && len(all) == 1 {
			return g, nil
		}
		names = append(names, g.String())
	}
	switch {
	case len(all) == 0:
		return Gateway{}, fmt.Errorf("there is no gateway of Istio (a Deployment with the annotation %s: gateway): install one,"+
			" with gateway,%s there", templatesKey, spireTemplate)
	case name == "":
		return Gateway{}, fmt.Errorf("--istio-gateway is missing: which of %s", strings.Join(names, ", "))
	}
	return Gateway{}, fmt.Errorf("--istio-gateway %s: there is no such gateway, but %s", name, strings.Join(names, ", "))
}

// InMesh reports whether a pod of a template gets a proxy with an identity of SPIRE.
func InMesh(pod corev1.PodTemplateSpec) bool {
	return pod.Labels[injectKey] == "true" && slices.Contains(templatesOf(pod), spireTemplate)
}

// Injected are the labels and annotations by which a pod gets a proxy with an identity of SPIRE.
func Injected(at Place) (labels, annotations map[string]string) {
	labels = map[string]string{injectKey: "true"}
	if at.Revision != "" && at.Revision != defaultRevision {
		labels["istio.io/rev"] = at.Revision
	}
	return labels, map[string]string{templatesKey: "sidecar," + spireTemplate}
}

package spire

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/identity"
)

// GroupVersion is that of the objects of spire-controller-manager 0.6. All of them
// are cluster-scoped.
var GroupVersion = schema.GroupVersion{Group: "spire.spiffe.io", Version: "v1alpha1"}

// The kinds of spire-controller-manager, and how its API calls them.
const (
	ClusterSPIFFEIDKind              = "ClusterSPIFFEID"
	ClusterStaticEntryKind           = "ClusterStaticEntry"
	ClusterFederatedTrustDomainKind  = "ClusterFederatedTrustDomain"
	clusterSPIFFEIDs                 = "clusterspiffeids"
	clusterStaticEntries             = "clusterstaticentries"
	clusterFederatedTrustDomains     = "clusterfederatedtrustdomains"
	namespaceNameLabel               = "kubernetes.io/metadata.name"
	maxObjectNameBytes               = 253
	federationNamePrefix             = idPrefix + "federation."
	bundleEndpointProfileHTTPSWeb    = "https_web"
	bundleEndpointProfileHTTPSSPIFFE = "https_spiffe"
)

// Labels of the objects that we make. With both an object is ours.
const (
	// ManagedByLabel has the value ManagedBy.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "agentctl"
	// RegistrationLabel has the name of the registration, and FederationLabel, on a
	// ClusterFederatedTrustDomain, is "true".
	RegistrationLabel = "argomesh.io/registration"
	FederationLabel   = "argomesh.io/federation"
)

// Resource returns the resource under which the API serves a kind of ours; the zero
// one for any other kind.
func Resource(kind string) schema.GroupVersionResource {
	switch kind {
	case ClusterSPIFFEIDKind:
		return GroupVersion.WithResource(clusterSPIFFEIDs)
	case ClusterStaticEntryKind:
		return GroupVersion.WithResource(clusterStaticEntries)
	case ClusterFederatedTrustDomainKind:
		return GroupVersion.WithResource(clusterFederatedTrustDomains)
	}
	return schema.GroupVersionResource{}
}

// ClusterSPIFFEID gives the pods it selects a SPIFFE ID.
type ClusterSPIFFEID struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec ClusterSPIFFEIDSpec `json:"spec"`
}

// ClusterSPIFFEIDSpec has the fields of spire-controller-manager 0.6.6 that we write.
// TTLs are durations as Go writes them.
type ClusterSPIFFEIDSpec struct {
	// SPIFFEIDTemplate is a Go text template; a plain SPIFFE ID stands for itself.
	SPIFFEIDTemplate string `json:"spiffeIDTemplate"`
	TTL              string `json:"ttl,omitempty"`
	JWTTTL           string `json:"jwtTtl,omitempty"`
	// DNSNameTemplates and WorkloadSelectorTemplates are templates too. The selectors
	// come beside the pod's own.
	DNSNameTemplates          []string              `json:"dnsNameTemplates,omitempty"`
	WorkloadSelectorTemplates []string              `json:"workloadSelectorTemplates,omitempty"`
	FederatesWith             []string              `json:"federatesWith,omitempty"`
	NamespaceSelector         *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	PodSelector               *metav1.LabelSelector `json:"podSelector,omitempty"`
	Admin                     bool                  `json:"admin,omitempty"`
	ClassName                 string                `json:"className,omitempty"`
	Hint                      string                `json:"hint,omitempty"`
}

// ClusterStaticEntry is one entry of the SPIRE server.
type ClusterStaticEntry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec ClusterStaticEntrySpec `json:"spec"`
}

// ClusterStaticEntrySpec has the fields of spire-controller-manager 0.6.6 that we
// write.
type ClusterStaticEntrySpec struct {
	SPIFFEID      string   `json:"spiffeID"`
	ParentID      string   `json:"parentID"`
	Selectors     []string `json:"selectors"`
	FederatesWith []string `json:"federatesWith,omitempty"`
	X509SVIDTTL   string   `json:"x509SVIDTTL,omitempty"`
	JWTSVIDTTL    string   `json:"jwtSVIDTTL,omitempty"`
	DNSNames      []string `json:"dnsNames,omitempty"`
	Hint          string   `json:"hint,omitempty"`
	Admin         bool     `json:"admin,omitempty"`
	ClassName     string   `json:"className,omitempty"`
}

// ClusterFederatedTrustDomain has the SPIRE server poll the bundle of another trust
// domain.
type ClusterFederatedTrustDomain struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec ClusterFederatedTrustDomainSpec `json:"spec"`
}

// ClusterFederatedTrustDomainSpec has all fields of spire-controller-manager 0.6.6.
type ClusterFederatedTrustDomainSpec struct {
	TrustDomain           string                `json:"trustDomain"`
	BundleEndpointURL     string                `json:"bundleEndpointURL"`
	BundleEndpointProfile BundleEndpointProfile `json:"bundleEndpointProfile"`
	// TrustDomainBundle is the first bundle, a SPIFFE bundle document. Later changes
	// of it do not reach the server.
	TrustDomainBundle string `json:"trustDomainBundle,omitempty"`
	ClassName         string `json:"className,omitempty"`
}

// BundleEndpointProfile says how a bundle endpoint proves who it is.
type BundleEndpointProfile struct {
	// Type is https_web or https_spiffe.
	Type string `json:"type"`
	// EndpointSPIFFEID is for https_spiffe only.
	EndpointSPIFFEID string `json:"endpointSPIFFEID,omitempty"`
}

// Objects returns what registers r with spire-controller-manager, by name: a
// ClusterStaticEntry for each SPIFFE ID and parent, or, without parents, a
// ClusterSPIFFEID for each SPIFFE ID. The error wraps [ErrInvalid].
func (r Registration) Objects() ([]*unstructured.Unstructured, error) {
	if len(r.ParentIDs) > 0 {
		return r.staticEntries()
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	if r.Pods.IsZero() {
		return nil, fmt.Errorf("registration %s names no pods and no parent: one of them says where the workload runs: %w",
			r.Name, ErrInvalid)
	}
	var out []*unstructured.Unstructured
	for _, id := range r.IDs {
		obj, err := r.clusterSPIFFEID(id)
		if err != nil {
			return nil, err
		}
		out = append(out, obj)
	}
	return byName(out), nil
}

func (r Registration) staticEntries() ([]*unstructured.Unstructured, error) {
	entries, err := r.Entries()
	if err != nil {
		return nil, err
	}
	out := make([]*unstructured.Unstructured, len(entries))
	for i, e := range entries {
		out[i], err = toObject(&ClusterStaticEntry{
			TypeMeta:   typeMeta(ClusterStaticEntryKind),
			ObjectMeta: r.meta(e.ID),
			Spec: ClusterStaticEntrySpec{
				SPIFFEID: e.SPIFFEID.String(), ParentID: e.ParentID.String(), Selectors: texts(e.Selectors),
				FederatesWith: texts(e.FederatesWith), X509SVIDTTL: seconds(e.X509TTL), JWTSVIDTTL: seconds(e.JWTTTL),
				DNSNames: e.DNSNames, Hint: e.Hint, Admin: e.Admin, ClassName: r.ClassName,
			},
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (r Registration) clusterSPIFFEID(id spiffeid.ID) (*unstructured.Unstructured, error) {
	// What an entry may not say, an object may not say either; some agent will be the
	// parent.
	parent, err := spiffeid.FromPath(id.TrustDomain(), "/spire/agent/some")
	if err != nil {
		return nil, fmt.Errorf("registration %s: %w", r.Name, err)
	}
	e := Entry{
		ID: EntryID(r.Name, id, spiffeid.ID{}), SPIFFEID: id, ParentID: parent,
		Selectors: append(r.Pods.selectors(), r.Selectors...), X509TTL: r.X509TTL, JWTTTL: r.JWTTTL,
		FederatesWith: r.FederatesWith, DNSNames: r.DNSNames, Hint: r.Hint, Admin: r.Admin,
	}.Canonical()
	if err := e.Check(); err != nil {
		return nil, err
	}
	spec := ClusterSPIFFEIDSpec{
		SPIFFEIDTemplate: literal(id.String()), TTL: seconds(r.X509TTL), JWTTTL: seconds(r.JWTTTL),
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{namespaceNameLabel: r.Pods.Namespace}},
		FederatesWith:     texts(e.FederatesWith), Admin: r.Admin, ClassName: r.ClassName, Hint: r.Hint,
	}
	for _, name := range r.DNSNames {
		spec.DNSNameTemplates = append(spec.DNSNameTemplates, literal(name))
	}
	if len(r.Pods.Labels) > 0 {
		spec.PodSelector = &metav1.LabelSelector{MatchLabels: maps.Clone(r.Pods.Labels)}
	}
	// The pod's namespace and labels are selected above; its service account can only
	// be asked for by a selector of the entry.
	own := r.Selectors
	if r.Pods.ServiceAccount != "" {
		own = append([]Selector{{Type: "k8s", Value: "sa:" + r.Pods.ServiceAccount}}, own...)
	}
	for _, s := range (Entry{Selectors: own}).Canonical().Selectors {
		spec.WorkloadSelectorTemplates = append(spec.WorkloadSelectorTemplates, literal(s.String()))
	}
	return toObject(&ClusterSPIFFEID{TypeMeta: typeMeta(ClusterSPIFFEIDKind), ObjectMeta: r.meta(e.ID), Spec: spec})
}

func (r Registration) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name,
		Labels: map[string]string{ManagedByLabel: ManagedBy, RegistrationLabel: r.Name.String()}}
}

// literal returns a text template that renders to s.
func literal(s string) string { return strings.ReplaceAll(s, "{{", `{{"{{"}}`) }

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: kind}
}

// toObject returns obj as it is sent and printed: without the empty creation time of
// the Go type.
func toObject(obj any) (*unstructured.Unstructured, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	unstructured.RemoveNestedField(m, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: m}, nil
}

func byName(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	slices.SortFunc(objects,
		func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return slices.CompactFunc(objects, func(a, b *unstructured.Unstructured) bool { return a.GetName() == b.GetName() })
}

func texts[T fmt.Stringer](items []T) []string {
	var out []string
	for _, item := range items {
		out = append(out, item.String())
	}
	return out
}

// RegistrationOf returns the registration that obj was made for, and false when obj
// is not ours.
func RegistrationOf(obj *unstructured.Unstructured) (identity.AgentName, bool) {
	labels := obj.GetLabels()
	if labels[ManagedByLabel] != ManagedBy {
		return identity.AgentName{}, false
	}
	name, err := identity.ParseAgentName(labels[RegistrationLabel])
	return name, err == nil
}

// IsFederation reports whether obj is a ClusterFederatedTrustDomain that we made.
func IsFederation(obj *unstructured.Unstructured) bool {
	labels := obj.GetLabels()
	return obj.GetKind() == ClusterFederatedTrustDomainKind && labels[ManagedByLabel] == ManagedBy &&
		labels[FederationLabel] == "true"
}

// durations are the fields of a spec that hold a duration, which may be written in
// several ways.
var durations = []string{"spec.ttl", "spec.jwtTtl", "spec.x509SVIDTTL", "spec.jwtSVIDTTL"}

// sets are the lists of a spec whose order means nothing.
var sets = []string{"spec.federatesWith", "spec.selectors", "spec.workloadSelectorTemplates"}

func canonicalLeaf(path string, value any) string {
	text := fmt.Sprint(value)
	if slices.Contains(durations, path) {
		if d, err := time.ParseDuration(text); err == nil {
			return seconds(d)
		}
	}
	return text
}

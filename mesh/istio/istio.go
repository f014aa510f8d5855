// Package istio turns a [mesh.Snapshot] into the objects of Istio: who may connect to
// which port of a principal's pod, by exact principals, and how agents' connections get
// there. It uses Istio's typed APIs and is pure: no client, no file, no clock.
//
// [Render] makes what the hub needs, [RenderSpoke] what one spoke needs, [Settings] what
// Istio's own installation must say. Everything is denied that is not asked for. What
// Istio would accept and then not do, or do more widely than it reads, is refused here:
// see [ErrRefused].
//
// It leaves to others where a snapshot comes from, the Kubernetes Service and pods of
// the principal, and the application of what it renders.
//
//	objects, err := istio.Render(snapshot, istio.Config{Namespace: "argocd", Gateway: gateway})
//	err = istio.WriteYAML(os.Stdout, objects)
package istio

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argomesh/argomesh/mesh"
)

// ErrRefused is wrapped by errors about what Istio cannot keep, or would understand
// otherwise than it is meant.
var ErrRefused = errors.New("istio cannot keep this")

// DefaultName is what the principal's Service and objects are called unless told
// otherwise.
const DefaultName = "argomesh-principal"

// Object is a typed Kubernetes object.
type Object interface {
	metav1.Object
	runtime.Object
}

// Config says where in the hub's Istio the principal is.
type Config struct {
	// Namespace is the principal's. Required.
	Namespace string
	// Name is that of the principal's Kubernetes Service for Argo CD, and begins the names
	// of the objects. Empty means DefaultName.
	Name string
	// StreamService is the name of its Kubernetes Service for agents, whose port is the
	// stream's. It may be Name. Empty means Name and "-stream", as in the Helm chart.
	StreamService string
	// Labels select the principal's pods. None means app.kubernetes.io/name with the
	// value Name.
	Labels map[string]string
	// ClusterDomain ends the names of Kubernetes Services. Empty means cluster.local.
	ClusterDomain string
	// Gateway is required unless agents connect directly.
	Gateway Gateway
	// TrustDomainAliases are those of Istio's meshConfig, which may change what a
	// principal means.
	TrustDomainAliases []spiffeid.TrustDomain
}

// Gateway is the gateway workload that agents' connections pass.
type Gateway struct {
	Namespace string
	// Labels select its pods.
	Labels map[string]string
	// CredentialName names the Secret with its certificate. It is for method
	// spiffe-jwt only: with method header the gateway shows its SVID.
	CredentialName string
}

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, DefaultName)
	c.StreamService = cmp.Or(c.StreamService, nameOf(c.Name, streamSuffix))
	c.ClusterDomain = cmp.Or(c.ClusterDomain, "cluster.local")
	if len(c.Labels) == 0 {
		c.Labels = map[string]string{"app.kubernetes.io/name": c.Name}
	}
	return c
}

// maxNameBytes leaves room for what is put behind Config.Name in a DNS label.
const maxNameBytes = 40

// check reports every problem of c that has its defaults.
func (c Config) check(r mesh.Reach, self spiffeid.ID) error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("istio: "+format+": %w", append(args, ErrRefused)...))
	}
	if len(validation.IsDNS1123Label(c.Namespace)) > 0 {
		bad("namespace %q cannot be one: give that of the principal", c.Namespace)
	}
	if len(validation.IsDNS1123Label(c.Name)) > 0 || len(c.Name) > maxNameBytes {
		bad("name %q is not a DNS label of at most %d bytes", c.Name, maxNameBytes)
	}
	if len(validation.IsDNS1123Label(c.StreamService)) > 0 {
		bad("stream service %q is not a DNS label", c.StreamService)
	}
	if len(validation.IsDNS1123Subdomain(c.ClusterDomain)) > 0 {
		bad("cluster domain %q is not a DNS name", c.ClusterDomain)
	}
	if host := r.Stream.Hub.Host; r.Stream.Exposure != mesh.ExposureDirect && !strings.Contains(host, ".") {
		bad("the hub's host %q has no dot, so Istio takes it for a Service of the principal's namespace: give the whole name that agents use", host)
	}
	problems = append(problems, checkLabels("the principal's pods", c.Labels))
	if namespace, ok := account(self); !ok || namespace != c.Namespace {
		bad("the principal's SPIFFE ID %s is not spiffe://<trust domain>/ns/%s/sa/<service account>: Istio knows a workload by its service account only", self, c.Namespace)
	}
	if r.Stream.Exposure != mesh.ExposureDirect {
		problems = append(problems, checkLabels("the gateway's pods", c.Gateway.Labels))
		if namespace, ok := account(r.Stream.Gateway); !ok || namespace != c.Gateway.Namespace {
			bad("the gateway's SPIFFE ID %s is not spiffe://<trust domain>/ns/%s/sa/<service account>, with the gateway's namespace", r.Stream.Gateway, c.Gateway.Namespace)
		}
	}
	if needed := shows(r.Stream) == certificateOfSecret; needed != (c.Gateway.CredentialName != "") {
		if needed {
			bad("the gateway has no certificate: with method %s it shows that of a Secret, which the gateway's credential name says", r.Stream.Method)
		} else {
			bad("the gateway's credential %q is for method spiffe-jwt: leave it out", c.Gateway.CredentialName)
		}
	}
	return errors.Join(append(problems, c.checkPrincipals(r, self))...)
}

func checkLabels(whose string, labels map[string]string) error {
	if len(labels) == 0 {
		return fmt.Errorf("istio: no labels select %s, so all of the namespace would be meant: give their labels: %w", whose,
			ErrRefused)
	}
	for key, value := range labels {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return fmt.Errorf("istio: %s: %q is not a label of pods: %w", whose, key+"="+value, ErrRefused)
		}
	}
	return nil
}

// host is the whole name of a Kubernetes Service of the principal.
func (c Config) host(service string) string {
	return service + "." + c.Namespace + ".svc." + c.ClusterDomain
}

// Render returns the objects of the hub, sorted by kind, namespace and name. The error
// names every problem: it is that of [mesh.Check], or wraps [ErrRefused]. A snapshot
// without Reach gives none.
func Render(s mesh.Snapshot, cfg Config) ([]Object, error) {
	if s.Reach == nil {
		return nil, nil
	}
	h, err := newHub(s, cfg)
	if err != nil {
		return nil, err
	}
	var out []Object
	out = append(out, h.peerAuthentication(), h.sidecar())
	out = append(out, h.destinationRules()...)
	out = append(out, h.policies()...)
	out = append(out, h.gateway()...)
	if err := checkSizes(out); err != nil {
		return nil, err
	}
	return sorted(out), nil
}

// hub is what is rendered for a hub, checked.
type hub struct {
	self       spiffeid.ID
	reach      mesh.Reach
	policy     mesh.Policy
	terminator mesh.TLSTerminator
	cfg        Config
	ports      []port
}

func newHub(s mesh.Snapshot, cfg Config) (*hub, error) {
	cfg = cfg.withDefaults()
	if err := mesh.Check(s); err != nil {
		return nil, err
	}
	if err := cfg.check(*s.Reach, s.Self); err != nil {
		return nil, err
	}
	stream := s.Reach.Stream
	policy, err := mesh.Enforce(stream.Exposure, stream.Method, stream.Policy)
	if err != nil {
		return nil, err
	}
	h := &hub{
		self: s.Self, reach: *s.Reach, policy: policy, cfg: cfg,
		terminator: mesh.TLSTerminatorOf(stream.Exposure, stream.Method),
	}
	if h.ports, err = h.allPorts(); err != nil {
		return nil, err
	}
	return h, nil
}

// readsStream reports whether the proxy of the principal's pod reads the agents'
// requests, and not bytes.
func (h *hub) readsStream() bool { return h.terminator != mesh.TerminatorPrincipal }

// inMesh reports whether what reaches the stream's port comes by the mesh's mutual TLS:
// from the gateway, or from agents whose TLS the proxy of the pod ends.
func (h *hub) inMesh() bool {
	return h.reach.Stream.Exposure != mesh.ExposureDirect || h.terminator == mesh.TerminatorPod
}

// meta is the metadata of an object of the principal's namespace; suffix may be empty.
func (h *hub) meta(suffix string) metav1.ObjectMeta {
	return meta(h.cfg.Namespace, nameOf(h.cfg.Name, suffix))
}

// streamSuffix ends the names of what is about agents.
const streamSuffix = "stream"

func nameOf(name, suffix string) string {
	if suffix == "" {
		return name
	}
	return name + "-" + suffix
}

// Labels of all objects.
const (
	partOfLabel    = "app.kubernetes.io/part-of"
	managedByLabel = "app.kubernetes.io/managed-by"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels: map[string]string{partOfLabel: "argomesh", managedByLabel: "agentctl"},
	}
}

func sorted(objects []Object) []Object {
	slices.SortFunc(objects, func(a, b Object) int {
		return cmp.Or(
			strings.Compare(a.GetObjectKind().GroupVersionKind().Kind, b.GetObjectKind().GroupVersionKind().Kind),
			strings.Compare(a.GetNamespace(), b.GetNamespace()),
			strings.Compare(a.GetName(), b.GetName()),
		)
	})
	return objects
}

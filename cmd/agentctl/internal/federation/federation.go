// Package federation has the SPIREs of two clusters trust each other's trust domain, by the bundles that
// each of them publishes in its cluster, as the chart argomesh-spire has it.
package federation

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/chartvalues"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
)

// Namespace is that of the chart argomesh-spire.
const Namespace = "spire-system"

const (
	// configMap has the bundle under a key, and the Service of the same name is its endpoint.
	configMap = "argomesh-spire-bundle"
	bundleKey = "bundle.spiffe"
	// server is the StatefulSet of the chart.
	server = "argomesh-spire-server"
	// publishTimeout is how long one that has started may take to write its bundle, and pollInterval how often that
	// is looked for.
	publishTimeout = 30 * time.Second
	pollInterval   = 500 * time.Millisecond
)

// notPolled ends the host of an endpoint that there is none of, since the object has to name one. No name
// below it is ever resolved (RFC 6761, section 6.4).
const notPolled = ".invalid"

// Side is a cluster with a SPIRE.
type Side struct {
	// Name is what people call it, such as hub.
	Name        string
	TrustDomain spiffeid.TrustDomain
	Client      kubernetes.Interface
	Objects     *registration.Objects
	// Endpoint is the https URL at which the other side reaches the bundle endpoint of this SPIRE. Empty
	// means the load balancer of its Service, if that has one.
	Endpoint string
	// ClassName is that of the spire-controller-manager here. Empty means none.
	ClassName string
}

// Plan is what has two sides trust each other. The zero value is nothing.
type Plan struct{ directions []direction }

// direction is one side that trusts the other.
type direction struct {
	objects *registration.Objects
	changes []diff.Change[*unstructured.Unstructured]
	note    string // what a person has to know; empty for nothing
}

// New plans for both directions, and has the API servers try what they would be asked. A federation that is
// there stays, but for the endpoint if that was named; whose bundle is not published is noted.
func New(ctx context.Context, a, b Side) (Plan, error) {
	var p Plan
	for _, pair := range [][2]Side{{a, b}, {b, a}} {
		w, err := newDirection(ctx, pair[0], pair[1])
		if err != nil {
			return Plan{}, err
		}
		p.directions = append(p.directions, w)
	}
	return p, nil
}

// Do carries the plan out, or says what it would do.
func (p Plan) Do(ctx context.Context, out io.Writer, dryRun bool) error {
	for _, w := range p.directions {
		err := registration.CarryOut(out, w.changes, dryRun, func(done func(diff.Change[*unstructured.Unstructured])) error {
			return w.objects.Apply(ctx, w.changes, dryRun, done)
		})
		if err != nil {
			return err
		}
		if w.note != "" {
			if _, err := fmt.Fprintln(out, cli.CleanText(w.note)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Will says, before it is done, what Do will do.
func (p Plan) Will() (lines []string) {
	for _, w := range p.directions {
		lines = append(lines, registration.Will(w.changes)...)
	}
	return lines
}

// newDirection plans that the SPIRE here trusts the trust domain of the other side.
func newDirection(ctx context.Context, here, other Side) (direction, error) {
	w := direction{objects: here.Objects}
	observed, err := here.Objects.List(ctx, spire.ClusterFederatedTrustDomainKind, "")
	if err != nil {
		return w, err
	}
	endpoint := cmp.Or(other.Endpoint, loadBalancer(ctx, other.Client))
	desired := find(observed, other.TrustDomain)
	switch {
	case desired == nil:
		var note string
		if desired, note, err = newObject(ctx, here, other, endpoint); err != nil || note != "" {
			w.note = note
			return w, err
		}
	case !spire.IsFederation(desired):
		return w, nil // another writer made it, who knows
	default:
		if desired, err = moved(desired, other.Endpoint, endpoint); err != nil {
			return w, err
		}
	}
	w.changes = spire.PlanFederationObjects(other.TrustDomain, desired, observed)
	w.note = needsHelp(desired, here, other)
	return w, here.Objects.Apply(ctx, w.changes, true, func(diff.Change[*unstructured.Unstructured]) {})
}

// find returns the object for a trust domain; nil if there is none.
func find(observed []*unstructured.Unstructured, td spiffeid.TrustDomain) *unstructured.Unstructured {
	for _, obj := range observed {
		if named, _, _ := unstructured.NestedString(obj.Object, "spec", "trustDomain"); named == td.Name() {
			return obj
		}
	}
	return nil
}

// newObject returns the object that is not there yet. note says what a person has to do where it cannot be made.
func newObject(ctx context.Context, here, other Side,
	endpoint string) (obj *unstructured.Unstructured, note string, err error) {
	bundle, why, err := published(ctx, other)
	if err != nil {
		return nil, "", err
	}
	if why != "" {
		return nil, fmt.Sprintf("the SPIRE of the %s does not trust %s yet: %s; have it do by \"agentctl identity federate %s\" there",
			here.Name, other.TrustDomain, why, other.TrustDomain), nil
	}
	f := spire.Federation{
		TrustDomain: other.TrustDomain, EndpointURL: cmp.Or(endpoint, "https://"+hostLabel(other.TrustDomain)+notPolled),
		EndpointID: spire.ServerID(other.TrustDomain), Bundle: bundle, ClassName: here.ClassName,
	}
	obj, err = f.Object()
	return obj, "", err
}

// OneSided says what a person does where one side alone is at hand, called here, so that its SPIRE trusts the trust
// domain of the other; "" where it does already.
func OneSided(ctx context.Context, objects *registration.Objects, here, other string,
	td spiffeid.TrustDomain) (string, error) {
	observed, err := objects.List(ctx, spire.ClusterFederatedTrustDomainKind, "")
	if err != nil || find(observed, td) != nil {
		return "", err
	}
	return fmt.Sprintf("the SPIRE of the %s does not trust %s yet, the trust domain of the %s, which is not at hand:"+
		" have it do by \"agentctl identity federate %s --bundle-endpoint-url URL --bundle FILE\" there, with the"+
		" bundle that \"spire-server bundle show -format spiffe\" prints on the %s", here, td, other, td, other), nil
}

// hostLabel is a trust domain as a part of a host.
func hostLabel(td spiffeid.TrustDomain) string {
	return strings.Trim(strings.ReplaceAll(td.Name(), "_", "-"), "-.")
}

// moved returns an object that is there with the endpoint that was named, or that is known where none was.
func moved(there *unstructured.Unstructured, named, known string) (*unstructured.Unstructured, error) {
	if named == "" && (known == "" || !isNotPolled(there)) {
		return there, nil
	}
	next := there.DeepCopy()
	return next, unstructured.SetNestedField(next.Object, known, "spec", "bundleEndpointURL")
}

func isNotPolled(obj *unstructured.Unstructured) bool {
	text, _, _ := unstructured.NestedString(obj.Object, "spec", "bundleEndpointURL")
	u, err := url.Parse(text)
	return err == nil && strings.HasSuffix(u.Hostname(), notPolled)
}

// published returns the bundle of a side. why says what there is in place of one.
func published(ctx context.Context, of Side) (bundle *spiffebundle.Bundle, why string, err error) {
	at := fmt.Sprintf("ConfigMap %s of namespace %s of the %s", configMap, Namespace, of.Name)
	found, err := await(ctx, of.Client)
	switch {
	case apierrors.IsNotFound(err):
		return nil, "there is no bundle in " + at, nil
	case apierrors.IsForbidden(err):
		return nil, "you may not read " + at, nil
	case err != nil:
		return nil, "", of.Objects.Explain(err, "get "+at)
	}
	text := found.Data[bundleKey]
	if text == "" {
		return nil, fmt.Sprintf("the SPIRE there has written no %s into %s so far", bundleKey, at), nil
	}
	if bundle, err = spire.ParseBundle(of.TrustDomain, []byte(text)); err != nil {
		return nil, "", fmt.Errorf("%s: %w", at, err)
	}
	if len(bundle.X509Authorities()) == 0 {
		return nil, "the bundle has no X.509 key in " + at, nil
	}
	return bundle, "", nil
}

// await returns the ConfigMap with the bundle. Where the SPIRE of the chart has only just started it waits until
// that has written it.
func await(ctx context.Context, client kubernetes.Interface) (found *corev1.ConfigMap, err error) {
	maps := client.CoreV1().ConfigMaps(Namespace)
	if _, none := client.AppsV1().StatefulSets(Namespace).Get(ctx, server, metav1.GetOptions{}); none != nil {
		return maps.Get(ctx, configMap, metav1.GetOptions{})
	}
	hasBundle := func(context.Context) (bool, error) { // not that of the poll, which would cut the last question off
		found, err = maps.Get(ctx, configMap, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err != nil || found.Data[bundleKey] != "", err
	}
	late := wait.PollUntilContextTimeout(ctx, pollInterval, publishTimeout, true, hasBundle)
	if ctx.Err() != nil {
		return nil, late
	}
	return found, err // what there is by now, if it is late
}

// needsHelp says that one side cannot poll the other, and until when it can do without.
func needsHelp(obj *unstructured.Unstructured, here, other Side) string {
	if !isNotPolled(obj) {
		return ""
	}
	text, _, _ := unstructured.NestedString(obj.Object, "spec", "trustDomainBundle")
	bundle, err := spire.ParseBundle(other.TrustDomain, []byte(text))
	if err != nil {
		return ""
	}
	var until time.Time
	for _, authority := range bundle.X509Authorities() {
		if until.IsZero() || authority.NotAfter.Before(until) {
			until = authority.NotAfter
		}
	}
	return fmt.Sprintf("the SPIRE of the %s cannot poll the bundle of %s, whose endpoint has no address: the one it has now is of"+
		" no use after %s. Name the endpoint by --%s-bundle-endpoint, or bring a newer bundle before that by"+
		" \"agentctl identity federate %s --push-bundle\"",
		here.Name, other.TrustDomain, until.UTC().Format(time.DateOnly), other.Name, other.TrustDomain)
}

// loadBalancer returns the endpoint that others reach by the Service of the chart; "" if it has none.
func loadBalancer(ctx context.Context, client kubernetes.Interface) string {
	address := chartvalues.Balancer(ctx, client, Namespace, configMap)
	if address == "" {
		return ""
	}
	return "https://" + address
}

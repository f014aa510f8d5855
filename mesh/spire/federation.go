package spire

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/diff"
)

// Federation has a SPIRE server trust another trust domain: it polls that one's
// bundle, and hands it to workloads whose entries federate with it. It is one-way; the
// partner needs one as well.
type Federation struct {
	TrustDomain spiffeid.TrustDomain
	// EndpointURL is where the partner serves its bundle: https, without user.
	EndpointURL string
	// EndpointID is the SPIFFE ID of the endpoint (profile https_spiffe). Zero means
	// that it has a certificate of the Web PKI (profile https_web).
	EndpointID spiffeid.ID
	// Bundle is the first bundle, brought by hand. Profile https_spiffe needs it where
	// the endpoint is in the trust domain itself and the server knows no bundle yet,
	// since no one can check the first answer otherwise. Nil means none.
	Bundle *spiffebundle.Bundle
	// ClassName is as in [Registration].
	ClassName string
}

// Check returns an error that wraps [ErrInvalid] and names every problem.
func (f Federation) Check() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems,
			fmt.Errorf("federation with %s: %s: %w", f.TrustDomain, fmt.Sprintf(format, args...), ErrInvalid))
	}
	if f.TrustDomain.IsZero() {
		return fmt.Errorf("federation without trust domain: %w", ErrInvalid)
	}
	if problem := EndpointProblem(f.EndpointURL); problem != "" {
		bad("bundle endpoint %q %s", f.EndpointURL, problem)
	}
	if !f.EndpointID.IsZero() && f.EndpointID.Path() == "" {
		bad("endpoint ID %s has no path, so no workload can present it", f.EndpointID)
	}
	if f.Bundle != nil {
		if f.Bundle.TrustDomain() != f.TrustDomain {
			bad("the bundle is that of %s", f.Bundle.TrustDomain())
		}
		if len(f.Bundle.X509Authorities()) == 0 {
			bad("the bundle has no X.509 key, so no workload of the trust domain could be trusted")
		}
	}
	return errors.Join(problems...)
}

// EndpointProblem says what is wrong with the URL of a bundle endpoint, as the end of a sentence; empty for nothing.
func EndpointProblem(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "is not a URL"
	case u.Scheme != "https":
		return "has not the scheme https"
	case u.Hostname() == "":
		return "has no host"
	case u.User != nil:
		return "has a user"
	}
	return ""
}

// NeedsBundle reports whether the server must have a bundle of the trust domain before
// it can fetch one.
func (f Federation) NeedsBundle() bool {
	return f.Bundle == nil && f.EndpointID.TrustDomain() == f.TrustDomain
}

// federationName returns the name of the object for td.
func federationName(td spiffeid.TrustDomain) string {
	if name := federationNamePrefix + td.Name(); len(validation.IsDNS1123Subdomain(name)) == 0 &&
		len(name) <= maxObjectNameBytes {
		return name
	}
	id := EntryID(identity.AgentName{}, td.ID(), spiffeid.ID{}) // an underscore, or more than a name may have
	return federationNamePrefix + id[strings.LastIndexByte(id, '.')+1:]
}

// Object returns the ClusterFederatedTrustDomain. The error wraps [ErrInvalid].
func (f Federation) Object() (*unstructured.Unstructured, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	spec := ClusterFederatedTrustDomainSpec{
		TrustDomain: f.TrustDomain.Name(), BundleEndpointURL: f.EndpointURL, ClassName: f.ClassName,
		BundleEndpointProfile: BundleEndpointProfile{Type: bundleEndpointProfileHTTPSWeb},
	}
	if !f.EndpointID.IsZero() {
		spec.BundleEndpointProfile = BundleEndpointProfile{Type: bundleEndpointProfileHTTPSSPIFFE,
			EndpointSPIFFEID: f.EndpointID.String()}
	}
	if f.Bundle != nil {
		text, err := MarshalBundle(f.Bundle)
		if err != nil {
			return nil, err
		}
		spec.TrustDomainBundle = string(text)
	}
	return toObject(&ClusterFederatedTrustDomain{
		TypeMeta: typeMeta(ClusterFederatedTrustDomainKind),
		ObjectMeta: metav1.ObjectMeta{
			Name:   federationName(f.TrustDomain),
			Labels: map[string]string{ManagedByLabel: ManagedBy, FederationLabel: "true"},
		},
		Spec: spec,
	})
}

// PlanFederationObjects returns what makes the object for td that of desired, or takes
// it away when desired is nil. Observed holds all ClusterFederatedTrustDomains. Another
// object for the same trust domain refuses the change, since only the oldest counts.
func PlanFederationObjects(td spiffeid.TrustDomain, desired *unstructured.Unstructured,
	observed []*unstructured.Unstructured) []diff.Change[*unstructured.Unstructured] {
	var about []*unstructured.Unstructured
	for _, obj := range observed {
		named, _, _ := unstructured.NestedString(obj.Object, "spec", "trustDomain")
		if named == td.Name() || obj.GetName() == federationName(td) {
			about = append(about, obj)
		}
	}
	if desired == nil {
		return planObjects(nil, about, IsFederation)
	}
	for _, obj := range about {
		if obj.GetName() != desired.GetName() && !IsFederation(obj) {
			return []diff.Change[*unstructured.Unstructured]{{
				Action: diff.Refuse, Name: nameOfObject(obj), Have: obj, Want: desired, Fields: diffObjects(obj, desired),
				Reason: "it was made by another writer for the same trust domain, of which spire-controller-manager takes the oldest only: change that one, or delete it first",
			}}
		}
	}
	return planObjects([]*unstructured.Unstructured{desired}, about, IsFederation)
}

// PlanFederations returns what has the server federate as desired says, one change for
// each, so that one partner holds up no other. Observed are the server's relationships.
// What is there can carry no mark of who made it: one that differs is refused, unless
// overwrite says that the caller insists. A first bundle is sent with a relationship that
// is created; of one that is there the bundle is the server's to poll.
func PlanFederations(desired, observed []Federation, overwrite bool) []diff.Change[Federation] {
	name := func(f Federation) string { return "federation/" + f.TrustDomain.Name() }
	change := func(there, want Federation, exists bool) diff.Change[Federation] {
		change := diff.Change[Federation]{Name: name(want), Have: there, Want: want, Fields: DiffFederations(there, want)}
		switch {
		case !exists:
			change.Action = diff.Create
			if want.Bundle != nil {
				change.Fields = append(change.Fields, diff.Field{Path: "trust_domain_bundle", Want: DescribeKeys(want.Bundle)})
			}
		case len(change.Fields) == 0:
			change.Action = diff.Keep
		case overwrite:
			change.Action = diff.Update
		default:
			change.Action = diff.Refuse
			change.Reason = fmt.Sprintf("the server federates with it otherwise, and nothing tells who set that up: %s; insist with --force", change.Fields[0])
		}
		return change
	}
	return diff.Changes(desired, observed, name, change, func(Federation) bool { return false })
}

// DiffFederations returns the fields in which want differs, but for the bundle.
func DiffFederations(have, want Federation) []diff.Field {
	var out []diff.Field
	add := func(field, a, b string) {
		if a != b {
			out = append(out, diff.Field{Path: field, Have: a, Want: b})
		}
	}
	add("bundle_endpoint_url", have.EndpointURL, want.EndpointURL)
	add("bundle_endpoint_profile", have.profile(), want.profile())
	return out
}

func (f Federation) profile() string {
	switch {
	case f.EndpointURL == "":
		return ""
	case f.EndpointID.IsZero():
		return bundleEndpointProfileHTTPSWeb
	}
	return bundleEndpointProfileHTTPSSPIFFE + " " + f.EndpointID.String()
}

// PlanBundles returns what has the server hold each of the desired bundles. Observed are
// the bundles it has of other trust domains. An older bundle than the server's, by
// their sequence numbers, is refused unless overwrite says that the caller insists: it
// would bring back keys that were taken away.
func PlanBundles(desired, observed []*spiffebundle.Bundle, overwrite bool) []diff.Change[*spiffebundle.Bundle] {
	name := func(b *spiffebundle.Bundle) string { return "bundle/" + b.TrustDomain().Name() }
	change := func(there, want *spiffebundle.Bundle, exists bool) diff.Change[*spiffebundle.Bundle] {
		change := diff.Change[*spiffebundle.Bundle]{Name: name(want), Have: there, Want: want}
		change.Fields = []diff.Field{{Path: "keys", Have: DescribeKeys(there), Want: DescribeKeys(want)}}
		switch older := isOlder(want, there); {
		case exists && SameKeys(there, want):
			change.Action, change.Fields = diff.Keep, nil
		case older && !overwrite:
			change.Action, change.Reason = diff.Refuse,
				"the server has a newer bundle, by its sequence number: get the partner's present one, or insist with --force"
		case !exists:
			change.Action = diff.Create
		default:
			change.Action = diff.Update
		}
		return change
	}
	return diff.Changes(desired, observed, name, change, func(*spiffebundle.Bundle) bool { return false })
}

// isOlder compares sequence numbers, which a server may not know.
func isOlder(want, have *spiffebundle.Bundle) bool {
	if have == nil {
		return false
	}
	a, known := want.SequenceNumber()
	b, _ := have.SequenceNumber()
	return known && a != 0 && a < b
}

// ServerID returns the SPIFFE ID that a SPIRE server presents on TCP.
func ServerID(td spiffeid.TrustDomain) spiffeid.ID {
	id, err := spiffeid.FromPath(td, "/spire/server")
	if err != nil {
		return spiffeid.ID{} // unreachable: the path is a constant
	}
	return id
}

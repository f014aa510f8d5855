package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/mesh/spire"
)

// usesCSI reports whether our pods have the Workload API by the CSI driver, as the chart's values
// say, or will.
func (f *Facts) usesCSI() bool {
	id, _ := f.Chart.Values["identity"].(map[string]any)
	source, _ := id["source"].(string)
	return source != "spire-hostpath"
}

func csiDriver(f *Facts) []Finding {
	const word, about = "CSIDriverMissing", "CSIDriver csi.spiffe.io"
	switch {
	case !f.usesCSI():
		return nil
	case f.SPIRE.CSIDriver.err != nil:
		return unread(word, about, f.SPIRE.CSIDriver.err)
	case !f.SPIRE.CSIDriver.is:
		return []Finding{found(Problem, word, about, "is not registered, so no pod gets the Workload API", "")}
	}
	return well(word, about, "is registered")
}

// isOurs reports whether a ClusterSPIFFEID gives our pods their identity: by our label, or by the
// service account that it selects.
func (f *Facts) isOurs(id *unstructured.Unstructured) bool {
	selectors, _, _ := unstructured.NestedStringSlice(id.Object, "spec", "workloadSelectorTemplates")
	labels, _, _ := unstructured.NestedStringMap(id.Object, "spec", "podSelector", "matchLabels")
	return slices.Contains(selectors, "k8s:sa:"+f.Side.chart()) || labels["app.kubernetes.io/name"] == f.Side.chart()
}

func (f *Facts) ours() (out []*unstructured.Unstructured) {
	for _, id := range f.SPIRE.IDs.is {
		if f.isOurs(id) {
			out = append(out, id)
		}
	}
	return out
}

func className(o *unstructured.Unstructured) string {
	class, _, _ := unstructured.NestedString(o.Object, "spec", "className")
	return class
}

// classes finds registrations of ours that no spire-controller-manager looks after, since it ignores objects of another
// class. Where none is seen in the cluster, the registrations of others say of which class it is.
func classes(f *Facts) []Finding {
	const word = "WrongClass"
	switch {
	case f.SPIRE.Served.err != nil:
		return unread(word, "resources of spire-controller-manager", f.SPIRE.Served.err)
	case !f.SPIRE.Served.is:
		return []Finding{found(Warning, "SPIREMissing", "spire-controller-manager",
			"has no resources here, so pods are registered with the SPIRE server itself", "")}
	case f.SPIRE.IDs.err != nil:
		return unread(word, "ClusterSPIFFEIDs", f.SPIRE.IDs.err)
	}
	others := f.othersClasses()
	var out []Finding
	for _, id := range f.ours() {
		about := "ClusterSPIFFEID " + id.GetName()
		class := className(id)
		switch {
		case len(f.SPIRE.Managers.is) > 0:
			out = append(out, ofManagers(f, about, class, registerAgain))
		case len(others) > 0 && !slices.Contains(others, class):
			out = append(out, found(Problem, word, about,
				fmt.Sprintf("is of class %q, and the others here are of %s: no spire-controller-manager may look after it", class,
					strings.Join(others, ", ")), registerAgain(others[0])))
		case len(others) > 0:
			out = append(out, well(word, about, "is of the class that the others have")...)
		case f.SPIRE.Managers.err != nil:
			out = append(out, unread(word, "spire-controller-manager", f.SPIRE.Managers.err)...)
		default:
			out = append(out, found(Unknown, word, about, fmt.Sprintf("is of class %q, and neither a spire-controller-manager nor a"+
				" registration of others says here of which class it has to be", class), "compare it with className in the"+
				" configuration of the spire-controller-manager"))
		}
	}
	return append(out, classesOfFederations(f)...)
}

// classesOfFederations is classes of what gives this side the bundles of its peers, where managers are seen.
func classesOfFederations(f *Facts) (out []Finding) {
	if len(f.SPIRE.Managers.is) == 0 {
		return nil
	}
	peers := f.peers()
	for _, o := range f.SPIRE.Federations.is {
		td, _, _ := unstructured.NestedString(o.Object, "spec", "trustDomain")
		if slices.Contains(peers, td) {
			out = append(out, ofManagers(f, "ClusterFederatedTrustDomain "+o.GetName(), className(o), giveClass))
		}
	}
	return out
}

// othersClasses are the classes of registrations that are not ours.
func (f *Facts) othersClasses() (out []string) {
	for _, id := range f.SPIRE.IDs.is {
		if class := className(id); id.GetLabels()[spire.RegistrationLabel] == "" && !f.isOurs(id) && class != "" &&
			!slices.Contains(out, class) {
			out = append(out, class)
		}
	}
	return out
}

// ofManagers says whether one of the managers looks after an object of a class, and what helps by that of the first.
func ofManagers(f *Facts, about, class string, cure func(class string) string) Finding {
	const word = "WrongClass"
	says := make([]string, len(f.SPIRE.Managers.is))
	for i, m := range f.SPIRE.Managers.is {
		if m.takes(class) {
			return found(Fine, word, about, "is looked after by "+m.About, "")
		}
		says[i] = m.String()
	}
	return found(Problem, word, about, fmt.Sprintf("is of class %q, and %s: no spire-controller-manager looks after it", class,
		strings.Join(says, ", and ")), cure(f.SPIRE.Managers.is[0].Class))
}

// registerAgain is what helps a registration that has to be of a class.
func registerAgain(class string) string {
	if class == "" {
		return giveClass(class)
	}
	return "register it again with --class-name " + class
}

// giveClass is what helps any object that has to be of a class.
func giveClass(class string) string {
	if class == "" {
		return "take spec.className away from it"
	}
	return fmt.Sprintf("have its spec.className be %s", class)
}

func registered(f *Facts) []Finding {
	const word = "NotRegistered"
	if !f.SPIRE.Served.is || f.SPIRE.IDs.err != nil {
		return nil // said before
	}
	about := "service account " + f.Side.chart()
	if len(f.ours()) == 0 {
		return []Finding{found(Warning, word, about, "is selected by no ClusterSPIFFEID that names it", "")}
	}
	return well(word, about, "is registered with SPIRE")
}

// dnsName finds a principal whose SVID has not the name by which Argo CD reaches it.
func dnsName(f *Facts) []Finding {
	const word = "DNSNameMissing"
	if f.Side != Hub {
		return nil
	}
	want := f.Side.chart() + "." + f.Namespace + ".svc"
	var out []Finding
	for _, id := range f.ours() {
		about := "ClusterSPIFFEID " + id.GetName()
		names, _, _ := unstructured.NestedStringSlice(id.Object, "spec", "dnsNameTemplates")
		populated, _, _ := unstructured.NestedBool(id.Object, "spec", "autoPopulateDNSNames")
		if !slices.Contains(names, want) && !populated {
			out = append(out, found(Problem, word, about,
				fmt.Sprintf("gives the SVID no DNS name %s, so Argo CD refuses the certificate of the resource proxy", want),
				fmt.Sprintf("agentctl hub install --trust-domain %s, which registers it with that name; or agentctl"+
					" identity register principal --dns %s, with the flags that it was registered by", cmp.Or(f.own(), "NAME"),
					want)))
			continue
		}
		out = append(out, well(word, about, "gives the SVID the DNS name "+want)...)
	}
	return out
}

// domainOf is the trust domain of a SPIFFE ID; "" of what is none.
func domainOf(text string) string {
	id, err := spiffeid.FromString(text)
	if err != nil {
		return ""
	}
	return id.TrustDomain().Name()
}

// own is the trust domain of our pods; "" where it is not known.
func (f *Facts) own() string { return domainOf(f.ownID()) }

// ownID is the SPIFFE ID of our pods; "" where it is not known.
func (f *Facts) ownID() string {
	for _, id := range f.ours() {
		text, _, _ := unstructured.NestedString(id.Object, "spec", "spiffeIDTemplate")
		if domainOf(text) != "" && !strings.Contains(text, "{{") {
			return text
		}
	}
	return ""
}

// peers are the trust domains of those whom this side meets.
func (f *Facts) peers() (out []string) {
	var ids []string
	if f.Side == Spoke {
		ids = f.list("principal", "spiffe_ids")
	}
	for _, a := range f.OfHub.Agents.is {
		ids = append(ids, a.Spec.Identity.SPIFFEIDs...)
	}
	for _, id := range ids {
		if td := domainOf(id); td != "" && !slices.Contains(out, td) {
			out = append(out, td)
		}
	}
	slices.Sort(out)
	return out
}

// federation finds peers of another trust domain whose bundle this side does not have.
func federation(f *Facts) []Finding {
	const word = "NotFederated"
	own := f.own()
	if own == "" || !f.SPIRE.Served.is {
		return nil
	}
	var out []Finding
	for _, td := range f.peers() {
		about := "trust domain " + td
		switch {
		case td == own:
			continue
		case f.SPIRE.Federations.err != nil:
			out = append(out, unread(word, about, f.SPIRE.Federations.err)...)
			continue
		}
		known := slices.ContainsFunc(f.SPIRE.Federations.is, func(o *unstructured.Unstructured) bool {
			is, _, _ := unstructured.NestedString(o.Object, "spec", "trustDomain")
			return is == td
		})
		taken := slices.ContainsFunc(f.ours(), func(o *unstructured.Unstructured) bool {
			with, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "federatesWith")
			return slices.Contains(with, td)
		})
		switch {
		case !known:
			out = append(out, found(Problem, word, about,
				fmt.Sprintf("is not federated with %s here (no ClusterFederatedTrustDomain), so its SVIDs are not trusted", own),
				fmt.Sprintf("agentctl identity federate %s, and on the other side the same for %s", td, own)))
		case !taken:
			out = append(out, found(Problem, word, about,
				"is federated with here, and the registration of our pods does not take its bundle",
				"register the pods again with --federates-with "+td))
		default:
			out = append(out, well(word, about, "is federated with "+own)...)
		}
	}
	return out
}

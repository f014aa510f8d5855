package check

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// A check looks at what was read of one side. pre says that it holds before an install, too.
type check struct {
	pre bool
	run func(*Facts) []Finding
}

// checks are those of one side, in the order in which they are told.
func checks() []check {
	return []check{
		{true, kubernetesVersion}, {true, namespaceState}, {true, definitions}, {true, argoCDVersion}, {true, csiDriver},
		{true, clock}, {true, classes}, {true, missingRights},
		{false, installed}, {false, chartVersion}, {false, differing}, {false, pods}, {false, programs}, {false, identities},
		{false, registered}, {false, dnsName}, {false, federation}, {false, loadBalancer}, {false, redisOfServer},
		{false, namespacesOfServer}, {false, terminal},
		{false, redisPolicy}, {false, sidecars}, {false, permissive}, {false, access}, {false, agents}, {false, admitted},
	}
}

// Run returns what is found on one side.
func Run(f *Facts, pre bool) []Finding {
	var out []Finding
	for _, c := range checks() {
		if pre && !c.pre {
			continue
		}
		out = append(out, c.run(f)...)
	}
	for i := range out {
		out[i].Side = f.Side
	}
	return out
}

// Sort puts the worst first, and leaves what is equally bad in its order.
func Sort(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int { return a.Level.rank() - b.Level.rank() })
}

// The oldest releases of Kubernetes and Argo CD that are supported.
const (
	oldestKubernetes  = "1.30"
	oldestHubArgoCD   = "3.5"
	oldestSpokeArgoCD = "3.2"
)

func kubernetesVersion(f *Facts) []Finding {
	const word, about = "KubernetesTooOld", "Kubernetes API"
	if f.Kubernetes.err != nil {
		return unread(word, about, f.Kubernetes.err)
	}
	is, err := version.ParseGeneric(f.Kubernetes.is)
	if err != nil {
		return unread(word, about, err)
	}
	if is.LessThan(version.MustParseGeneric(oldestKubernetes)) {
		return []Finding{found(Problem, word, about,
			fmt.Sprintf("is of %s, and %s is the oldest that is supported", f.Kubernetes.is, oldestKubernetes), "")}
	}
	return well(word, about, "is of "+f.Kubernetes.is)
}

func namespaceState(f *Facts) []Finding {
	const word = "NamespaceMissing"
	about := "namespace " + f.Namespace
	switch {
	case f.NamespaceState.err != nil:
		return unread(word, about, f.NamespaceState.err)
	case f.NamespaceState.is == Missing:
		return []Finding{found(Problem, word, about, "does not exist", fmt.Sprintf("kubectl create namespace %s, and install"+
			" Argo CD there, or have --with argocd of an install bring both; or name the namespace of Argo CD with -n",
			f.Namespace))}
	case f.NamespaceState.is == Terminating:
		return []Finding{found(Problem, word, about, "is being deleted", "wait until it is gone")}
	}
	return well(word, about, "is there")
}

func definitions(f *Facts) []Finding {
	const word, about = "ArgoCDMissing", "Argo CD"
	switch {
	case f.Definitions.err != nil:
		return unread(word, about, f.Definitions.err)
	case !f.Definitions.is:
		return []Finding{found(Problem, word, about, "is not there: the API server knows no Applications", "")}
	case f.ArgoCD.err != nil:
		return unread(word, about, f.ArgoCD.err)
	case f.NamespaceState.is == Missing:
		return nil // said before
	case f.Side == Hub && f.ArgoCD.is.Server == nil:
		return f.unlessUnread(found(Warning, "ServerMissing", about,
			fmt.Sprintf("has no argocd-server in namespace %s", f.Namespace), ""))
	case f.Side == Spoke && !f.ArgoCD.is.Controller:
		return f.unlessUnread(found(Problem, "ControllerMissing", about,
			fmt.Sprintf("has no application controller in namespace %s, so nothing syncs there", f.Namespace), ""))
	}
	return well(word, about, "is there")
}

// unlessUnread says that a program of Argo CD is missing, unless some of its programs may not be read.
func (f *Facts) unlessUnread(missing Finding) []Finding {
	if err := f.ArgoCD.is.Unread.Programs; err != nil {
		return unread(missing.Word, missing.About, err)
	}
	return []Finding{missing}
}

func argoCDVersion(f *Facts) []Finding {
	const word, about = "ArgoCDTooOld", "Argo CD"
	is, err := version.ParseGeneric(f.ArgoCD.is.Version)
	if err != nil {
		return nil // no image with a version: nothing to compare
	}
	oldest := oldestSpokeArgoCD
	if f.Side == Hub {
		oldest = oldestHubArgoCD
	}
	if is.LessThan(version.MustParseGeneric(oldest)) {
		return []Finding{found(Problem, word, about,
			fmt.Sprintf("is of %s, and %s is the oldest that is supported on a %s", f.ArgoCD.is.Version, oldest, f.Side), "")}
	}
	return well(word, about, "is of "+f.ArgoCD.is.Version)
}

// clock compares the clock of the API server with ours.
func clock(f *Facts) []Finding {
	const word, about = "ClocksApart", "clock of the Kubernetes API"
	if f.Clock.err != nil {
		return unread(word, about, f.Clock.err)
	}
	apart := f.Clock.is.Sub(f.Now).Abs()
	if apart > mostApart {
		return []Finding{found(Problem, word, about, fmt.Sprintf("is %s from that of this machine", apart.Round(second)), "")}
	}
	return well(word, about, "is within "+mostApart.String()+" of that of this machine")
}

func installed(f *Facts) []Finding {
	word, about := "NotInstalled", "Deployment "+f.Side.chart()
	switch {
	case f.Deployment.err != nil:
		return unread(word, about, f.Deployment.err)
	case f.Deployment.is == nil:
		return []Finding{found(Problem, word, about, fmt.Sprintf("is not in namespace %s", f.Namespace),
			fmt.Sprintf("install it with \"agentctl %s install\", or name its namespace", f.Side))}
	}
	return well(word, about, "is installed")
}

func chartVersion(f *Facts) []Finding {
	const word = "OlderChart"
	about := "chart " + f.Side.chart()
	switch {
	case f.Release.err != nil:
		return unread(word, about, f.Release.err)
	case f.Release.is.Revision == 0:
		return nil // it may have been applied by another tool
	case f.Release.is.Status != "deployed":
		return []Finding{found(Problem, "ReleasePending", about,
			fmt.Sprintf("has release %d in state %s", f.Release.is.Revision, f.Release.is.Status),
			fmt.Sprintf("run \"agentctl %s install\" again, which finishes it", f.Side))}
	case f.Release.is.Version != f.Chart.Version:
		return []Finding{found(Warning, word, about,
			fmt.Sprintf("is of %s, and this agentctl has %s", f.Release.is.Version, f.Chart.Version),
			fmt.Sprintf("run \"agentctl %s install\" to upgrade, the hub first, where the release is older; use the agentctl of"+
				" that release where it is newer", f.Side))}
	}
	return well(word, about, "is of "+f.Chart.Version)
}

// admitted tells what an upgrade, or a change of an AppProject or a policy, stops.
func admitted(f *Facts) []Finding {
	word, about, fine := "NoProjectAdmits", "AppProjects", "admit all Applications of managed agents"
	if f.Side == Spoke {
		word, about, fine = "PolicyRefuses", "policy", "admits all that the hub has on this spoke"
	}
	switch {
	case f.Deployment.is == nil:
		return nil
	case f.Refused.err != nil:
		return unread(word, about, f.Refused.err)
	case len(f.Refused.is) == 0:
		return well(word, about, fine)
	}
	return f.Refused.is
}

func differing(f *Facts) []Finding {
	const word = "ObjectsChanged"
	about := "release " + f.Side.chart()
	switch {
	case f.Differs.err != nil:
		return unread(word, about, f.Differs.err)
	case len(f.Differs.is) > 0:
		return []Finding{found(Problem, word, about,
			"has objects that are gone, or not as its manifest says: "+strings.Join(f.Differs.is, ", "),
			fmt.Sprintf("run \"agentctl %s install\", which brings them back", f.Side))}
	case f.Release.is.Revision == 0:
		return nil
	}
	return well(word, about, "has all its objects, rights among them")
}

package registration

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh/spire"
)

// workloadFlags say which workload is to have an identity, and how that is to be.
// They are those of "spire-server entry create", in kubectl's spelling.
type workloadFlags struct {
	parents, selectors []string
	serviceAccount     string
	podLabels          []string
	federatesWith      []string
	x509TTL, jwtTTL    time.Duration
	dnsNames           []string
	hint               string
	className          string
}

// WorkloadFlagNames are the flags that addFlags adds.
var WorkloadFlagNames = []string{
	"serviceaccount", "pod-label", "selector", "parent-id", "federates-with", "x509-svid-ttl", "jwt-svid-ttl", "dns",
	"hint", "class-name",
}

func (w *workloadFlags) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&w.serviceAccount, "serviceaccount", "", "the pods with this service account, as NAMESPACE:NAME")
	flags.StringArrayVar(&w.podLabels, "pod-label", nil,
		"label key=value that the pods must have as well; may be repeated")
	flags.StringArrayVar(&w.selectors, "selector", nil,
		"SPIRE selector TYPE:VALUE that the workload must have as well, such as unix:uid:1000; may be repeated")
	flags.StringArrayVar(&w.parents, "parent-id", nil,
		"SPIFFE ID of the SPIRE agent on whose node the workload runs, or of an alias of several; may be repeated")
	flags.StringArrayVar(&w.federatesWith, "federates-with", nil,
		"trust domain whose bundle the workload gets, such as that of its principal; may be repeated")
	flags.DurationVar(&w.x509TTL, "x509-svid-ttl", 0, "life of X.509-SVIDs; 0 is SPIRE's default")
	flags.DurationVar(&w.jwtTTL, "jwt-svid-ttl", 0, "life of JWT-SVIDs; 0 is SPIRE's default")
	flags.StringArrayVar(&w.dnsNames, "dns", nil, "DNS name in the certificates; may be repeated")
	flags.StringVar(&w.hint, "hint", "", "hint by which a workload with several SVIDs finds this one")
	flags.StringVar(&w.className, "class-name", "",
		"class of the spire-controller-manager that is to handle the objects; SPIRE's Helm chart has <namespace>-<release>")
	for _, name := range WorkloadFlagNames {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
}

// registration returns what the flags ask for. The error names the flag that is wrong.
func (w *workloadFlags) registration(name identity.AgentName, ids []string) (spire.Registration, error) {
	r := spire.Registration{
		Name: name, X509TTL: w.x509TTL, JWTTTL: w.jwtTTL, DNSNames: w.dnsNames, Hint: w.hint, ClassName: w.className,
	}
	for _, text := range ids {
		id, err := identity.ParseID(text)
		if err != nil {
			return r, fmt.Errorf("--spiffe-id: %w", err)
		}
		r.IDs = append(r.IDs, id)
	}
	for _, text := range w.parents {
		id, err := spiffeid.FromString(text)
		if err != nil {
			return r, fmt.Errorf("--parent-id %q: %w", text, err)
		}
		r.ParentIDs = append(r.ParentIDs, id)
	}
	for _, text := range w.selectors {
		selector, err := spire.ParseSelector(text)
		if err != nil {
			return r, fmt.Errorf("--selector: %w", err)
		}
		r.Selectors = append(r.Selectors, selector)
	}
	for _, text := range w.federatesWith {
		td, err := spiffeid.TrustDomainFromString(text)
		if err != nil {
			return r, fmt.Errorf("--federates-with %q: %w", text, err)
		}
		r.FederatesWith = append(r.FederatesWith, td)
	}
	var err error
	r.Pods, err = w.pods()
	return r, err
}

func (w *workloadFlags) pods() (spire.Pods, error) {
	if w.serviceAccount == "" {
		if len(w.podLabels) > 0 {
			return spire.Pods{},
				fmt.Errorf("--pod-label: --serviceaccount is missing: labels alone would give the identity to everyone who may create a pod")
		}
		return spire.Pods{}, nil
	}
	namespace, name, found := strings.Cut(w.serviceAccount, ":")
	if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return spire.Pods{}, fmt.Errorf("--serviceaccount %q: NAMESPACE:NAME is expected", w.serviceAccount)
	}
	pods := spire.Pods{Namespace: namespace, ServiceAccount: name}
	labels, err := cli.ParseLabels("--pod-label", w.podLabels)
	if err != nil {
		return spire.Pods{}, err
	}
	for key, value := range labels {
		if pods.Labels == nil {
			pods.Labels = make(map[string]string, len(labels))
		}
		pods.Labels[key] = string(value)
	}
	return pods, nil
}

// checkPlace says which flag is missing to say where the workload runs.
func (w *workloadFlags) checkPlace(direct bool) error {
	switch {
	case direct && len(w.parents) == 0:
		return fmt.Errorf("--parent-id is missing: the SPIFFE ID of the SPIRE agent on whose node the workload runs; \"spire-server agent list\" shows them")
	case len(w.parents) > 0 && w.serviceAccount == "" && len(w.selectors) == 0:
		return fmt.Errorf("--selector is missing: what tells the workload from others on its node, such as unix:uid:1000; or --serviceaccount for pods")
	case len(w.parents) == 0 && w.serviceAccount == "":
		return fmt.Errorf("--serviceaccount is missing: the pods that are to have the identity; or --parent-id and --selector for what runs outside of Kubernetes")
	}
	return nil
}

package install

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/chartvalues"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/federation"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
)

// federateFlags say how the SPIREs of hub and spoke come to trust each other.
type federateFlags struct {
	federate   bool
	hub, spoke string // bundle endpoints
}

func (f *federateFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.federate, "federate", true,
		"where the hub has another trust domain have the two SPIREs trust each other, by ClusterFederatedTrustDomains on both sides")
	cmd.Flags().StringVar(&f.hub, "hub-bundle-endpoint", "",
		"https URL at which the spoke reaches the bundle endpoint of the hub's SPIRE (default its load balancer, if there is one)")
	cmd.Flags().StringVar(&f.spoke, "spoke-bundle-endpoint", "",
		"https URL at which the hub reaches the bundle endpoint of the spoke's SPIRE (default its load balancer, if there is one)")
	for _, name := range []string{"hub-bundle-endpoint", "spoke-bundle-endpoint"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
}

// check refuses what is no endpoint.
func (f *federateFlags) check() error {
	for _, flag := range []struct{ name, value string }{{"hub", f.hub}, {"spoke", f.spoke}} {
		if problem := spire.EndpointProblem(flag.value); flag.value != "" && problem != "" {
			return fmt.Errorf("--%s-bundle-endpoint: %q %s: an https URL is expected, such as https://spire.%s.example:8443",
				flag.name, flag.value, problem, flag.name)
		}
	}
	return nil
}

// federated is what has the SPIREs of hub and spoke trust each other. The zero value is nothing.
type federated struct {
	plan federation.Plan
	// principal is the registration of the principal, which has to name the trust domain of the spoke.
	principal *registering
}

// will says, before it is done, what do will do.
func (f federated) will() []string { return append(f.plan.Will(), f.principal.will()...) }

func (f federated) do(ctx context.Context, s *side, dryRun bool) error {
	if err := f.plan.Do(ctx, s.std.Out, dryRun); err != nil {
		return err
	}
	return f.principal.do(ctx, s.std.Out, dryRun)
}

// plan plans for an agent of these SPIFFE IDs and the principal of its hub; for nothing where both have
// one trust domain.
func (f *federateFlags) plan(ctx context.Context, spokeConn, hubConn *cli.Connection, spokeIdentity *identityFlags,
	principalID string, ids []string) (out federated, err error) {
	if !f.federate || principalID == "" || len(ids) == 0 {
		return out, nil
	}
	principal, err := identity.ParseID(principalID)
	if err != nil {
		return out, fmt.Errorf("--principal-id: %w", err)
	}
	id, err := identity.ParseID(ids[0])
	if err != nil || id.TrustDomain() == principal.TrustDomain() {
		return out, err
	}
	spoke, err := federationSide(ctx, spokeConn, spokeIdentity)
	if err != nil {
		return out, err
	}
	hub, err := federationSide(ctx, hubConn, &identityFlags{})
	if err != nil {
		return out, err
	}
	spoke.Name, spoke.TrustDomain, spoke.Endpoint = "spoke", id.TrustDomain(), f.spoke
	hub.Name, hub.TrustDomain, hub.Endpoint = "hub", principal.TrustDomain(), f.hub
	if out.plan, err = federation.New(ctx, spoke, hub); err != nil {
		return out, err
	}
	out.principal, err = planPartner(ctx, hub.Objects, id.TrustDomain())
	return out, err
}

// withoutHub says what has to be done where the hub is not at hand and its principal has another trust domain than
// the agent.
func (f *federateFlags) withoutHub(ctx context.Context, s *side, principal, agent spiffeid.TrustDomain) error {
	if !f.federate {
		return nil
	}
	objects, err := registration.NewObjects(s.conn)
	if err != nil {
		return err
	}
	note, err := federation.OneSided(ctx, objects, "spoke", "hub", principal)
	if err != nil || note == "" {
		return err
	}
	return s.say("%s; without, the agent gets no SVID. The hub's has to trust %s, too: \"agentctl agent create -o"+
		" install\" says how", note, agent)
}

// federationSide returns what a connection leads to.
func federationSide(ctx context.Context, conn *cli.Connection, f *identityFlags) (out federation.Side, err error) {
	config, err := conn.Config()
	if err != nil {
		return out, err
	}
	if out.Client, err = kubernetes.NewForConfig(config); err != nil {
		return out, err
	}
	if out.Objects, err = registration.NewObjects(conn); err != nil {
		return out, err
	}
	if out.ClassName = f.className; out.ClassName == "" {
		out.ClassName, err = out.Objects.ClassName(ctx)
	}
	return out, err
}

// principalObjects returns the registration of the principal, and its name.
func principalObjects(ctx context.Context,
	objects *registration.Objects) (identity.AgentName, []*unstructured.Unstructured, error) {
	name, err := identity.ParseAgentName(chartvalues.PrincipalRegistration)
	if err != nil {
		return name, nil, err
	}
	there, err := objects.List(ctx, spire.ClusterSPIFFEIDKind, spire.RegistrationLabel+"="+name.String())
	return name, there, err
}

// planPartner plans that the principal is given the bundle of a trust domain. Where "agentctl hub install"
// did not register it nothing is planned: what did has to name the trust domain.
func planPartner(ctx context.Context, objects *registration.Objects, td spiffeid.TrustDomain) (*registering, error) {
	name, there, err := principalObjects(ctx, objects)
	if err != nil || len(there) == 0 {
		return nil, err
	}
	out := &registering{objects: objects}
	for _, obj := range there {
		next := obj.DeepCopy()
		partners := append(partnersOf(obj), td.Name())
		slices.Sort(partners)
		partners = slices.Compact(partners)
		if err := unstructured.SetNestedStringSlice(next.Object, partners, "spec", "federatesWith"); err != nil {
			return nil, err
		}
		out.wants = append(out.wants, next)
	}
	out.plan = spire.PlanObjects(name, out.wants, there)
	return out, objects.Apply(ctx, out.plan, true, func(diff.Change[*unstructured.Unstructured]) {})
}

func partnersOf(obj *unstructured.Unstructured) []string {
	names, _, _ := unstructured.NestedStringSlice(obj.Object, "spec", "federatesWith")
	return names
}

// partners returns the trust domains whose bundles the principal of this side is given, as spokes had it.
func partners(ctx context.Context, s *side) (out []spiffeid.TrustDomain, err error) {
	objects, err := registration.NewObjects(s.conn)
	if err != nil {
		return nil, err
	}
	_, there, err := principalObjects(ctx, objects)
	if err != nil {
		return nil, err
	}
	for _, obj := range there {
		for _, name := range partnersOf(obj) {
			td, err := spiffeid.TrustDomainFromString(name)
			if err != nil {
				return nil, fmt.Errorf("%s of the %s: federatesWith: %w", obj.GetName(), charts.Principal, err)
			}
			if !slices.Contains(out, td) {
				out = append(out, td)
			}
		}
	}
	return out, nil
}

package identities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/argomesh/argomesh/mesh/spire/serverapi"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
)

// Profiles of bundle endpoints.
const (
	profileWeb    = "https_web"
	profileSPIFFE = "https_spiffe"
)

type federateCommand struct {
	std          cli.Streams
	conn         *cli.Connection
	output       *cli.Output
	server       registration.Server
	dryRun       *cli.OneOf
	profile      *cli.OneOf
	url          string
	endpointID   string
	bundle       string
	className    string
	push         bool
	remove       bool
	deleteBundle bool
	force        bool
}

func newFederateCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &federateCommand{
		std: std, conn: conn, output: cli.NewOutput("json", "yaml", "name"), dryRun: cli.NewDryRun(),
		profile: &cli.OneOf{Value: profileSPIFFE, Allowed: []string{profileSPIFFE, profileWeb}},
	}
	cmd := &cobra.Command{
		Use:   "federate TRUST-DOMAIN (--bundle-endpoint-url URL | --push-bundle | --delete)",
		Short: "Have SPIRE trust another trust domain",
		Long: "Have SPIRE trust another trust domain: it polls the bundle of that domain, and hands it to\n" +
			"workloads registered with --federates-with. The partner does the same for the other way.\n\n" +
			"With profile https_spiffe the first bundle has to be brought by hand, with --bundle: on the\n" +
			"partner's side \"spire-server bundle show -format spiffe\" prints it.\n\n" +
			"--push-bundle writes a bundle to a SPIRE server that does not poll it, or in whose place\n" +
			"spire-controller-manager does not write a changed one.",
		Example: "  # By an object of spire-controller-manager\n" +
			"  agentctl identity federate hub.example --bundle-endpoint-url https://spire.hub.example:8443 --bundle hub.json\n\n" +
			"  # A bundle that changed, to a SPIRE server\n" +
			"  agentctl identity federate hub.example --bundle hub.json --push-bundle --spire-server unix:///tmp/spire-server/private/api.sock\n\n" +
			"  agentctl identity federate hub.example --delete",
		Args:              oneTrustDomain,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	c.output.AddFlag(cmd)
	cli.AddDryRunFlag(cmd, c.dryRun)
	c.server.AddFlags(cmd)
	cli.AddEnumFlag(cmd, c.profile, "bundle-endpoint-profile", "",
		"how the partner's bundle endpoint proves who it is: https_spiffe (an SVID) or https_web (the Web PKI)")
	flags := cmd.Flags()
	flags.StringVar(&c.url, "bundle-endpoint-url", "", "https URL at which the partner serves its bundle")
	flags.StringVar(&c.endpointID, "endpoint-spiffe-id", "",
		"SPIFFE ID of the bundle endpoint (default spiffe://<TRUST-DOMAIN>/spire/server)")
	flags.StringVar(&c.bundle, "bundle", "", "file with the partner's bundle in the SPIFFE format; - is standard input")
	flags.StringVar(&c.className, "class-name", "", "class of the spire-controller-manager that is to handle the object")
	flags.BoolVar(&c.push, "push-bundle", false, "with --spire-server: write the bundle there, and nothing else")
	flags.BoolVar(&c.remove, "delete", false, "end the federation")
	flags.BoolVar(&c.deleteBundle, "delete-bundle", false,
		"with --delete and --spire-server: delete the bundle as well, so that the trust domain is trusted no longer")
	flags.BoolVar(&c.force, "force", false,
		"change a federation that another writer may have made, or one that spire-controller-manager deletes, or push an older bundle")
	cmd.MarkFlagsMutuallyExclusive("push-bundle", "delete", "bundle-endpoint-url")
	for _, name := range []string{"bundle-endpoint-url", "endpoint-spiffe-id", "class-name"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
	return cmd
}

// oneTrustDomain returns an error unless there is exactly one argument.
func oneTrustDomain(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return fmt.Errorf("one trust domain is expected, not %d: %s", len(args), cmd.UseLine())
}

func (c *federateCommand) run(ctx context.Context, text string) error {
	td, err := spiffeid.TrustDomainFromString(text)
	if err != nil {
		return fmt.Errorf("trust domain %q: %w", text, err)
	}
	if err := c.check(); err != nil {
		return err
	}
	switch {
	case c.remove && c.server.IsSet():
		return c.removeFromServer(ctx, td)
	case c.remove:
		return c.applyObject(ctx, td, nil)
	}
	bundle, err := c.readBundle(td)
	if err != nil {
		return err
	}
	if c.push {
		return c.pushBundle(ctx, bundle)
	}
	f, err := c.federation(td, bundle)
	if err != nil {
		return err
	}
	if c.server.IsSet() {
		return c.applyToServer(ctx, f)
	}
	obj, err := f.Object()
	if err != nil {
		return err
	}
	return c.applyObject(ctx, td, obj)
}

// check finds flags that do not go together.
func (c *federateCommand) check() error {
	switch {
	case c.push && !c.server.IsSet():
		return errors.New("--push-bundle: --spire-server is missing: it writes to a SPIRE server, as an administrator of it")
	case c.push && c.bundle == "":
		return errors.New("--push-bundle: --bundle is missing: the bundle to write")
	case c.deleteBundle && (!c.remove || !c.server.IsSet()):
		return errors.New("--delete-bundle: it goes with --delete and --spire-server only")
	case !c.push && !c.remove && c.url == "":
		return errors.New("--bundle-endpoint-url is missing: where the partner serves its bundle; or --push-bundle or --delete")
	case c.profile.Value == profileWeb && c.endpointID != "":
		return errors.New("--endpoint-spiffe-id: it goes with profile https_spiffe only")
	case c.server.IsSet() && c.className != "":
		return errors.New("--class-name: a SPIRE server has no classes; leave it out, or --spire-server")
	case c.server.IsSet() && c.output.Value != "":
		return errors.New("--output: what a SPIRE server has is not a Kubernetes object; leave it out, and see \"agentctl identity list\"")
	case c.remove && c.dryRun.Value == cli.DryRunClient:
		return errors.New("--dry-run=client cannot show deletions; use --dry-run=server")
	}
	return nil
}

// federation returns what the flags ask for. The error names the flag that is wrong.
func (c *federateCommand) federation(td spiffeid.TrustDomain, bundle *spiffebundle.Bundle) (spire.Federation, error) {
	f := spire.Federation{TrustDomain: td, EndpointURL: c.url, Bundle: bundle, ClassName: c.className}
	switch {
	case c.profile.Value == profileWeb:
	case c.endpointID == "":
		f.EndpointID = spire.ServerID(td)
	default:
		id, err := spiffeid.FromString(c.endpointID)
		if err != nil {
			return f, fmt.Errorf("--endpoint-spiffe-id %q: %w", c.endpointID, err)
		}
		f.EndpointID = id
	}
	if err := f.Check(); err != nil {
		return f, err
	}
	if f.NeedsBundle() && !c.server.IsSet() {
		return f,
			fmt.Errorf("--bundle is missing: with profile https_spiffe nothing can check the first answer of the endpoint without it; on the partner's side \"spire-server bundle show -format spiffe\" prints it")
	}
	return f, nil
}

// readBundle reads --bundle. Nil means that it is not set.
func (c *federateCommand) readBundle(td spiffeid.TrustDomain) (*spiffebundle.Bundle, error) {
	if c.bundle == "" {
		return nil, nil
	}
	in := c.std.In
	if c.bundle != "-" {
		file, err := os.Open(c.bundle)
		if err != nil {
			return nil, fmt.Errorf("--bundle: %w", err)
		}
		defer func() { _ = file.Close() }() // it was only read
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, spire.MaxBundleBytes+1))
	if err != nil {
		return nil, fmt.Errorf("--bundle: %w", err)
	}
	bundle, err := spire.ParseBundle(td, text)
	if err != nil {
		return nil, fmt.Errorf("--bundle: %w", err)
	}
	if len(bundle.X509Authorities()) == 0 {
		return nil,
			fmt.Errorf("--bundle: it has no X.509 key, so no workload of %s could be trusted; to end the federation say --delete", td)
	}
	return bundle, nil
}

// applyObject makes the object for td desired, or takes it away when that is nil.
func (c *federateCommand) applyObject(ctx context.Context, td spiffeid.TrustDomain,
	desired *unstructured.Unstructured) error {
	if c.dryRun.Value == cli.DryRunClient {
		if c.output.Value != "" {
			return c.output.Object(c.std.Out, desired)
		}
		return registration.PrintDiff(c.std.Out, spire.PlanFederationObjects(td, desired, nil))
	}
	target, err := registration.NewObjects(c.conn)
	if err != nil {
		return err
	}
	observed, err := target.List(ctx, spire.ClusterFederatedTrustDomainKind, "")
	if err != nil {
		return err
	}
	plan := spire.PlanFederationObjects(td, desired, observed)
	if len(plan) == 0 {
		return fmt.Errorf("federate %s: the cluster at %s has no object for it that agentctl made; \"agentctl identity list --all\" shows what there is", td, target.Host)
	}
	lines := c.std.Out
	if c.output.Value != "" {
		lines = c.std.Err
	}
	dry := c.dryRun.Value != cli.DryRunNone
	err = registration.CarryOut(lines, plan, dry, func(done func(diff.Change[*unstructured.Unstructured])) error {
		return target.Apply(ctx, plan, dry, done)
	})
	if err != nil {
		return err
	}
	for _, change := range plan {
		// What is in the object is taken when the relationship is made, and not again.
		if change.Action == diff.Update && hasField(change.Fields, "spec.trustDomainBundle") && !dry {
			_, err := fmt.Fprintln(c.std.Err,
				"The bundle in the object is only the first one: a SPIRE server that has one already keeps it, and polls the next. "+
					"To write this one say --push-bundle --spire-server.")
			return err
		}
	}
	if c.output.Value != "" && desired != nil {
		return c.output.Object(c.std.Out, desired)
	}
	return nil
}

func hasField(differences []diff.Field, name string) bool {
	for _, d := range differences {
		if d.Path == name {
			return true
		}
	}
	return false
}

func (c *federateCommand) applyToServer(ctx context.Context, f spire.Federation) error {
	doing := fmt.Sprintf("federate %s", f.TrustDomain)
	desired := []spire.Federation{f}
	if c.dryRun.Value == cli.DryRunClient {
		return registration.PrintDiff(c.std.Out, spire.PlanFederations(desired, nil, c.force))
	}
	client, err := c.server.Connect(ctx, spiffeid.TrustDomain{})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // nothing is under way
	if err := c.checkServer(ctx, client, f.TrustDomain, doing); err != nil {
		return err
	}
	if f.NeedsBundle() {
		if _, err := client.FederatedBundle(ctx, f.TrustDomain); errors.Is(err, spire.ErrNotFound) {
			return fmt.Errorf("%s: --bundle is missing: the SPIRE server has no bundle of it, and with profile https_spiffe it cannot check the first answer of the endpoint", doing)
		} else if err != nil {
			return c.server.Explain(err, doing)
		}
	}
	observed, err := client.Federations(ctx)
	if err != nil {
		return c.server.Explain(err, doing)
	}
	plan := spire.PlanFederations(desired, observed, c.force)
	dry := c.dryRun.Value != cli.DryRunNone
	return registration.CarryOut(c.std.Out, plan, dry, func(done func(diff.Change[spire.Federation])) error {
		if dry {
			return nil
		}
		return c.server.Explain(client.ApplyFederations(ctx, plan, done), doing)
	})
}

// checkServer refuses what cannot last on the server.
func (c *federateCommand) checkServer(ctx context.Context, client *serverapi.Client, td spiffeid.TrustDomain,
	doing string) error {
	own, err := client.Bundle(ctx)
	if err != nil {
		return c.server.Explain(err, doing)
	}
	if own.TrustDomain() == td {
		return fmt.Errorf("%s: it is the SPIRE server's own trust domain", doing)
	}
	var managers spire.Managers
	err = client.ListEntries(ctx, serverapi.EntryFilter{}, func(e spire.Entry) error {
		managers.Add(e)
		return nil
	})
	if err != nil {
		return c.server.Explain(err, doing)
	}
	if err := registration.CheckManagers(&managers, nil, !c.push, c.force); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

func (c *federateCommand) pushBundle(ctx context.Context, bundle *spiffebundle.Bundle) error {
	doing := fmt.Sprintf("push the bundle of %s", bundle.TrustDomain())
	desired := []*spiffebundle.Bundle{bundle}
	if c.dryRun.Value == cli.DryRunClient {
		return registration.PrintDiff(c.std.Out, spire.PlanBundles(desired, nil, c.force))
	}
	client, err := c.server.Connect(ctx, spiffeid.TrustDomain{})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // nothing is under way
	observed, err := client.FederatedBundles(ctx)
	if err != nil {
		return c.server.Explain(err, doing)
	}
	plan := spire.PlanBundles(desired, observed, c.force)
	dry := c.dryRun.Value != cli.DryRunNone
	return registration.CarryOut(c.std.Out, plan, dry, func(done func(diff.Change[*spiffebundle.Bundle])) error {
		if dry {
			return nil
		}
		return c.server.Explain(client.ApplyBundles(ctx, plan, done), doing)
	})
}

func (c *federateCommand) removeFromServer(ctx context.Context, td spiffeid.TrustDomain) error {
	doing := fmt.Sprintf("federate %s", td)
	client, err := c.server.Connect(ctx, spiffeid.TrustDomain{})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // nothing is under way
	if c.dryRun.Value != cli.DryRunNone {
		return c.printRemoval(ctx, client, td, doing)
	}
	if !c.force {
		// Nothing tells who made it.
		ok, err := cli.Confirm(c.std,
			fmt.Sprintf("End the federation of the SPIRE server with %s, no matter who made it?", td), "--force")
		if err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
		if !ok {
			_, err := fmt.Fprintf(c.std.Err, "Cancelled, the federation with %s stays.\n", td)
			return err
		}
	}
	err = client.DeleteFederation(ctx, td)
	if err != nil && !(c.deleteBundle && errors.Is(err, spire.ErrNotFound)) {
		return c.server.Explain(err, doing)
	}
	if _, err := fmt.Fprintf(c.std.Out, "federation/%s deleted\n", td); err != nil {
		return err
	}
	if !c.deleteBundle {
		_, err := fmt.Fprintf(c.std.Err,
			"The SPIRE server keeps the bundle it has, so workloads that federate with %s go on trusting it; --delete-bundle takes it away.\n", td)
		return err
	}
	if err := client.DeleteBundle(ctx, td); err != nil {
		if errors.Is(err, spire.ErrInUse) {
			return fmt.Errorf("%s: %w: change those first; \"agentctl identity list --all\" shows them", doing, err)
		}
		return c.server.Explain(err, doing)
	}
	_, err = fmt.Fprintf(c.std.Out, "bundle/%s deleted\n", td)
	return err
}

func (c *federateCommand) printRemoval(ctx context.Context, client *serverapi.Client, td spiffeid.TrustDomain,
	doing string) error {
	observed, err := client.Federations(ctx)
	if err != nil {
		return c.server.Explain(err, doing)
	}
	var plan []diff.Change[spire.Federation]
	for _, f := range observed {
		if f.TrustDomain == td {
			plan = append(plan, diff.Change[spire.Federation]{Action: diff.Delete, Name: "federation/" + td.Name(), Have: f})
		}
	}
	if c.deleteBundle {
		plan = append(plan, diff.Change[spire.Federation]{Action: diff.Delete, Name: "bundle/" + td.Name()})
	}
	return registration.PrintDiff(c.std.Out, plan)
}

package identities

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh/spire"
)

type registerCommand struct {
	std         cli.Streams
	conn        *cli.Connection
	output      *cli.Output
	spiffeIDs   []string
	trustDomain string
	admin       bool
	registrar   registration.Registrar
}

func newRegisterCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &registerCommand{std: std, conn: conn, output: cli.NewOutput("json", "yaml", "name"),
		registrar: registration.Registrar{DryRun: cli.NewDryRun()}}
	cmd := &cobra.Command{
		Use:   "register NAME (--spiffe-id ID... | --trust-domain NAME)",
		Short: "Register the identity of a workload with SPIRE",
		Long: "Register the identity of a workload with SPIRE, for an agent under its name. Doing it again\n" +
			"with the same settings changes nothing; with other settings the registration becomes those.\n\n" +
			"Pods (--serviceaccount) get a ClusterSPIFFEID, anything else (--parent-id and --selector) a\n" +
			"ClusterStaticEntry. With --spire-server entries are written to the SPIRE server itself.",
		Example: "  # The pods of an agent, as objects in the cluster of the kubeconfig\n" +
			"  agentctl identity register edge-1 --trust-domain edge.example --serviceaccount argocd:argomesh-agent --federates-with hub.example\n\n" +
			"  # The same as manifests for git\n" +
			"  agentctl identity register edge-1 --trust-domain edge.example --serviceaccount argocd:argomesh-agent --dry-run=client -o yaml\n\n" +
			"  # What would change at a SPIRE server\n" +
			"  agentctl identity register edge-1 --trust-domain edge.example --selector unix:uid:1000 \\\n" +
			"    --parent-id spiffe://edge.example/nodes/edge --spire-server unix:///tmp/spire-server/private/api.sock --dry-run",
		Args:              registrationName,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	c.output.AddFlag(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&c.spiffeIDs, "spiffe-id", nil, "SPIFFE ID of the workload; may be repeated")
	flags.StringVar(&c.trustDomain, "trust-domain", "",
		"trust domain of an agent, whose SPIFFE ID is then spiffe://<trust domain>/argomesh/agent/<NAME>")
	flags.BoolVar(&c.admin, "admin", false, "make the workload an administrator of the SPIRE server")
	for _, name := range []string{"spiffe-id", "trust-domain"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
	cli.AddDryRunFlag(cmd, c.registrar.DryRun)
	c.registrar.AddFlags(cmd)
	flags.BoolVar(&c.registrar.Force, "force", false, "write entries although spire-controller-manager deletes them")
	return cmd
}

// registrationName returns an error unless there is exactly one name.
func registrationName(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("the name of the registration is missing, for an agent its name: %s", cmd.UseLine())
	case len(args) > 1:
		return fmt.Errorf("one registration at a time, not %d: %s", len(args), cmd.UseLine())
	}
	return nil
}

func (c *registerCommand) run(ctx context.Context, text string) error {
	name, err := identity.ParseAgentName(text)
	if err != nil {
		return fmt.Errorf("the name of the registration: %w", err)
	}
	ids, err := cli.SpiffeIDsOf(name, c.spiffeIDs, c.trustDomain)
	if err != nil {
		return err
	}
	r, err := c.registrar.Registration(name, ids, c.admin)
	if err != nil {
		return err
	}
	if c.registrar.Server.IsSet() && c.output.Value == "name" {
		return errors.New("-o name: entries of a SPIRE server are not Kubernetes objects; leave it out")
	}
	objects, entries, err := c.registrar.Render(r)
	if err != nil {
		return err
	}
	if c.registrar.DryRun.Value != cli.DryRunClient {
		lines := c.std.Out
		if c.output.Value != "" {
			lines = c.std.Err
		}
		if err := c.registrar.Apply(ctx, c.conn, lines, r, objects, entries); err != nil {
			return err
		}
	}
	return c.print(objects, entries)
}

// print prints what was asked for in the form of -o, and for a dry run of the client
// in any case.
func (c *registerCommand) print(objects []*unstructured.Unstructured, entries []spire.Entry) error {
	switch {
	case c.output.Value == "" && c.registrar.DryRun.Value != cli.DryRunClient:
		return nil
	case c.output.Value == "" && entries != nil:
		return registration.PrintDiff(c.std.Out, spire.PlanEntries(identity.AgentName{}, entries, nil))
	case c.output.Value == "":
		return registration.PrintDiff(c.std.Out, spire.PlanObjects(identity.AgentName{}, objects, nil))
	case entries != nil:
		return c.output.Structured(c.std.Out, map[string]any{"entries": registration.Views(entries)})
	}
	return c.output.Objects(c.std.Out, objects)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh/spire"
)

type registerCommand struct {
	std         streams
	conn        *connection
	output      *output
	spiffeIDs   []string
	trustDomain string
	admin       bool
	registrar   registrar
}

func newRegisterCommand(std streams, conn *connection) *cobra.Command {
	c := &registerCommand{std: std, conn: conn, output: newOutput("json", "yaml", "name"), registrar: registrar{dryRun: newDryRun()}}
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
	c.output.addFlag(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&c.spiffeIDs, "spiffe-id", nil, "SPIFFE ID of the workload; may be repeated")
	flags.StringVar(&c.trustDomain, "trust-domain", "", "trust domain of an agent, whose SPIFFE ID is then spiffe://<trust domain>/argomesh/agent/<NAME>")
	flags.BoolVar(&c.admin, "admin", false, "make the workload an administrator of the SPIRE server")
	for _, name := range []string{"spiffe-id", "trust-domain"} {
		register(cmd, name, cobra.NoFileCompletions)
	}
	addDryRunFlag(cmd, c.registrar.dryRun)
	c.registrar.addFlags(cmd)
	flags.BoolVar(&c.registrar.force, "force", false, "write entries although spire-controller-manager deletes them")
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
	ids, err := spiffeIDsOf(name, c.spiffeIDs, c.trustDomain)
	if err != nil {
		return err
	}
	r, err := c.registrar.registration(name, ids, c.admin)
	if err != nil {
		return err
	}
	if c.registrar.server.isSet() && c.output.value == "name" {
		return errors.New("-o name: entries of a SPIRE server are no objects; leave it out")
	}
	objects, entries, err := c.registrar.render(r)
	if err != nil {
		return err
	}
	if c.registrar.dryRun.value != dryRunClient {
		lines := c.std.out
		if c.output.value != "" {
			lines = c.std.err
		}
		if err := c.registrar.apply(ctx, c.conn, lines, r, objects, entries); err != nil {
			return err
		}
	}
	return c.print(objects, entries)
}

// print prints what was asked for in the form of -o, and for a dry run of the client
// in any case.
func (c *registerCommand) print(objects []*unstructured.Unstructured, entries []spire.Entry) error {
	switch {
	case c.output.value == "" && c.registrar.dryRun.value != dryRunClient:
		return nil
	case c.output.value == "" && entries != nil:
		return printDiff(c.std.out, spire.PlanEntries(identity.AgentName{}, entries, nil))
	case c.output.value == "":
		return printDiff(c.std.out, spire.PlanObjects(identity.AgentName{}, objects, nil))
	case entries != nil:
		return c.output.structured(c.std.out, map[string]any{"entries": viewEntries(entries)})
	}
	return c.output.objects(c.std.out, objects)
}

// registrar registers workloads as its flags say.
type registrar struct {
	workload workloadFlags
	server   spireServer
	dryRun   *oneOf
	force    bool
}

func (g *registrar) addFlags(cmd *cobra.Command) {
	g.workload.addFlags(cmd)
	g.server.addFlags(cmd)
}

func (g *registrar) registration(name identity.AgentName, ids []string, admin bool) (spire.Registration, error) {
	r, err := g.workload.registration(name, ids)
	if err != nil {
		return r, err
	}
	if g.server.isSet() && g.workload.className != "" {
		return r, errors.New("--class-name: entries of a SPIRE server have no class; leave it out, or --spire-server")
	}
	r.Admin = admin
	return r, g.workload.checkPlace(g.server.isSet())
}

// render returns the objects of r, or with a SPIRE server its entries.
func (g *registrar) render(r spire.Registration) (objects []*unstructured.Unstructured, entries []spire.Entry, err error) {
	if g.server.isSet() {
		entries, err = r.Entries()
		return nil, entries, err
	}
	objects, err = r.Objects()
	return objects, nil, err
}

// apply makes it so, and says on w what is done; in a dry run it says what would be.
func (g *registrar) apply(ctx context.Context, conn *connection, w io.Writer, r spire.Registration, objects []*unstructured.Unstructured, entries []spire.Entry) error {
	dry := g.dryRun.value != dryRunNone
	if g.server.isSet() {
		return g.applyEntries(ctx, w, r, entries, dry)
	}
	target, err := conn.objects()
	if err != nil {
		return err
	}
	observed, err := target.observe(ctx, r.Name, objects)
	if err != nil {
		return err
	}
	plan := spire.PlanObjects(r.Name, objects, observed)
	return carryOut(w, plan, dry, func(done func(spire.Change[*unstructured.Unstructured])) error {
		return target.apply(ctx, plan, dry, done)
	})
}

func (g *registrar) applyEntries(ctx context.Context, w io.Writer, r spire.Registration, entries []spire.Entry, dry bool) error {
	doing := fmt.Sprintf("register %s", r.Name)
	client, err := g.server.connect(ctx, r.IDs[0].TrustDomain())
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // nothing is under way
	own, err := client.Bundle(ctx)
	if err != nil {
		return g.server.explain(err, doing)
	}
	if td := r.IDs[0].TrustDomain(); own.TrustDomain() != td {
		return fmt.Errorf("%s: the SPIRE server is that of %s, and signs nothing for %s: name that one's with --spire-server", doing, own.TrustDomain(), td)
	}
	seen, err := client.Observe(ctx, r.Name, entries)
	if err != nil {
		return g.server.explain(err, doing)
	}
	plan := spire.PlanEntries(r.Name, entries, seen.Entries)
	if err := checkManagers(&seen.Managers, entries, false, g.force); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return carryOut(w, plan, dry, func(done func(spire.Change[spire.Entry])) error {
		if dry {
			return nil
		}
		return g.server.explain(client.ApplyEntries(ctx, plan, done), doing)
	})
}

package registration

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
)

// Registrar registers workloads as its flags say.
type Registrar struct {
	workload workloadFlags
	Server   Server
	DryRun   *cli.OneOf
	Force    bool
}

// AddFlags adds the flags of the workload and of the SPIRE server.
func (g *Registrar) AddFlags(cmd *cobra.Command) {
	g.workload.addFlags(cmd)
	g.Server.AddFlags(cmd)
}

// Registration returns what the flags ask for under a name.
func (g *Registrar) Registration(name identity.AgentName, ids []string, admin bool) (spire.Registration, error) {
	r, err := g.workload.registration(name, ids)
	if err != nil {
		return r, err
	}
	if g.Server.IsSet() && g.workload.className != "" {
		return r, errors.New("--class-name: entries of a SPIRE server have no class; leave it out, or --spire-server")
	}
	r.Admin = admin
	return r, g.workload.checkPlace(g.Server.IsSet())
}

// Render returns the objects of r, or with a SPIRE server its entries.
func (g *Registrar) Render(r spire.Registration) (objects []*unstructured.Unstructured, entries []spire.Entry,
	err error) {
	if g.Server.IsSet() {
		entries, err = r.Entries()
		return nil, entries, err
	}
	objects, err = r.Objects()
	return objects, nil, err
}

// Apply makes it so, and says on w what is done; in a dry run it says what would be.
func (g *Registrar) Apply(ctx context.Context, conn *cli.Connection, w io.Writer, r spire.Registration,
	objects []*unstructured.Unstructured, entries []spire.Entry) error {
	dry := g.DryRun.Value != cli.DryRunNone
	if g.Server.IsSet() {
		return g.applyEntries(ctx, w, r, entries, dry)
	}
	target, err := NewObjects(conn)
	if err != nil {
		return err
	}
	observed, err := target.Observe(ctx, r.Name, objects)
	if err != nil {
		return err
	}
	plan := spire.PlanObjects(r.Name, objects, observed)
	return CarryOut(w, plan, dry, func(done func(diff.Change[*unstructured.Unstructured])) error {
		return target.Apply(ctx, plan, dry, done)
	})
}

func (g *Registrar) applyEntries(ctx context.Context, w io.Writer, r spire.Registration, entries []spire.Entry,
	dry bool) error {
	doing := fmt.Sprintf("register %s", r.Name)
	client, err := g.Server.Connect(ctx, r.IDs[0].TrustDomain())
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // nothing is under way
	own, err := client.Bundle(ctx)
	if err != nil {
		return g.Server.Explain(err, doing)
	}
	if td := r.IDs[0].TrustDomain(); own.TrustDomain() != td {
		return fmt.Errorf("%s: the SPIRE server is that of %s, and signs nothing for %s: name that one's with --spire-server",
			doing, own.TrustDomain(), td)
	}
	seen, err := client.Observe(ctx, r.Name, entries)
	if err != nil {
		return g.Server.Explain(err, doing)
	}
	plan := spire.PlanEntries(r.Name, entries, seen.Entries)
	if err := CheckManagers(&seen.Managers, entries, false, g.Force); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return CarryOut(w, plan, dry, func(done func(diff.Change[spire.Entry])) error {
		if dry {
			return nil
		}
		return g.Server.Explain(client.ApplyEntries(ctx, plan, done), doing)
	})
}

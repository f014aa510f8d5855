package mesh

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/cmd/internal/meshconfig"
	"github.com/argomesh/argomesh/internal/diff"
	meshobjects "github.com/argomesh/argomesh/mesh/objects"
	"github.com/argomesh/argomesh/mesh/spire"
)

func newMeshDiffCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &meshTarget{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "diff (istio | spire) --config FILE",
		Short: "Print what mesh apply would change",
		Long: "Print what \"agentctl mesh apply\" would create (+), change (~), delete (-) and refuse (!), field by\n" +
			"field. The API server checks it all; nothing is stored.",
		Example: "  agentctl mesh diff istio --config principal.yaml",
	}
	c.complete(cmd, func(ctx context.Context, what string) error { return c.apply(ctx, what, true) })
	return cmd
}

func newMeshApplyCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &meshTarget{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "apply (istio | spire) --config FILE",
		Short: "Make a hub's mesh objects what they should be",
		Long: "Apply what \"agentctl mesh render\" prints to the hub, by server-side apply, as a principal with\n" +
			"mesh.live set to apply does by itself. What others changed in these objects is changed back. Only\n" +
			"what this or the principal has applied before, or what another writer applied of that output, is\n" +
			"touched, and deleted once nothing asks for it; if something is in the way nothing is done.",
		Example: "  agentctl mesh diff istio --config principal.yaml\n  agentctl mesh apply istio --config principal.yaml",
	}
	c.complete(cmd, func(ctx context.Context, what string) error { return c.apply(ctx, what, false) })
	return cmd
}

// meshTarget is what the commands have in common that compare a hub with what is
// rendered.
type meshTarget struct {
	std    cli.Streams
	conn   *cli.Connection
	config string
	agents agentSource
}

// complete adds flags and arguments to cmd.
func (c *meshTarget) complete(cmd *cobra.Command, run func(ctx context.Context, what string) error) {
	cmd.ValidArgs = []string{meshconfig.PartIstio, meshconfig.PartSPIRE}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] != meshconfig.PartIstio && args[0] != meshconfig.PartSPIRE {
			return fmt.Errorf("one of %s and %s is expected: %s", meshconfig.PartIstio, meshconfig.PartSPIRE, cmd.UseLine())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args[0]) }
	cmd.Flags().StringVar(&c.config, "config", "", "the principal's YAML file; of it namespace and mesh are read")
	c.agents.addFlag(cmd)
}

// meshState is what a hub should have of one product, and what it has.
type meshState struct {
	part       meshconfig.Part
	manager    string
	want, have []*unstructured.Unstructured
	target     *registration.Objects
}

func (c *meshTarget) look(ctx context.Context, what string) (meshState, error) {
	cfg, err := loadMesh(c.config)
	if err != nil {
		return meshState{}, err
	}
	agents, err := c.agents.agents(ctx, c.std, c.conn)
	if err != nil {
		return meshState{}, err
	}
	out := meshState{manager: meshobjects.Manager(cfg.Namespace)}
	for _, part := range cfg.Mesh.Parts(cfg.Namespace) {
		if part.Name == what {
			out.part = part
		}
	}
	if out.want, err = out.part.Render(agents); err != nil {
		return meshState{}, meshProblems(err)
	}
	if out.target, err = registration.NewObjects(c.conn); err != nil {
		return meshState{}, err
	}
	for _, place := range out.part.Places {
		doing := "list " + place.Resource.Resource
		if place.Namespace != "" {
			doing += " of namespace " + place.Namespace
		}
		list, err := out.target.Client.Resource(place.Resource).Namespace(place.Namespace).List(ctx, metav1.ListOptions{})
		if cli.IsCRDMissing(err) {
			product := map[string]string{meshconfig.PartIstio: "Istio", meshconfig.PartSPIRE: "spire-controller-manager"}[what]
			return meshState{},
				fmt.Errorf("%s: the cluster at %s does not have the resources of %s: choose the hub with --context", doing,
					out.target.Host, product)
		}
		if err != nil {
			return meshState{}, out.target.Explain(err, doing)
		}
		for i := range list.Items {
			out.have = append(out.have, &list.Items[i])
		}
	}
	return out, nil
}

// apply carries out the plan, or shows it.
func (c *meshTarget) apply(ctx context.Context, what string, dryRun bool) error {
	found, err := c.look(ctx, what)
	if err != nil {
		return err
	}
	plan := meshobjects.Plan(found.want, found.have, found.manager)
	writer := meshobjects.Writer{Client: found.target.Client, Manager: found.manager,
		Resources: map[string]schema.GroupVersionResource{}, DryRun: dryRun}
	for _, place := range found.part.Places {
		writer.Resources[place.Kind] = place.Resource
	}
	return registration.CarryOut(c.std.Out, plan, dryRun, func(done func(diff.Change[*unstructured.Unstructured])) error {
		if err := spire.Refusals(plan); err != nil {
			return err
		}
		for _, change := range plan {
			if _, err := writer.Write(ctx, change); err != nil {
				return found.target.Explain(err, change.Name)
			}
			done(change)
		}
		return nil
	})
}

package mesh

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	meshobjects "github.com/argomesh/argomesh/mesh/objects"
)

func newMeshVerifyCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &meshTarget{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "verify (istio | spire) --config FILE",
		Short: "Say how a hub's mesh objects differ from what they should be",
		Long: "Compare the hub's objects with those that \"agentctl mesh render\" prints, and print one sentence\n" +
			"for each difference: what is missing, changed or left over, and what others have put beside it\n" +
			"that changes its meaning. Nothing is changed. It fails when there is any.",
		Example: "  agentctl mesh verify istio --config principal.yaml",
	}
	c.complete(cmd, func(ctx context.Context, what string) error {
		found, cfg, err := c.observe(ctx, what)
		if err != nil {
			return err
		}
		var differences []meshobjects.Difference
		for _, part := range cfg.Mesh.Parts(cfg.Namespace) {
			if part.Name == what {
				differences = part.Verify(found.want, found.have, found.manager)
			}
		}
		for _, difference := range differences {
			if _, err := fmt.Fprintln(c.std.Out, difference); err != nil {
				return err
			}
		}
		if len(differences) > 0 {
			return fmt.Errorf("%d differences: \"agentctl mesh apply %s --config %s\" mends what is missing or changed",
				len(differences), what, c.config)
		}
		_, err = fmt.Fprintf(c.std.Out, "All %d objects are as they should be.\n", len(found.want))
		return err
	})
	return cmd
}

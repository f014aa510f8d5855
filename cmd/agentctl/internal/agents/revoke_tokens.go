package agents

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

type revokeTokensCommand struct {
	std    cli.Streams
	conn   *cli.Connection
	output *cli.Output
}

func newRevokeTokensCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &revokeTokensCommand{std: std, conn: conn, output: cli.NewOutput(cli.ObjectFormats()...)}
	cmd := &cobra.Command{
		Use:   "revoke-tokens NAME",
		Short: "End the tokens with which Argo CD reaches an agent's spoke",
		Long: "End the tokens with which Argo CD reaches an agent's spoke: those that there are count for\n" +
			"nothing from the moment at which the principal sees it, calls under way with them end, and the\n" +
			"cluster Secret gets a new one. Other agents notice nothing. It raises spec.tokenGeneration.",
		Example:           "  agentctl agent revoke-tokens edge-1",
		Args:              cli.Names(true),
		ValidArgsFunction: conn.CompleteName,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	c.output.AddFlag(cmd)
	return cmd
}

func (c *revokeTokensCommand) run(ctx context.Context, name string) error {
	h, err := c.conn.Hub()
	if err != nil {
		return err
	}
	obj, err := revokeTokens(ctx, h, name)
	if err != nil {
		return h.Explain(err, fmt.Sprintf("revoke tokens of agent %q", name))
	}
	return c.output.Done(c.std.Out, obj, "tokens revoked")
}

// revokeTokens raises the generation of an agent's tokens by one. The principal writing the
// status meanwhile is no harm.
func revokeTokens(ctx context.Context, h *cli.Hub, name string) (*unstructured.Unstructured, error) {
	for {
		obj, err := h.Agents.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		agent, err := cli.ParseAgent(obj)
		if err != nil {
			return nil, err
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion()},
			"spec":     map[string]any{"tokenGeneration": agent.Spec.TokenGeneration + 1},
		})
		if err != nil {
			return nil, err
		}
		obj, err = h.Agents.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "agentctl"})
		if !apierrors.IsConflict(err) {
			return obj, err
		}
	}
}

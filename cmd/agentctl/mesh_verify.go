package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/mesh/istio"
)

type meshVerifyCommand struct {
	std    streams
	conn   *connection
	config string
	agents agentSource
}

func newMeshVerifyCommand(std streams, conn *connection) *cobra.Command {
	c := &meshVerifyCommand{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "verify istio --config FILE",
		Short: "Say how a hub's mesh objects differ from what they should be",
		Long: "Compare the objects of the hub's Istio with those that \"agentctl mesh render istio\" prints, and\n" +
			"print one sentence for each difference: what is missing, changed or left over, and what others\n" +
			"have put beside it that changes its meaning. Nothing is changed. It fails when there is any.",
		Example:   "  agentctl mesh verify istio --config principal.yaml",
		ValidArgs: []string{renderIstio},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] != renderIstio {
				return fmt.Errorf("%q is expected: %s", renderIstio, cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&c.config, "config", "", "the principal's YAML file; of it namespace and mesh are read")
	c.agents.addFlag(cmd)
	return cmd
}

func (c *meshVerifyCommand) run(ctx context.Context) error {
	cfg, err := loadMesh(c.config)
	if err != nil {
		return err
	}
	snapshot, err := c.agents.snapshot(ctx, c.std, c.conn, cfg)
	if err != nil {
		return err
	}
	want, err := istio.Render(snapshot, cfg.istioConfig())
	if err != nil {
		return err
	}
	have, err := c.observe(ctx, want)
	if err != nil {
		return err
	}
	differences, err := istio.Verify(want, have)
	if err != nil {
		return err
	}
	for _, sentence := range differences {
		if _, err := fmt.Fprintln(c.std.out, sentence); err != nil {
			return err
		}
	}
	if len(differences) > 0 {
		return fmt.Errorf("%d differences: \"agentctl mesh render istio --config %s | kubectl apply -f -\" mends what is missing or changed", len(differences), c.config)
	}
	_, err = fmt.Fprintf(c.std.out, "All %d objects are as they should be.\n", len(want))
	return err
}

// observe returns all objects of Istio in the namespaces of want.
func (c *meshVerifyCommand) observe(ctx context.Context, want []istio.Object) ([]*unstructured.Unstructured, error) {
	target, err := c.conn.objects()
	if err != nil {
		return nil, err
	}
	namespaces := map[string]bool{}
	for _, object := range want {
		namespaces[object.GetNamespace()] = true
	}
	kinds := istio.Kinds()
	var out []*unstructured.Unstructured
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			list, err := target.client.Resource(kinds[kind]).Namespace(namespace).List(ctx, metav1.ListOptions{})
			doing := "list " + kinds[kind].Resource + " of namespace " + namespace
			if isCRDMissing(err) {
				return nil, fmt.Errorf("%s: the cluster at %s does not have Istio's resources: choose the hub with --context", doing, target.host)
			}
			if err != nil {
				return nil, target.explain(err, doing)
			}
			for i := range list.Items {
				out = append(out, &list.Items[i])
			}
		}
	}
	return out, nil
}

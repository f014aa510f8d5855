package review

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/identity/inspect"
	"github.com/argomesh/argomesh/stream"
)

// Policy finds what the policy of an agent's configuration refuses of what the hub
// has put on the spoke already.
func Policy(ctx context.Context, conn *cli.Connection, file config.File) ([]inspect.Finding, error) {
	file.Program, file.Flag = "agent", "agent-config"
	cfg, found, err := ReadPlanned(file, agentconfig.Default(), "name", "mode", "namespace", "policy")
	if err != nil {
		return found, err
	}
	if cfg.Mode == stream.Managed && policy.LacksOverride(cfg.Policy.Operations) {
		found = append(found, inspect.Finding{
			Level: inspect.Warning, About: "policy.operations",
			Says: "has sync without override: rollbacks, other revisions and manifests of the hub are refused, unless a release from before override ran with this list",
			Cure: "name override in it, or leave it as it is to refuse them",
		})
	}
	rest, err := conn.Config()
	if err != nil {
		return found, err
	}
	client, err := dynamic.NewForConfig(rest)
	if err != nil {
		return found, cli.ExplainKubeconfig(err, conn.Rules)
	}
	doubts, err := checkCluster(ctx, rest, client, cfg.Namespace, spokeSide(), hubSide())
	if err != nil {
		return found, err
	}
	found = append(found, doubts...)
	admitted := true
	rules := ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: stream.Spoke, Mode: cfg.Mode, Agent: cfg.Name,
		Namespace: cfg.Namespace}}, Policy: &cfg.Policy}
	projects := map[string]map[string]any{}
	named := func(name string) map[string]any { return projects[name] }
	review := func(o *unstructured.Unstructured) {
		if says := rules.Review(o.Object, named); says != "" {
			admitted = false
			found = append(found, inspect.Finding{
				Level: inspect.Warning, About: fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName()), Says: says,
				Cure: "allow it in the agent's policy, or change the object on the hub",
			})
		}
	}
	if err := cli.EachOf(ctx, client.Resource(cli.ProjectResource).
		Namespace(cfg.Namespace), func(o *unstructured.Unstructured) error {
		projects[o.GetName()] = o.Object
		review(o)
		return nil
	}); err != nil {
		return found, fmt.Errorf("list the spoke's AppProjects: %w", err)
	}
	if err := cli.EachOf(ctx, client.Resource(cli.ApplicationResource), func(o *unstructured.Unstructured) error {
		review(o)
		return nil
	}); err != nil {
		return found, fmt.Errorf("list the spoke's Applications: %w", err)
	}
	if admitted {
		found = append(found,
			inspect.Finding{Level: inspect.Fine, About: "policy", Says: "admits all that the hub has on this spoke"})
	}
	return found, nil
}

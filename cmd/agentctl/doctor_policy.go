package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/inspect"
	"github.com/argomesh/argomesh/stream"
)

var projectResource = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"}

// policySettings are the keys of an agent's configuration by which its policy is judged.
type policySettings struct {
	Name      identity.AgentName `koanf:"name"`
	Namespace string             `koanf:"namespace"`
	Mode      stream.Mode        `koanf:"mode"`
	Policy    mirror.Policy      `koanf:"policy"`
}

// reviewPolicy finds what the policy of an agent's configuration refuses of what the hub
// has put on the spoke already.
func reviewPolicy(ctx context.Context, conn *connection, file string) ([]inspect.Finding, error) {
	cfg, err := config.Load(config.Program{
		Name: "agent", Environ: func() []string { return nil }, Partial: true,
	}, []string{"--config", file}, policySettings{Namespace: defaultNamespace, Policy: mirror.DefaultPolicy()})
	if err != nil {
		return nil, err
	}
	var found []inspect.Finding
	if cfg.Mode == stream.Managed && mirror.LacksOverride(cfg.Policy.Operations) {
		found = append(found, inspect.Finding{
			Level: inspect.Warning, About: "policy.operations",
			Says: "has sync without override: rollbacks, other revisions and manifests of the hub are refused, unless a release from before override ran with this list",
			Cure: "name override in it, or leave it as it is to refuse them",
		})
	}
	config, err := conn.config()
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, explainKubeconfig(err, conn.rules)
	}
	rules := mirror.Rules{Side: stream.Spoke, Mode: cfg.Mode, Agent: cfg.Name, Namespace: cfg.Namespace, Policy: &cfg.Policy}
	projects := map[string]map[string]any{}
	named := func(name string) map[string]any { return projects[name] }
	review := func(o *unstructured.Unstructured) {
		if says := rules.Review(o.Object, named); says != "" {
			found = append(found, inspect.Finding{
				Level: inspect.Warning, About: fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName()), Says: says,
				Cure: "allow it in the agent's policy, or change the object on the hub",
			})
		}
	}
	if err := eachOf(ctx, client.Resource(projectResource).Namespace(cfg.Namespace), func(o *unstructured.Unstructured) error {
		projects[o.GetName()] = o.Object
		review(o)
		return nil
	}); err != nil {
		return found, fmt.Errorf("list the spoke's AppProjects: %w", err)
	}
	if err := eachOf(ctx, client.Resource(applicationResource), func(o *unstructured.Unstructured) error {
		review(o)
		return nil
	}); err != nil {
		return found, fmt.Errorf("list the spoke's Applications: %w", err)
	}
	if len(found) == 0 {
		found = append(found, inspect.Finding{Level: inspect.Fine, About: "policy", Says: "admits all that the hub has on this spoke"})
	}
	return found, nil
}

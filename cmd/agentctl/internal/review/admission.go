package review

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/admission"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/fleet"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/identity/inspect"
)

// scopingSecrets selects the Secrets that may scope a repository to an AppProject.
const scopingSecrets = "argocd.argoproj.io/secret-type=repository"

// Admission finds the Applications of managed agents that their AppProjects on the hub
// do not admit.
func Admission(ctx context.Context, conn *cli.Connection, file config.File) ([]inspect.Finding, error) {
	file.Program, file.Flag = "principal", "principal-config"
	cfg, found, err := ReadPlanned(file, principalconfig.Default(), "namespace", "mapping", "resource_proxy.url")
	if err != nil {
		return found, err
	}
	rest, err := conn.Config()
	if err != nil {
		return found, err
	}
	client, err := dynamic.NewForConfig(rest)
	if err != nil {
		return found, cli.ExplainKubeconfig(err, conn.Rules)
	}
	doubts, err := checkCluster(ctx, rest, client, cfg.Namespace, hubSide(), spokeSide())
	if err != nil {
		return found, err
	}
	found = append(found, doubts...)
	agents, err := cli.ListAgents(ctx, conn, cfg.Namespace)
	if err != nil {
		return found, err
	}
	refused, err := refusedApplications(ctx, client, cfg, agents)
	if err != nil {
		return found, err
	}
	if len(refused) == 0 {
		refused = []inspect.Finding{{Level: inspect.Fine, About: "projects",
			Says: "admit all Applications of managed agents"}}
	}
	return append(found, refused...), nil
}

// refusedApplications finds the Applications of managed agents that their AppProjects do
// not admit.
func refusedApplications(ctx context.Context, client dynamic.Interface, cfg principalconfig.Config,
	agents []v1alpha1.Agent) (found []inspect.Finding, err error) {
	projects, err := HubProjects(ctx, client, cfg.Namespace)
	if err != nil {
		return nil, err
	}
	kept, err := HubStore(client, cfg).Expect(ctx)
	if err != nil {
		return nil, err
	}
	registry := &fleet.Registry{Mapping: cfg.Owners(kept.Mapping)}
	registry.Set(agents)
	owner, registered := registry.OwnerOf(), registry.Agents()
	err = cli.EachOf(ctx, client.Resource(cli.ApplicationResource), func(o *unstructured.Unstructured) error {
		text := func(path ...string) string { s, _, _ := unstructured.NestedString(o.Object, path...); return s }
		name, owned := owner(fleet.Placement{
			Namespace: o.GetNamespace(), Name: text("spec", "destination", "name"),
			Server: text("spec", "destination", "server"),
		})
		agent, known := registered[name]
		if !owned || !known || agent.Spec.Mode != v1alpha1.ModeManaged {
			return nil
		}
		if says := cfg.Rules(registry, hubstate.Hub{}, name, agent).ReviewHub(o.Object, projects); says != "" {
			found = append(found, inspect.Finding{
				Level: inspect.Warning, About: fmt.Sprintf("Application %s/%s", o.GetNamespace(), o.GetName()),
				Says: "is not sent to agent " + name.String() + ", nor are its operations, and what is there gets no update: " +
					says,
				Cure: "change that AppProject, or make it, so that it admits the Application; or name another in spec.project",
			})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the hub's Applications: %w", err)
	}
	return found, nil
}

// HubStore returns the store of the hub's state that a principal with that configuration uses.
func HubStore(client dynamic.Interface, cfg principalconfig.Config) hubstate.Store {
	return hubstate.Store{Client: client, Namespace: cfg.Namespace, ShareDefault: cfg.Projects.ShareDefault,
		Mapping: hubstate.Mapping(cfg.Mapping.By)}
}

// HubProjects reads what decides which Applications leave the hub.
func HubProjects(ctx context.Context, client dynamic.Interface, namespace string) (admission.HubProjects, error) {
	var projects, secrets []map[string]any
	if err := cli.EachOf(ctx, client.Resource(cli.ProjectResource).
		Namespace(namespace), func(o *unstructured.Unstructured) error {
		projects = append(projects, o.Object)
		return nil
	}); err != nil {
		return admission.HubProjects{}, fmt.Errorf("list the hub's AppProjects: %w", err)
	}
	list, err := client.Resource(cli.SecretResource).Namespace(namespace).
		List(ctx, metav1.ListOptions{LabelSelector: scopingSecrets})
	if err != nil {
		return admission.HubProjects{},
			fmt.Errorf("list the hub's Secrets of repositories, which may belong to AppProjects: %w", err)
	}
	for i := range list.Items {
		secrets = append(secrets, list.Items[i].Object)
	}
	var settings map[string]any
	switch o, err := client.Resource(cli.ConfigMapResource).Namespace(namespace).
		Get(ctx, admission.SettingsConfigMap(), metav1.GetOptions{}); {
	case err == nil:
		settings = o.Object
	case !apierrors.IsNotFound(err):
		return admission.HubProjects{}, fmt.Errorf("read the settings of the hub's Argo CD: %w", err)
	}
	return admission.NewHubProjects(namespace, projects, secrets, settings), nil
}

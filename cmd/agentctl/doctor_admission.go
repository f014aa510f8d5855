package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/inspect"
	"github.com/argomesh/argomesh/stream"
)

var (
	secretResource    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configMapResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// scopingSecrets selects the Secrets that may scope a repository to an AppProject.
const scopingSecrets = "argocd.argoproj.io/secret-type=repository"

// admissionSettings are the keys of a principal's configuration by which it says whose an
// Application is.
type admissionSettings struct {
	Namespace string `koanf:"namespace"`
	Mapping   struct {
		By         string   `koanf:"by"`
		Namespaces []string `koanf:"namespaces"`
		Selector   string   `koanf:"selector"`
	} `koanf:"mapping"`
	ResourceProxy struct {
		URL string `koanf:"url"`
	} `koanf:"resource_proxy"`
}

// mapping is what the registry needs of the settings.
func (s admissionSettings) mapping() fleet.Mapping {
	return fleet.Mapping{
		Namespace: s.Namespace, ByDestination: s.Mapping.By == "destination", Admits: mirror.NamespaceMatcher(s.Mapping.Namespaces),
		Server: func(name identity.AgentName) string { return controller.ClusterServer(s.ResourceProxy.URL, name) },
	}
}

// rules are those of a managed agent's link, as far as they say what of the hub is its.
func (s admissionSettings) rules(name identity.AgentName, agent v1alpha1.Agent, selector labels.Selector, mapped []v1alpha1.MappedNamespace) mirror.Rules {
	rules := mirror.Rules{
		Side: stream.Hub, Mode: stream.Managed, Agent: name, Namespace: s.Namespace,
		ClusterServer: controller.ClusterServer(s.ResourceProxy.URL, name), ClusterProject: agent.Status.ClusterProject,
		Selector: selector, ByDestination: s.Mapping.By == "destination", Namespaces: s.Mapping.Namespaces,
	}
	if !rules.ByDestination {
		rules.Namespaces, rules.Pairs = nil, []mirror.NamespacePair{}
		for _, m := range mapped {
			rules.Pairs = append(rules.Pairs, mirror.NamespacePair{Spoke: m.Spoke, Hub: m.Hub})
		}
	}
	return rules
}

// reviewAdmission finds the Applications of managed agents that their AppProjects on the hub
// do not admit.
func reviewAdmission(ctx context.Context, conn *connection, file string) ([]inspect.Finding, error) {
	defaults := admissionSettings{Namespace: defaultNamespace}
	defaults.Mapping.By, defaults.ResourceProxy.URL = "namespace", "https://argomesh-principal:9090"
	cfg, err := config.Load(config.Program{
		Name: "principal", Environ: func() []string { return nil }, Partial: true,
	}, []string{"--config", file}, defaults)
	if err != nil {
		return nil, err
	}
	selector, err := labels.Parse(cfg.Mapping.Selector)
	if err != nil {
		return nil, fmt.Errorf("--principal-config %s: mapping.selector: %w", file, err)
	}
	agents, err := listAgents(ctx, conn)
	if err != nil {
		return nil, err
	}
	config, err := conn.config()
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, explainKubeconfig(err, conn.rules)
	}
	projects, err := readHubProjects(ctx, client, cfg.Namespace)
	if err != nil {
		return nil, err
	}
	registry := fleet.Registry{Mapping: cfg.mapping()}
	registry.Set(agents)
	owner, registered := registry.Owners(), registry.Agents()
	var found []inspect.Finding
	err = eachOf(ctx, client.Resource(applicationResource), func(o *unstructured.Unstructured) error {
		text := func(path ...string) string { s, _, _ := unstructured.NestedString(o.Object, path...); return s }
		name, owned := owner(fleet.Placement{
			Namespace: o.GetNamespace(), Name: text("spec", "destination", "name"), Server: text("spec", "destination", "server"),
		})
		agent, known := registered[name]
		if !owned || !known || agent.Spec.Mode != v1alpha1.ModeManaged {
			return nil
		}
		if says := cfg.rules(name, agent, selector, registry.Mapped(name)).ReviewHub(o.Object, projects); says != "" {
			found = append(found, inspect.Finding{
				Level: inspect.Warning, About: fmt.Sprintf("Application %s/%s", o.GetNamespace(), o.GetName()),
				Says: "is not sent to agent " + name.String() + ", nor are its operations, and what is there gets no update: " + says,
				Cure: "let the AppProject admit it, or give it one that does",
			})
		}
		return nil
	})
	if err != nil {
		return found, fmt.Errorf("list the hub's Applications: %w", err)
	}
	if len(found) == 0 {
		found = append(found, inspect.Finding{Level: inspect.Fine, About: "projects", Says: "admit all Applications of managed agents"})
	}
	return found, nil
}

// readHubProjects reads what decides which Applications leave the hub.
func readHubProjects(ctx context.Context, client dynamic.Interface, namespace string) (mirror.HubProjects, error) {
	var projects, secrets []map[string]any
	if err := eachOf(ctx, client.Resource(projectResource).Namespace(namespace), func(o *unstructured.Unstructured) error {
		projects = append(projects, o.Object)
		return nil
	}); err != nil {
		return mirror.HubProjects{}, fmt.Errorf("list the hub's AppProjects: %w", err)
	}
	list, err := client.Resource(secretResource).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: scopingSecrets})
	if err != nil {
		return mirror.HubProjects{}, fmt.Errorf("list the hub's Secrets of repositories, which may belong to AppProjects: %w", err)
	}
	for i := range list.Items {
		secrets = append(secrets, list.Items[i].Object)
	}
	var settings map[string]any
	switch o, err := client.Resource(configMapResource).Namespace(namespace).Get(ctx, mirror.SettingsConfigMap(), metav1.GetOptions{}); {
	case err == nil:
		settings = o.Object
	case !apierrors.IsNotFound(err):
		return mirror.HubProjects{}, fmt.Errorf("read the settings of the hub's Argo CD: %w", err)
	}
	return mirror.NewHubProjects(namespace, projects, secrets, settings), nil
}

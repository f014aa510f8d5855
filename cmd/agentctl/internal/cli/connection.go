package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
)

// DefaultNamespace is where Argo CD, and so the Agents, live unless told
// otherwise. The namespace of a kubeconfig context is for other work, so it is
// not looked at.
const DefaultNamespace = "argocd"

// Connection is how to reach the hub's Kubernetes API. It has the flags kubectl
// has, read by the same package.
type Connection struct {
	Rules     *clientcmd.ClientConfigLoadingRules
	Overrides *clientcmd.ConfigOverrides
	Namespace string
	warnings  io.Writer
}

// NewConnection returns a connection whose flags are yet to be read. Warnings of an API server
// go to warnings.
func NewConnection(warnings io.Writer) *Connection {
	return &Connection{
		Rules:     clientcmd.NewDefaultClientConfigLoadingRules(),
		Overrides: &clientcmd.ConfigOverrides{},
		warnings:  warnings,
	}
}

// seldom are the connection flags of kubectl that the help leaves out, as
// kubectl options does.
var seldom = []string{
	"as", "as-group", "as-uid", "as-user-extra", "certificate-authority", "client-certificate", "client-key", "cluster",
	"disable-compression", "insecure-skip-tls-verify", "password", "proxy-url", "server", "tls-server-name", "token",
	"user", "username",
}

// AddFlags adds the flags of a kubeconfig to the root command.
func (c *Connection) AddFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&c.Rules.ExplicitPath, "kubeconfig", "",
		"path of the kubeconfig of the hub (default $KUBECONFIG, then ~/.kube/config)")
	flags.StringVarP(&c.Namespace, "namespace", "n", DefaultNamespace,
		"namespace of the hub's Argo CD, where the Agents live")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.Namespace = clientcmd.FlagInfo{}
	names.CurrentContext.Description = "context of the kubeconfig"
	names.Timeout.Description = "how long one request may take, such as 5s; 0 means without limit"
	clientcmd.BindOverrideFlags(c.Overrides, flags, names)
	for _, name := range seldom {
		if f := flags.Lookup(name); f != nil {
			f.Hidden = true
		}
	}
	Register(root, "context", c.CompleteContexts)
	Register(root, "namespace", cobra.NoFileCompletions)
}

// In returns the connection by another context of the same kubeconfig. What --server, --token and
// the like say of the first is not for it.
func (c *Connection) In(name string) *Connection {
	overrides := &clientcmd.ConfigOverrides{CurrentContext: name, Timeout: c.Overrides.Timeout}
	return &Connection{Rules: c.Rules, Overrides: overrides, Namespace: c.Namespace, warnings: c.warnings}
}

// Contexts returns the names of the contexts of the kubeconfig.
func (c *Connection) Contexts() ([]string, error) {
	raw, err := c.loader().RawConfig()
	if err != nil {
		return nil, ExplainKubeconfig(err, c.Rules)
	}
	return slices.Sorted(maps.Keys(raw.Contexts)), nil
}

func (c *Connection) loader() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.Rules, c.Overrides)
}

// How often the Kubernetes API is called at most, as kubectl has it: client-go's own bound, 5 a
// second, is for what runs all day.
const (
	callsPerSecond = 50
	callsAtOnce    = 300
)

// Config returns how to call the Kubernetes API. Nothing is contacted yet.
func (c *Connection) Config() (*rest.Config, error) {
	if _, err := clientcmd.ParseTimeout(c.Overrides.Timeout); err != nil {
		return nil, fmt.Errorf("--request-timeout %q: seconds or a duration such as 5s or 2m is expected",
			c.Overrides.Timeout)
	}
	config, err := c.loader().ClientConfig()
	if err != nil {
		return nil, ExplainKubeconfig(err, c.Rules)
	}
	config.QPS, config.Burst = callsPerSecond, callsAtOnce
	config.UserAgent = "agentctl/" + buildinfo.Read().Version
	config.WarningHandler = rest.NewWarningWriter(c.warnings, rest.WarningWriterOptions{Deduplicate: true})
	return config, nil
}

// Client returns the configuration and a client of it. Nothing is contacted yet.
func (c *Connection) Client() (*rest.Config, kubernetes.Interface, error) {
	config, err := c.Config()
	if err != nil {
		return nil, nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	return config, client, err
}

// Hub opens the connection. Nothing is contacted yet.
func (c *Connection) Hub() (*Hub, error) { return c.HubIn(c.Namespace) }

// HubIn is hub for a namespace; for all of them when it is empty.
func (c *Connection) HubIn(namespace string) (*Hub, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	config = dynamic.ConfigFor(config)
	config.GroupVersion = &v1alpha1.SchemeGroupVersion
	config.APIPath = "/apis"
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, ExplainKubeconfig(err, c.Rules)
	}
	return &Hub{
		Rest:         client,
		Agents:       dynamic.New(client).Resource(v1alpha1.AgentResource).Namespace(namespace),
		Applications: dynamic.New(client).Resource(ApplicationResource),
		Projects:     dynamic.New(client).Resource(ProjectResource),
		ConfigMaps:   dynamic.New(client).Resource(ConfigMapResource).Namespace(namespace),
		Namespace:    namespace,
		Host:         config.Host,
	}, nil
}

// ApplicationResource is Argo CD's.
var ApplicationResource = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
	Resource: "applications"}

// Hub is the Kubernetes API of the hub, as far as Agents are concerned.
type Hub struct {
	Rest         rest.Interface
	Agents       dynamic.ResourceInterface
	Applications dynamic.NamespaceableResourceInterface
	Projects     dynamic.NamespaceableResourceInterface
	ConfigMaps   dynamic.ResourceInterface
	Namespace    string
	Host         string
}

// SecretResource and ConfigMapResource are those of Kubernetes.
var (
	SecretResource    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	ConfigMapResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// ProjectResource are the AppProjects of Argo CD.
var ProjectResource = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"}

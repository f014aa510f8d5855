package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
)

// defaultNamespace is where Argo CD, and so the Agents, live unless told
// otherwise. The namespace of a kubeconfig context is for other work, so it is
// not looked at.
const defaultNamespace = "argocd"

// completionTimeout bounds how long the shell waits for names after a tab.
const completionTimeout = 3 * time.Second

// connection is how to reach the hub's Kubernetes API. It has the flags kubectl
// has, read by the same package.
type connection struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides *clientcmd.ConfigOverrides
	namespace string
	warnings  io.Writer
}

func newConnection(warnings io.Writer) *connection {
	return &connection{
		rules:     clientcmd.NewDefaultClientConfigLoadingRules(),
		overrides: &clientcmd.ConfigOverrides{},
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

func (c *connection) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&c.rules.ExplicitPath, "kubeconfig", "", "path of the kubeconfig of the hub (default $KUBECONFIG, then ~/.kube/config)")
	flags.StringVarP(&c.namespace, "namespace", "n", defaultNamespace, "namespace of the hub's Argo CD, where the Agents live")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.Namespace = clientcmd.FlagInfo{}
	names.CurrentContext.Description = "context of the kubeconfig"
	names.Timeout.Description = "how long one request may take, such as 5s; 0 means without limit"
	clientcmd.BindOverrideFlags(c.overrides, flags, names)
	for _, name := range seldom {
		if f := flags.Lookup(name); f != nil {
			f.Hidden = true
		}
	}
	register(root, "context", c.completeContexts)
	register(root, "namespace", cobra.NoFileCompletions)
}

func (c *connection) loader() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, c.overrides)
}

// config returns how to call the Kubernetes API. Nothing is contacted yet.
func (c *connection) config() (*rest.Config, error) {
	if _, err := clientcmd.ParseTimeout(c.overrides.Timeout); err != nil {
		return nil, fmt.Errorf("--request-timeout %q: seconds or a duration such as 5s or 2m is expected", c.overrides.Timeout)
	}
	config, err := c.loader().ClientConfig()
	if err != nil {
		return nil, explainKubeconfig(err, c.rules)
	}
	config.UserAgent = "agentctl/" + buildinfo.Read().Version
	config.WarningHandler = rest.NewWarningWriter(c.warnings, rest.WarningWriterOptions{Deduplicate: true})
	return config, nil
}

// hub opens the connection. Nothing is contacted yet.
func (c *connection) hub() (*hub, error) { return c.hubIn(c.namespace) }

// hubIn is hub for a namespace; for all of them when it is empty.
func (c *connection) hubIn(namespace string) (*hub, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	config = dynamic.ConfigFor(config)
	config.GroupVersion = &v1alpha1.SchemeGroupVersion
	config.APIPath = "/apis"
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, explainKubeconfig(err, c.rules)
	}
	return &hub{
		rest:         client,
		agents:       dynamic.New(client).Resource(v1alpha1.AgentResource).Namespace(namespace),
		applications: dynamic.New(client).Resource(applicationResource),
		projects:     dynamic.New(client).Resource(projectResource),
		configMaps:   dynamic.New(client).Resource(configMapResource).Namespace(namespace),
		namespace:    namespace,
		host:         config.Host,
	}, nil
}

// applicationResource is Argo CD's.
var applicationResource = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}

// hub is the Kubernetes API of the hub, as far as Agents are concerned.
type hub struct {
	rest         rest.Interface
	agents       dynamic.ResourceInterface
	applications dynamic.NamespaceableResourceInterface
	projects     dynamic.NamespaceableResourceInterface
	configMaps   dynamic.ResourceInterface
	namespace    string
	host         string
}

// completeNames offers the names of the hub's Agents to the shell, but those
// already on the command line.
func (c *connection) completeNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	h, err := c.hub()
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	list, err := h.agents.List(ctx, metav1.ListOptions{})
	if err != nil {
		cobra.CompErrorln(h.explain(err, "list agents").Error())
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, item := range list.Items {
		if !slices.Contains(args, item.GetName()) {
			out = append(out, item.GetName())
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeName is completeNames for a command that takes one.
func (c *connection) completeName(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.completeNames(cmd, args, prefix)
}

func (c *connection) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	raw, err := c.loader().RawConfig()
	if err != nil {
		cobra.CompErrorln(err.Error())
	}
	return slices.Sorted(maps.Keys(raw.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// addEnumFlag adds a flag with a closed set of values, which the shell completes.
func addEnumFlag(cmd *cobra.Command, value *oneOf, name, short, usage string) {
	cmd.Flags().VarP(value, name, short, usage)
	register(cmd, name, value.complete)
}

// register sets the completion of a flag that was just added to cmd.
func register(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(fmt.Sprintf("completion of --%s: %v", flag, err)) // a flag of ours that does not exist
	}
}

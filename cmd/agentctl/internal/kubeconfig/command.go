package kubeconfig

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

type kubeconfigCommand struct {
	std      cli.Streams
	conn     *cli.Connection
	lifetime time.Duration
	proxy    string
	timeout  time.Duration
}

// NewCommand returns `agentctl kubeconfig`.
func NewCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &kubeconfigCommand{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "kubeconfig NAME",
		Short: "Print a kubeconfig for an agent's spoke, through the hub",
		Long: "Print a kubeconfig with which kubectl reaches the Kubernetes API of an agent's spoke through the\n" +
			"hub's resource proxy, with a token that names you: the audit of live access shows that name. What it\n" +
			"lets you do there is what the hub and the owner of the spoke let Argo CD do.\n\n" +
			"The principal makes the token for who may create agents/access of that Agent on the hub. It lives for\n" +
			"at most 12 hours; \"agentctl agent revoke-tokens NAME\" ends it before. It is a secret: so is the output.",
		Example: "  agentctl kubeconfig edge-1 --duration 2h > edge-1.kubeconfig\n" +
			"  kubectl --kubeconfig edge-1.kubeconfig get pods\n\n" +
			"  # Where the hub's resource proxy is reached by a port-forward\n" +
			"  kubectl --context hub -n argocd port-forward service/argomesh-principal 9090 &\n" +
			"  agentctl kubeconfig edge-1 --resource-proxy https://localhost:9090 > edge-1.kubeconfig",
		Args:              cli.Names(true),
		ValidArgsFunction: conn.CompleteName,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	flags := cmd.Flags()
	flags.DurationVar(&c.lifetime, "duration", time.Duration(v1alpha1.DefaultAccessSeconds)*time.Second,
		"how long the token lives, 5m to 12h; the principal's own bounds may make it shorter")
	flags.StringVar(&c.proxy, "resource-proxy", "",
		"https URL by which you reach the hub's resource proxy (default what the principal says)")
	flags.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long to wait for the principal's answer")
	for _, name := range []string{"duration", "resource-proxy", "timeout"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
	return cmd
}

func (c *kubeconfigCommand) run(ctx context.Context, name string) error {
	proxy, err := c.check()
	if err != nil {
		return err
	}
	config, err := c.conn.Config()
	if err != nil {
		return err
	}
	granted, err := Ask(ctx, config, Question{
		Namespace: c.conn.Namespace, Agent: name, Lifetime: c.lifetime, Timeout: c.timeout,
	})
	if err != nil {
		return err
	}
	content, err := clientcmd.Write(*granted.Kubeconfig(name, proxy))
	if err != nil {
		return err
	}
	if _, err := c.std.Out.Write(content); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.std.Err, "the token is of %s and ends %s\n", cli.CleanText(granted.User),
		granted.Expires.Local().Format(time.RFC1123))
	return err
}

// check returns what --resource-proxy says, nil for nothing.
func (c *kubeconfigCommand) check() (*url.URL, error) {
	least, most := time.Duration(v1alpha1.MinAccessSeconds)*time.Second,
		time.Duration(v1alpha1.MaxAccessSeconds)*time.Second
	if c.lifetime < least || c.lifetime > most || c.lifetime%time.Second != 0 {
		return nil, fmt.Errorf("--duration %v: use whole seconds from %v to %v", c.lifetime, least, most)
	}
	if c.timeout <= 0 {
		return nil, errors.New("--timeout must be more than 0: the principal answers within seconds")
	}
	if c.proxy == "" {
		return nil, nil
	}
	return ProxyURL(c.proxy)
}

// ProxyURL reads the flag --resource-proxy.
func ProxyURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil,
			fmt.Errorf("--resource-proxy %q is not an https URL of a host: use one such as https://hub.example.org:9090",
				text)
	}
	return u, nil
}

// Kubeconfig is that for an agent's spoke. proxy is where the resource proxy is, nil for where the
// principal says.
func (g *Granted) Kubeconfig(agent string, proxy *url.URL) *clientcmdapi.Config {
	name := "argomesh-" + agent
	cluster := &clientcmdapi.Cluster{Server: g.Server, TLSServerName: g.TLSServerName,
		CertificateAuthorityData: g.Authorities}
	if proxy != nil {
		cluster.Server = strings.TrimRight(proxy.String(), "/") + "/agents/" + agent
		if said, err := url.Parse(g.Server); err == nil && cluster.TLSServerName == "" &&
			said.Hostname() != proxy.Hostname() {
			cluster.TLSServerName = said.Hostname() // its certificate has that name
		}
	}
	out := clientcmdapi.NewConfig()
	out.Clusters[name] = cluster
	out.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: g.Token}
	out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	out.CurrentContext = name
	return out
}

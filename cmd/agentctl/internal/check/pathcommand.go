package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/chartvalues"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/images"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
	"github.com/argomesh/argomesh/stream/probe"
)

// pathTimeout bounds one look at a path.
const pathTimeout = 10 * time.Second

type pathCommand struct {
	std    cli.Streams
	output *cli.OneOf
	to     Principal
}

func newPathCommand(std cli.Streams) *cobra.Command {
	c := &pathCommand{std: std, output: newOutput()}
	cmd := &cobra.Command{
		Use:   "path HOST:PORT",
		Short: "Find out what is on the way from here to a principal",
		Long: "Connect to a principal as an agent would, without an identity, and say what is on the way: an address\n" +
			"that is not reached, a proxy or load balancer that terminates TLS or does not speak HTTP/2, another\n" +
			"principal. Nothing is said to it. It goes through the proxy of the environment (HTTPS_PROXY), as an\n" +
			"agent does.\n\n" +
			"\"agentctl check spoke --pre --principal HOST:PORT --registry REGISTRY\" does the same from a pod of the spoke.",
		Example: "  agentctl check path argomesh.hub.example:443 --principal-id spiffe://hub.example/argomesh/principal",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return fmt.Errorf("one address is expected, not %d: %s", len(args), cmd.UseLine())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.to.Address = args[0]
			return c.run(cmd.Context())
		},
	}
	cli.AddEnumFlag(cmd, c.output, "output", "o", "wide also lists what is well; or json or yaml")
	cmd.Flags().StringVar(&c.to.ID, "principal-id", "", "SPIFFE ID that the principal is to have (default any)")
	addGatewayFlag(cmd, &c.to.Gateway)
	cli.Register(cmd, "principal-id", cobra.NoFileCompletions)
	return cmd
}

func addGatewayFlag(cmd *cobra.Command, gateway *bool) {
	cmd.Flags().BoolVar(gateway, "gateway", false,
		"a gateway before the principal terminates TLS, on purpose: the agent is to have method spiffe-jwt or header")
}

// checkAddress refuses what is no address of a principal.
func (p Principal) checkAddress(flag string) error {
	if host, port, err := net.SplitHostPort(p.Address); err != nil || host == "" || port == "" {
		return fmt.Errorf("%s %q: host:port is expected", flag, p.Address)
	}
	return chartvalues.CheckPrincipal(p.Address, p.ID)
}

func (c *pathCommand) run(ctx context.Context) error {
	if err := c.to.checkAddress("address"); err != nil {
		return err
	}
	all := fromHere(ctx, c.to)
	Sort(all)
	if err := printAll(c.std, c.output, all); err != nil {
		return err
	}
	return verdict(all)
}

// fromHere looks at the path from this machine.
func fromHere(ctx context.Context, to Principal) []Finding {
	ctx, cancel := context.WithTimeout(ctx, pathTimeout)
	defer cancel()
	all := ofPath(to, probe.Walk(ctx, to.Address))
	for i := range all {
		all[i].Side = Spoke
	}
	return all
}

// pathFlags say from where a spoke looks at its way to the principal, before an install.
type pathFlags struct {
	to       Principal
	registry string
}

func (f *pathFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.to.Address, "principal", "",
		"with --pre: host and port where the spoke is to reach the principal, which a pod of it tries")
	cmd.Flags().StringVar(&f.to.ID, "principal-id", "", "with --principal: SPIFFE ID that the principal is to have (default any)")
	cmd.Flags().StringVar(&f.registry, "registry", "",
		"with --principal: registry and folder of our images, such as registry.example/argomesh, for that pod")
	addGatewayFlag(cmd, &f.to.Gateway)
	for _, name := range []string{"principal", "principal-id", "registry"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
}

func (f *pathFlags) check(pre bool) error {
	switch {
	case f.to.Address == "" && (f.to.ID != "" || f.registry != "" || f.to.Gateway):
		return errors.New("--principal is missing: where the spoke is to reach it")
	case f.to.Address == "":
		return nil
	case !pre:
		return errors.New("--principal is for --pre: an agent that runs says itself how it reaches its principal")
	}
	return f.to.checkAddress("--principal")
}

// observe returns what a pod of the spoke finds on its way to the principal.
func (f *pathFlags) observe(ctx context.Context, conn *cli.Connection) ([]Finding, error) {
	about := "principal " + f.to.Address
	if f.registry == "" {
		out := []Finding{found(Unknown, "PrincipalUnreachable", about, "was not asked for from the spoke",
			"give --registry, for a pod that looks; or run \"agentctl check path "+f.to.Address+"\" there")}
		out[0].Side = Spoke
		return out, nil
	}
	_, client, err := conn.Client()
	if err != nil {
		return nil, err
	}
	folder, err := charts.Open(charts.Agent)
	if err != nil {
		return nil, err
	}
	chart, err := release.LoadChart(folder)
	if err != nil {
		return nil, err
	}
	image := images.Ours(f.registry, "agentctl") + ":" + chart.Metadata.AppVersion
	like, err := agentPods(ctx, client, conn.Namespace)
	if err != nil {
		out := unread("PrincipalUnreachable", about, err)
		out[0].Side = Spoke
		return out, nil
	}
	return PathJob{Client: client, Namespace: conn.Namespace, Image: image, Like: like}.Run(ctx, f.to), nil
}

// agentPods are the pods of the agent: of its Deployment, or with the labels that the chart gives them before there
// is one.
func agentPods(ctx context.Context, client kubernetes.Interface,
	namespace string) (out corev1.PodTemplateSpec, err error) {
	d, err := client.AppsV1().Deployments(namespace).Get(ctx, charts.Agent, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		out.Labels = map[string]string{nameLabel: charts.Agent, instanceLabel: charts.Agent}
	case err != nil:
		return out, err
	default:
		out = d.Spec.Template
	}
	return out, nil
}

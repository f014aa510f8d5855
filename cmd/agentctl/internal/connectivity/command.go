package connectivity

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/kubeconfig"
)

// options are what a person asks for.
type options struct {
	// namespace is where objects are made on the spoke.
	namespace string
	// pod is one on the spoke to work in; empty for one of image that is made. port is one on which
	// it answers.
	pod, image string
	port       int32
	// repository, path and revision are what the Application deploys; empty for nothing.
	repository, path, revision string
	// proxy and redis are where the proxies of the hub are; nil and empty for ports of the
	// principal's pod.
	proxy               *url.URL
	redis               string
	redisCA, redisFile  string
	timeout             time.Duration
	skip                []string
	proxyText, skipText string
	// any says that the agent is the first that is connected.
	any bool
}

type testCommand struct {
	std    cli.Streams
	conn   *cli.Connection
	output *cli.OneOf
	ask    options
}

// NewCommand returns `agentctl connectivity`.
func NewCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "connectivity",
		Short: "Try what people do with a spoke through the hub",
		Args:  cli.NoCommand,
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(newTestCommand(std, conn))
	return cmd
}

func newTestCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &testCommand{std: std, conn: conn, output: &cli.OneOf{Allowed: []string{"json", "yaml"}}}
	cmd := &cobra.Command{
		Use:   "test (NAME | --any)",
		Short: "Try a sync, a watch, logs, exec, port-forward, a large object, Redis and a revocation",
		Long: "Try what people do with an agent's spoke through the hub, one step after the other, and say how long\n" +
			"each took. It makes objects named argomesh-connectivity-… on hub and spoke, and takes them away again.\n\n" +
			"A step that hub or spoke does not allow, or that you have no right for, is skipped, with the rule. It exits\n" +
			"with 1 when a step failed. The pod in which logs, exec and port-forward are tried is made of --image,\n" +
			"unless --pod names one that is there. The Application travels, and deploys nothing: it names no\n" +
			"repository that there is, and the spoke's Argo CD says so. With --repo-url it deploys what is at --path there,\n" +
			"until it is synced and healthy, and takes it away again.",
		Example: "  agentctl connectivity test edge-1 --context hub\n\n" +
			"  # In a pod that is there\n" +
			"  agentctl connectivity test edge-1 --pod web-0 --spoke-namespace web --port 8080\n\n" +
			"  # With something that is deployed\n" +
			"  agentctl connectivity test edge-1 --repo-url https://git.example.com/apps.git --path guestbook",
		Args:              c.args,
		ValidArgsFunction: conn.CompleteName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), strings.Join(args, "")) // of which there is one, or none
		},
	}
	cli.AddEnumFlag(cmd, c.output, "output", "o", "json or yaml, once all is done")
	c.addFlags(cmd)
	return cmd
}

func (c *testCommand) addFlags(cmd *cobra.Command) {
	flags, o := cmd.Flags(), &c.ask
	flags.BoolVar(&o.any, "any", false, "test the first agent by name that is connected")
	flags.StringVar(&o.namespace, "spoke-namespace", "default", "namespace of the spoke in which objects are made")
	flags.StringVar(&o.image, "image", "busybox:1.37", "image of the pod that is made; it needs sh, echo and httpd")
	flags.StringVar(&o.pod, "pod", "", "pod of the spoke to use in place of one that is made; it needs echo")
	flags.Int32Var(&o.port, "port", 8080, "port on which that pod answers whatever it gets")
	flags.StringVar(&o.repository, "repo-url", "", "repository of what step sync deploys (default nothing)")
	flags.StringVar(&o.path, "path", ".", "path in that repository")
	flags.StringVar(&o.revision, "revision", "HEAD", "revision of that repository")
	flags.StringVar(&o.proxyText, "resource-proxy", "",
		"https URL of the hub's resource proxy (default by a port-forward to the principal's pod)")
	flags.StringVar(&o.redis, "redis", "", "host:port of the hub's Redis proxy (default by a port-forward)")
	flags.StringVar(&o.redisCA, "redis-ca", "", "PEM file of the authorities of the Redis proxy, if it has TLS of its own")
	flags.StringVar(&o.redisFile, "redis-password-file", "",
		"file with the password of Redis (default the Secret of the hub's Argo CD)")
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "how long one step may take")
	flags.StringVar(&o.skipText, "skip", "", "steps to leave out, such as revocation,redis")
	for _, name := range []string{
		"spoke-namespace", "image", "pod", "port", "resource-proxy", "redis", "timeout", "repo-url", "path", "revision",
	} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
	cli.Register(cmd, "skip", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return stepNames(), cobra.ShellCompDirectiveNoFileComp
	})
}

// args has one agent named, or --any.
func (c *testCommand) args(cmd *cobra.Command, args []string) error {
	if c.ask.any {
		return cli.None(cmd, args)
	}
	return cli.Names(true)(cmd, args)
}

// check reads the flags that have a form.
func (o *options) check() error {
	if o.timeout <= 0 {
		return errors.New("--timeout must be more than 0, such as 1m")
	}
	if o.proxyText != "" {
		u, err := kubeconfig.ProxyURL(o.proxyText)
		if err != nil {
			return err
		}
		o.proxy = u
	}
	for name := range strings.SplitSeq(o.skipText, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if !isStep(name) {
			return fmt.Errorf("--skip %q is not a step: use %s", name, cli.JoinOr(stepNames()))
		}
		o.skip = append(o.skip, name)
	}
	return nil
}

// ErrFailed is how the command ends when a step failed.
var ErrFailed = errors.New("not all went through: see above")

func (c *testCommand) run(ctx context.Context, name string) error {
	if err := c.ask.check(); err != nil {
		return err
	}
	t, err := newTester(ctx, c.conn, name, &c.ask)
	if err != nil {
		return err
	}
	if c.output.Value == "" {
		t.report = func(r Result) error {
			_, err := fmt.Fprintln(c.std.Out, cli.CleanText(r.String()))
			return err
		}
	}
	if err := t.run(ctx); err != nil {
		return err
	}
	if c.output.Value != "" {
		out := map[string]any{"agent": t.name, "steps": t.results}
		if err := (&cli.Output{OneOf: *c.output}).Structured(c.std.Out, out); err != nil {
			return err
		}
	}
	for _, r := range t.results {
		if r.Outcome == Failed {
			return ErrFailed
		}
	}
	return nil
}

// Package status is `agentctl status`: hub and spokes on one screen, and a wait until all are as
// they should be.
package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/rollout"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
)

// pollInterval is how often it is looked while it waits.
const pollInterval = 2 * time.Second

type statusCommand struct {
	std     cli.Streams
	conn    *cli.Connection
	output  *cli.OneOf
	wait    bool
	timeout time.Duration
}

// NewCommand returns `agentctl status`.
func NewCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &statusCommand{std: std, conn: conn, output: &cli.OneOf{Allowed: []string{"wide", "json", "yaml"}}}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show hub and spokes on one screen, and wait until they are as they should be",
		Long: "Show the principal with its pods and versions, and each agent with its state and versions, as the\n" +
			"hub knows them. Of more than 20 agents it shows those that need someone; -o wide shows all.\n\n" +
			"It exits with 1 when something is not as it should be, and says what. With --wait it looks again\n" +
			"until all is well. A suspended agent is as it should be.",
		Example: "  agentctl status --context hub\n  agentctl status --context hub --wait --timeout 2m",
		Args:    cli.None,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	cli.AddEnumFlag(cmd, c.output, "output", "o", "wide for every agent, or json or yaml")
	cmd.Flags().BoolVar(&c.wait, "wait", false, "wait until all is as it should be")
	cmd.Flags().DurationVar(&c.timeout, "timeout", 5*time.Minute, "how long to wait; 0 means without limit")
	cli.Register(cmd, "timeout", cobra.NoFileCompletions)
	return cmd
}

func (c *statusCommand) run(ctx context.Context) error {
	h, err := c.conn.Hub()
	if err != nil {
		return err
	}
	_, client, err := c.conn.Client()
	if err != nil {
		return err
	}
	r, err := observe(ctx, h, client)
	if c.wait && err == nil {
		limited, cancel := watchtools.ContextWithOptionalTimeout(ctx, c.timeout)
		defer cancel()
		err = wait.PollUntilContextCancel(limited, pollInterval, true, func(ctx context.Context) (bool, error) {
			now, err := observe(ctx, h, client)
			if err != nil { // r is what was seen last
				return false, err
			}
			r = now
			return len(r.Problems) == 0, nil
		})
		if errors.Is(err, context.DeadlineExceeded) {
			err = nil // the report says what is missing
		}
	}
	if err != nil {
		return h.Explain(err, "read the status of the hub")
	}
	if err := c.print(r); err != nil {
		return err
	}
	if len(r.Problems) > 0 {
		return fmt.Errorf("%d things are not as they should be: %s", len(r.Problems), firstOf(r.Problems))
	}
	return nil
}

// firstOf joins the first few of many.
func firstOf(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(all[:most], "; "), len(all)-most)
}

func (c *statusCommand) print(r *Report) error {
	if c.output.Value == "json" || c.output.Value == "yaml" {
		return (&cli.Output{OneOf: *c.output}).Structured(c.std.Out, r)
	}
	return r.print(c.std.Out, c.output.Value == "wide")
}

// observe reads what there is now.
func observe(ctx context.Context, h *cli.Hub, client kubernetes.Interface) (*Report, error) {
	r := &Report{Hub: Hub{Namespace: h.Namespace, PodsReady: true}, Agents: []Agent{}}
	server, err := client.Discovery().ServerVersion()
	if err != nil {
		return nil, err
	}
	r.Hub.Kubernetes = server.GitVersion
	if said, err := h.ConfigMaps.Get(ctx, hubstate.ConfigMap, metav1.GetOptions{}); err == nil {
		r.Hub.Principal, _, _ = unstructured.NestedString(said.Object, "data", hubstate.VersionKey)
	} else if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, err
	}
	d, err := client.AppsV1().Deployments(h.Namespace).Get(ctx, charts.Principal, metav1.GetOptions{})
	switch {
	case err == nil:
		is := rollout.Of(d)
		r.Hub.Pods, r.Hub.PodsReady = is.Step, is.Ready
	case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err): // it may run elsewhere
		return nil, err
	}
	argo, err := argocd.Observe(ctx, client, h.Namespace)
	if err != nil {
		return nil, err
	}
	r.Hub.ArgoCD = argo.ServerVersion()
	err = cli.EachOf(ctx, h.Agents, func(obj *unstructured.Unstructured) error {
		agent, err := cli.ParseAgent(obj)
		if err == nil {
			r.Agents = append(r.Agents, newAgent(agent))
		}
		return err
	})
	r.finish()
	return r, err
}

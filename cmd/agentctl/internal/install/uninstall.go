package install

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// NewHubUninstallCommand returns `agentctl hub uninstall`.
func NewHubUninstallCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	return newUninstallCommand(std, conn, charts.Principal, "principal")
}

func newUninstallCommand(std cli.Streams, conn *cli.Connection, chart, what string) *cobra.Command {
	var yes bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the " + what + ", and say what stays",
		Long: "Remove what the chart " + chart + " installed. Applications and their workloads stay as they\n" +
			"are, on hub and spokes, and so do Agents, their definition, and what is registered with SPIRE\n" +
			"(\"agentctl identity revoke\"). On the hub argocd-server gets the Redis back that it had.",
		Args: cli.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := &side{std: std, conn: conn, chart: chart, namespace: conn.Namespace}
			if err := s.connect(); err != nil {
				return err
			}
			return s.uninstall(cmd.Context(), yes, timeout)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait until it is gone")
	cli.Register(cmd, "timeout", cobra.NoFileCompletions)
	return cmd
}

// uninstall removes the release, if a person agrees.
func (s *side) uninstall(ctx context.Context, yes bool, timeout time.Duration) error {
	is, err := s.releases.Observe(s.chart)
	if err != nil {
		return s.explain(err, "look for "+s.chart)
	}
	if is.Revision == 0 {
		return s.say("%s is not installed in namespace %s", s.chart, s.namespace)
	}
	objects, err := byName(is.Manifest)
	if err != nil {
		return err
	}
	left, err := leftMesh(ctx, s, is.Values, s.chart == charts.Agent)
	if err != nil {
		return err
	}
	beside := ""
	if left.Any() {
		beside = ", and what Istio has for it,"
	}
	question := fmt.Sprintf("%s %s and its %d objects%s will be removed from namespace %s; Applications and workloads, Agents, and"+
		" what is registered with SPIRE stay. Go on?",
		is.Chart, is.Version, len(objects), beside, s.namespace)
	agreed, err := cli.Consent(s.std, yes, question)
	if err != nil {
		return fmt.Errorf("uninstall %s: %w", s.chart, err)
	}
	if !agreed {
		return s.say("nothing was removed")
	}
	err = s.alone(ctx, func(ctx context.Context) error {
		if s.chart == charts.Principal {
			if err := s.restoreServer(ctx, is.Values, timeout); err != nil {
				return err
			}
		}
		done, err := s.releases.Remove(s.chart, timeout)
		if err != nil {
			return s.explain(err, "uninstall "+s.chart)
		}
		if err := removeMesh(ctx, s, is.Values); err != nil {
			return err
		}
		if done.Kept != "" {
			if err := s.say("%s", done.Kept); err != nil {
				return err
			}
		}
		return s.say("%s is removed from namespace %s", s.chart, s.namespace)
	})
	if err != nil {
		return err
	}
	err = s.client.CoordinationV1().Leases(s.namespace).Delete(ctx, leaseName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return s.explain(err, "remove Lease "+leaseName)
	}
	return nil
}

// removeMesh removes what Istio has for a side that is gone: not before, since a principal would put it back.
func removeMesh(ctx context.Context, s *side, values map[string]any) error {
	left, err := leftMesh(ctx, s, values, s.chart == charts.Agent)
	if err != nil {
		return err
	}
	return left.Carry(ctx, s.std.Out, false)
}

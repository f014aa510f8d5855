package install

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/removal"
)

// NewHubUninstallCommand returns `agentctl hub uninstall`.
func NewHubUninstallCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	return newUninstallCommand(std, conn, charts.Principal, "principal")
}

func newUninstallCommand(std cli.Streams, conn *cli.Connection, chart, what string) *cobra.Command {
	var yes, noWait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the " + what + ", and say what stays",
		Long: "Remove what the chart " + chart + " installed, and say before what that is, what is done\n" +
			"around it, and what stays; then ask, but for --yes. Applications and their workloads stay as they\n" +
			"are, on hub and spokes, and so do Agents, their definition, and what is registered with SPIRE\n" +
			"(\"agentctl identity revoke\"). On the hub argocd-server gets the arguments back that it had,\n" +
			"and ConfigMap argocd-cm what it had before --terminal.",
		Args: cli.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := &side{std: std, conn: conn, chart: chart, namespace: conn.Namespace}
			if err := s.connect(); err != nil {
				return err
			}
			return s.uninstall(cmd.Context(), yes, noWait, timeout)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for argocd-server, which gets back the arguments that it had")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait until it is gone; 0 means without limit")
	cli.Register(cmd, "timeout", cobra.NoFileCompletions)
	return cmd
}

// uninstall removes the release, if a person agrees.
func (s *side) uninstall(ctx context.Context, yes, noWait bool, timeout time.Duration) error {
	is, err := s.releases.Observe(s.chart)
	if err != nil {
		return s.explain(err, "look for "+s.chart)
	}
	if is.Revision == 0 {
		return s.say("%s is not installed in namespace %s", s.chart, s.namespace)
	}
	left, err := leftMesh(ctx, s, is.Values, s.chart == charts.Agent)
	if err != nil {
		return err
	}
	restore, err := s.planRestore(ctx, is.Values)
	if err != nil {
		return err
	}
	objects, err := release.Objects(is.Manifest)
	if err != nil {
		return err
	}
	if err := sayAll(s, removal.Removal{
		Chart: s.chart, Version: is.Version, Namespace: s.namespace, Objects: objects,
		Around: slices.Concat(left.Will(), restore.told),
	}.Lines()); err != nil {
		return err
	}
	agreed, err := cli.Consent(s.std, yes, fmt.Sprintf("Remove %s from namespace %s?", s.chart, s.namespace))
	if err != nil {
		return fmt.Errorf("uninstall %s: %w", s.chart, err)
	}
	if !agreed {
		return s.say("nothing was removed")
	}
	err = s.turns().Take(ctx, func(ctx context.Context) error {
		if err := withdrawTerminal(ctx, s); err != nil {
			return err
		}
		if err := s.restoreServer(ctx, restore, noWait, timeout); err != nil {
			return err
		}
		done, err := s.releases.Remove(s.chart, timeout, func() error { return removeMesh(ctx, s, is.Values) })
		if err != nil {
			return s.explain(err, "uninstall "+s.chart)
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
	return s.turns().End(ctx)
}

// removeMesh removes what Istio has for a side that is gone: not before, since a principal would put it back.
func removeMesh(ctx context.Context, s *side, values map[string]any) error {
	left, err := leftMesh(ctx, s, values, s.chart == charts.Agent)
	if err != nil {
		return err
	}
	return left.Carry(ctx, s.std.Out, false)
}

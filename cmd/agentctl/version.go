package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/version"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
)

func newVersionCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	output, withHub := &cli.OneOf{Allowed: []string{"json", "yaml"}}, false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of agentctl, and with --hub those of the hub and its agents",
		Args:  cli.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := ownVersion()
			if withHub {
				h, err := conn.Hub()
				if err != nil {
					return err
				}
				if v.Hub, err = versionsOf(cmd.Context(), h); err != nil {
					return h.Explain(err, "read the hub's versions")
				}
			}
			return v.print(std, output.Value)
		},
	}
	cmd.Flags().BoolVar(&withHub, "hub", false,
		"also those of the hub's Kubernetes and principal, and those that the agents reported")
	cli.AddEnumFlag(cmd, output, "output", "o", "print as json or yaml")
	return cmd
}

// versionsOf are what version prints.
type versions struct {
	Version   string       `json:"version"`
	Revision  string       `json:"revision"`
	GoVersion string       `json:"goVersion"`
	Hub       *hubVersions `json:"hub,omitempty"`
}

// hubVersions are those of a hub.
type hubVersions struct {
	Kubernetes string `json:"kubernetes"`
	// Principal is empty where no principal has said it, or who asks may not read it.
	Principal string `json:"principal,omitempty"`
	// Agents says how many agents reported each version; an agent that was never there none.
	Agents map[string]int `json:"agents"`
}

func ownVersion() versions {
	info := buildinfo.Read()
	return versions{Version: info.Version, Revision: info.Revision, GoVersion: info.GoVersion}
}

// versionsOf reads those of the hub.
func versionsOf(ctx context.Context, h *cli.Hub) (*hubVersions, error) {
	raw, err := h.Rest.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var server version.Info
	if err := json.Unmarshal(raw, &server); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	out := &hubVersions{Kubernetes: server.GitVersion, Agents: map[string]int{}}
	if said, err := h.ConfigMaps.Get(ctx, hubstate.ConfigMap, metav1.GetOptions{}); err == nil {
		out.Principal, _, _ = unstructured.NestedString(said.Object, "data", hubstate.VersionKey)
	}
	return out, cli.EachOf(ctx, h.Agents, func(obj *unstructured.Unstructured) error {
		agent, err := cli.ParseAgent(obj)
		if err == nil && agent.Status.Versions.Agent != "" {
			out.Agents[agent.Status.Versions.Agent]++
		}
		return err
	})
}

func (v versions) print(std cli.Streams, format string) error {
	if format != "" {
		return (&cli.Output{OneOf: cli.OneOf{Value: format}}).Structured(std.Out, v)
	}
	lines := fmt.Sprintf("agentctl %s\n", buildinfo.Read())
	if v.Hub != nil {
		lines = ""
		line := func(of, text string) { lines += fmt.Sprintf("%-9s %s\n", of, text) }
		line("agentctl", buildinfo.Read().String())
		line("hub", "Kubernetes "+v.Hub.Kubernetes)
		if v.Hub.Principal != "" {
			line("principal", v.Hub.Principal)
		}
		for _, of := range slices.Sorted(maps.Keys(v.Hub.Agents)) {
			line("agents", fmt.Sprintf("%s (%d)", of, v.Hub.Agents[of]))
		}
	}
	_, err := fmt.Fprint(std.Out, lines)
	return err
}

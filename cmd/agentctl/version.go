package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/version"

	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
)

func newVersionCommand(std streams, conn *connection) *cobra.Command {
	output, withHub := &oneOf{allowed: []string{"json", "yaml"}}, false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of agentctl, and with --hub those of the hub and its agents",
		Args:  none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := ownVersion()
			if withHub {
				h, err := conn.hub()
				if err != nil {
					return err
				}
				if v.Hub, err = h.versions(cmd.Context()); err != nil {
					return h.explain(err, "read the hub's versions")
				}
			}
			return v.print(std, output.value)
		},
	}
	cmd.Flags().BoolVar(&withHub, "hub", false, "also that of the hub's Kubernetes, and those that the agents reported")
	addEnumFlag(cmd, output, "output", "o", "print as json or yaml")
	return cmd
}

// versions are what version prints.
type versions struct {
	Version   string       `json:"version"`
	Revision  string       `json:"revision"`
	GoVersion string       `json:"goVersion"`
	Hub       *hubVersions `json:"hub,omitempty"`
}

// hubVersions are those of a hub.
type hubVersions struct {
	Kubernetes string `json:"kubernetes"`
	// Agents says how many agents reported each version; an agent that was never there none.
	Agents map[string]int `json:"agents"`
}

func ownVersion() versions {
	info := buildinfo.Read()
	return versions{Version: info.Version, Revision: info.Revision, GoVersion: info.GoVersion}
}

// versions reads those of the hub.
func (h *hub) versions(ctx context.Context) (*hubVersions, error) {
	raw, err := h.rest.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var server version.Info
	if err := json.Unmarshal(raw, &server); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	out := &hubVersions{Kubernetes: server.GitVersion, Agents: map[string]int{}}
	return out, eachOf(ctx, h.agents, func(obj *unstructured.Unstructured) error {
		agent, err := parseAgent(obj)
		if err == nil && agent.Status.Versions.Agent != "" {
			out.Agents[agent.Status.Versions.Agent]++
		}
		return err
	})
}

func (v versions) print(std streams, format string) error {
	if format != "" {
		return (&output{oneOf: oneOf{value: format}}).structured(std.out, v)
	}
	lines := fmt.Sprintf("agentctl %s\n", buildinfo.Read())
	if v.Hub != nil {
		lines += fmt.Sprintf("hub      Kubernetes %s\n", v.Hub.Kubernetes)
		for _, of := range slices.Sorted(maps.Keys(v.Hub.Agents)) {
			lines += fmt.Sprintf("agents   %s (%d)\n", of, v.Hub.Agents[of])
		}
	}
	_, err := fmt.Fprint(std.out, lines)
	return err
}

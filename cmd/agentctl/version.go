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

	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
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
	cmd.Flags().BoolVar(&withHub, "hub", false, "also those of the hub's Kubernetes and principal, and those that the agents reported")
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
	// Principal is empty where no principal has said it, or who asks may not read it.
	Principal string `json:"principal,omitempty"`
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
	if said, err := h.configMaps.Get(ctx, hubstate.ConfigMap, metav1.GetOptions{}); err == nil {
		out.Principal, _, _ = unstructured.NestedString(said.Object, "data", hubstate.VersionKey)
	}
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
	_, err := fmt.Fprint(std.out, lines)
	return err
}

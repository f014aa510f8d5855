package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
)

func newVersionCommand(std streams) *cobra.Command {
	output := &oneOf{allowed: []string{"json", "yaml"}}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of agentctl",
		Args:  none,
		RunE: func(*cobra.Command, []string) error {
			return printVersion(std, output.value)
		},
	}
	addEnumFlag(cmd, output, "output", "o", "print as json or yaml")
	return cmd
}

func printVersion(std streams, format string) error {
	info := buildinfo.Read()
	if format == "" {
		_, err := fmt.Fprintf(std.out, "agentctl %s\n", info)
		return err
	}
	raw, err := json.MarshalIndent(map[string]string{
		"version":   info.Version,
		"revision":  info.Revision,
		"goVersion": info.GoVersion,
	}, "", "  ")
	if err != nil {
		return err
	}
	raw = append(raw, '\n')
	if format == "yaml" {
		if raw, err = yaml.JSONToYAML(raw); err != nil {
			return err
		}
	}
	_, err = std.out.Write(raw)
	return err
}

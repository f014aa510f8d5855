package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/xds"
)

func newEnvoyCommand(std cli.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "envoy",
		Short: "Set up the Envoy beside the principal",
		Args:  cli.NoCommand,
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(newEnvoyBootstrapCommand(std))
	return cmd
}

// bootstrapFlags are those of `agentctl envoy bootstrap`.
type bootstrapFlags struct {
	nodeID                         string
	xds, workloadAPI, admin, stats string
	memory                         string
	maxConnections                 uint32
	output                         string
}

func newEnvoyBootstrapCommand(std cli.Streams) *cobra.Command {
	var flags bootstrapFlags
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Print the configuration Envoy starts with",
		Long: `bootstrap prints, as YAML, the configuration with which the Envoy beside the
principal starts. It reaches no hub. All else Envoy gets from the principal:

  agentctl envoy bootstrap > envoy.yaml
  envoy --config-path envoy.yaml --disable-hot-restart

In the Helm chart an init container makes it, with --output, since its image has no
shell.

Addresses are unix:///path or ip:port. Those of the principal's xDS, of the Workload
API and of Envoy's own admin interface must be unix sockets or on loopback.`,
		Args: cli.None,
		RunE: func(*cobra.Command, []string) error { return printBootstrap(std, flags) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.nodeID, "node-id", xds.DefaultNodeID, "what Envoy says it is: the principal's envoy.node_id")
	f.StringVar(&flags.xds, "xds", "unix:///run/argomesh/xds.sock", "where the principal serves xDS: its envoy.listen")
	f.StringVar(&flags.workloadAPI, "workload-api", "unix:///run/spire/agent/api.sock",
		"where the Workload API serves secrets to Envoy")
	f.StringVar(&flags.admin, "admin", "unix:///run/argomesh/envoy-admin.sock",
		"Envoy's admin interface, which can stop it")
	f.StringVar(&flags.stats, "stats", "",
		"where kubelet and Prometheus get /ready and /stats/prometheus, such as 0.0.0.0:9902")
	f.StringVar(&flags.memory, "memory", "1Gi",
		"heap at which Envoy accepts nothing more; less than the container's limit")
	f.StringVar(&flags.output, "output", "-", "file to write, replaced as a whole; - for standard output")
	f.Uint32Var(&flags.maxConnections, "max-connections", xds.DefaultMaxConnections,
		"open connections of all listeners at a time")
	return cmd
}

func printBootstrap(std cli.Streams, flags bootstrapFlags) error {
	cfg := xds.BootstrapConfig{NodeID: flags.nodeID, MaxConnections: flags.maxConnections}
	for _, a := range []struct {
		flag, value string
		into        *mesh.Address
	}{
		{"xds", flags.xds, &cfg.XDS},
		{"workload-api", flags.workloadAPI, &cfg.WorkloadAPI},
		{"admin", flags.admin, &cfg.Admin},
		{"stats", flags.stats, &cfg.Stats},
	} {
		if err := a.into.UnmarshalText([]byte(a.value)); err != nil {
			return fmt.Errorf("--%s: %w", a.flag, err)
		}
	}
	memory, err := resource.ParseQuantity(flags.memory)
	if err != nil || memory.Value() < xds.MinMemory {
		return fmt.Errorf("--memory: %q is not enough memory: use a quantity of %dMi or more, such as 1Gi", flags.memory,
			xds.MinMemory>>20)
	}
	cfg.MaxMemory = uint64(memory.Value())
	if cfg.MaxConnections == 0 {
		return fmt.Errorf("--max-connections: 0 admits no connection: use 1 or more")
	}
	bootstrap, err := xds.Bootstrap(cfg)
	if err != nil {
		return err
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(bootstrap)
	if err != nil {
		return err
	}
	// Through a value, since protojson varies its white space on purpose.
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return err
	}
	if raw, err = yaml.Marshal(value); err != nil {
		return err
	}
	if flags.output == "-" {
		_, err = std.Out.Write(raw)
		return err
	}
	return replaceFile(flags.output, raw)
}

// replaceFile writes a file that others find complete or not at all.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".agentctl-*")
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("--output: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// Package chartvalues are the values of the chart argomesh-agent that follow from an Agent on the
// hub, and the flags that say which principal they are for.
package chartvalues

import (
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/accesswords"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/identity"
)

// AddPrincipalFlags adds --principal and --principal-id.
func AddPrincipalFlags(cmd *cobra.Command, address, id *string) {
	cmd.Flags().StringVar(address, "principal", "",
		"host and port where the spoke reaches the principal, for the values of its chart")
	cmd.Flags().StringVar(id, "principal-id", "",
		"SPIFFE ID of the principal, or of the gateway before it, for those values")
	for _, name := range []string{"principal", "principal-id"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
}

// CheckPrincipal refuses what is no address or no SPIFFE ID; empty ones are not known.
func CheckPrincipal(address, id string) error {
	if address != "" && !isAddress(address) {
		return fmt.Errorf("--principal %q: host:port is expected", address)
	}
	if id == "" {
		return nil
	}
	if _, err := identity.ParseID(id); err != nil {
		return fmt.Errorf("--principal-id: %w", err)
	}
	return nil
}

func isAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	return err == nil && host != "" && port != ""
}

// addressAnnotation is that of the principal's Service which says where agents reach it, in place of its load balancer.
const addressAnnotation = "argomesh.io/address"

// OfAddress returns the values of the chart argomesh-principal by which [FindPrincipal] finds an address of it.
func OfAddress(address string) (map[string]any, error) {
	if !isAddress(address) {
		return nil, fmt.Errorf("--address %q: host:port is expected, such as argomesh.hub.example:443", address)
	}
	annotations := map[string]any{addressAnnotation: address}
	return map[string]any{"service": map[string]any{"annotations": annotations}}, nil
}

// OfAgent returns the values of the chart argomesh-agent for a registered agent, and for a
// principal at that address, of that SPIFFE ID.
func OfAgent(agent *v1alpha1.Agent, principal, principalID string) map[string]any {
	settings := map[string]any{
		"name": agent.Name, "mode": string(agent.Spec.Mode),
		"principal": map[string]any{"address": principal, "spiffe_ids": []any{principalID}},
	}
	if access := agent.Spec.Access; access != nil && access.Enabled {
		on := map[string]any{}
		for _, s := range accesswords.All() {
			if s.On(access) {
				key, value := valuesOf(s.Name)
				on[key] = value
			}
		}
		settings["access"] = on
	}
	var further []any
	if agent.Spec.Mapping != nil {
		for _, mapped := range agent.Spec.Mapping.Namespaces {
			if mapped.Spoke != "" {
				further = append(further, mapped.Spoke)
			}
		}
	}
	if len(further) > 0 {
		settings["mapping"] = map[string]any{"namespaces": further}
	}
	return map[string]any{"config": settings}
}

// valuesOf is a switch of live access, on, in the agent's own configuration.
func valuesOf(name string) (key string, value any) {
	switch name {
	case accesswords.Read:
		return "enabled", true
	case accesswords.Masked:
		return "secrets", string(v1alpha1.SecretsMasked)
	}
	return strings.ReplaceAll(name, "-", "_"), true
}

// YAML returns what OfAgent does, as YAML.
func YAML(agent *v1alpha1.Agent, principal, principalID string) (string, error) {
	raw, err := yaml.Marshal(OfAgent(agent, principal, principalID))
	return string(raw), err
}

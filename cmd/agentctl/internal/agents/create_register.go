package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh/spire"
)

// addRegisterFlags adds --register and what goes with it.
func (c *createCommand) addRegisterFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&c.register, "register", false, "register the SPIFFE ID with SPIRE as well")
	flags.StringVar(&c.spire.Rules.ExplicitPath, "register-kubeconfig", "",
		"with --register: kubeconfig of the cluster of spire-controller-manager (default that of the hub)")
	flags.StringVar(&c.spire.Overrides.CurrentContext, "register-context", "",
		"with --register: context of that cluster (default that of the hub)")
	cli.Register(cmd, "register-context", c.spire.CompleteContexts)
	c.registrar.AddFlags(cmd)
}

// checkRegister refuses flags that mean nothing without --register.
func (c *createCommand) checkRegister(cmd *cobra.Command) error {
	if c.register {
		return nil
	}
	var err error
	meaningless := slices.Concat(registration.WorkloadFlagNames, registration.ServerFlagNames,
		[]string{"register-kubeconfig", "register-context"})
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && slices.Contains(meaningless, f.Name) {
			err = fmt.Errorf("--%s: it goes with --register, which registers the SPIFFE ID with SPIRE", f.Name)
		}
	})
	return err
}

// registering is what is to be registered with SPIRE for one agent. The zero value is
// nothing.
type registering struct {
	registration spire.Registration
	objects      []*unstructured.Unstructured
	entries      []spire.Entry
}

// identities returns what is to be registered; nothing without --register.
func (c *createCommand) identities(agent *v1alpha1.Agent) (registering, error) {
	if !c.register {
		return registering{}, nil
	}
	name, err := identity.ParseAgentName(agent.Name)
	if err != nil {
		return registering{}, err
	}
	r, err := c.registrar.Registration(name, agent.Spec.Identity.SPIFFEIDs, false)
	if err != nil {
		return registering{}, err
	}
	objects, entries, err := c.registrar.Render(r)
	return registering{registration: r, objects: objects, entries: entries}, err
}

// registerAll registers what there is, and says so; beside the output proper if that is
// an object.
func (c *createCommand) registerAll(ctx context.Context, ids registering) error {
	if !c.register {
		return nil
	}
	conn := c.conn
	if c.spire.Rules.ExplicitPath != "" || c.spire.Overrides.CurrentContext != "" {
		conn = c.spire
		if conn.Rules.ExplicitPath == "" {
			conn.Rules.ExplicitPath = c.conn.Rules.ExplicitPath
		}
		conn.Overrides.Timeout = c.conn.Overrides.Timeout
	}
	lines := c.std.Out
	if c.output.Value != "" {
		lines = c.std.Err
	}
	return c.registrar.Apply(ctx, conn, lines, ids.registration, ids.objects, ids.entries)
}

// printAll prints what would be made.
func (c *createCommand) printAll(agent *unstructured.Unstructured, ids registering) error {
	const would = "created (dry run)"
	switch {
	case !c.register:
		return c.output.Done(c.std.Out, agent, would)
	case ids.entries != nil && c.output.Value != "":
		return errors.New("--output: entries of a SPIRE server are not Kubernetes objects; leave it out, or --spire-server")
	case c.output.Value != "":
		return c.output.Objects(c.std.Out, append([]*unstructured.Unstructured{agent}, ids.objects...))
	}
	if err := c.output.Done(c.std.Out, agent, would); err != nil {
		return err
	}
	if ids.entries != nil {
		return registration.PrintDiff(c.std.Out, spire.PlanEntries(identity.AgentName{}, ids.entries, nil))
	}
	return registration.PrintDiff(c.std.Out, spire.PlanObjects(identity.AgentName{}, ids.objects, nil))
}

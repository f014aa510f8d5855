package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh/spire"
)

// addRegisterFlags adds --register and what goes with it.
func (c *createCommand) addRegisterFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&c.register, "register", false, "register the SPIFFE ID with SPIRE as well")
	flags.StringVar(&c.spire.rules.ExplicitPath, "register-kubeconfig", "", "with --register: kubeconfig of the cluster of spire-controller-manager (default that of the hub)")
	flags.StringVar(&c.spire.overrides.CurrentContext, "register-context", "", "with --register: context of that cluster (default that of the hub)")
	register(cmd, "register-context", c.spire.completeContexts)
	c.registrar.addFlags(cmd)
}

// checkRegister refuses flags that mean nothing without --register.
func (c *createCommand) checkRegister(cmd *cobra.Command) error {
	if c.register {
		return nil
	}
	var err error
	meaningless := slices.Concat(workloadFlagNames, spireServerFlagNames, []string{"register-kubeconfig", "register-context"})
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && slices.Contains(meaningless, f.Name) {
			err = fmt.Errorf("--%s: it goes with --register, which registers the SPIFFE ID with SPIRE", f.Name)
		}
	})
	return err
}

// identities is what is to be registered with SPIRE for one agent. The zero value is
// nothing.
type identities struct {
	registration spire.Registration
	objects      []*unstructured.Unstructured
	entries      []spire.Entry
}

// identities returns what is to be registered; nothing without --register.
func (c *createCommand) identities(agent *v1alpha1.Agent) (identities, error) {
	if !c.register {
		return identities{}, nil
	}
	name, err := identity.ParseAgentName(agent.Name)
	if err != nil {
		return identities{}, err
	}
	r, err := c.registrar.registration(name, agent.Spec.Identity.SPIFFEIDs, false)
	if err != nil {
		return identities{}, err
	}
	objects, entries, err := c.registrar.render(r)
	return identities{registration: r, objects: objects, entries: entries}, err
}

// registerAll registers what there is, and says so; beside the output proper if that is
// an object.
func (c *createCommand) registerAll(ctx context.Context, ids identities) error {
	if !c.register {
		return nil
	}
	conn := c.conn
	if c.spire.rules.ExplicitPath != "" || c.spire.overrides.CurrentContext != "" {
		conn = c.spire
		if conn.rules.ExplicitPath == "" {
			conn.rules.ExplicitPath = c.conn.rules.ExplicitPath
		}
		conn.overrides.Timeout = c.conn.overrides.Timeout
	}
	lines := c.std.out
	if c.output.value != "" {
		lines = c.std.err
	}
	return c.registrar.apply(ctx, conn, lines, ids.registration, ids.objects, ids.entries)
}

// printAll prints what would be made.
func (c *createCommand) printAll(agent *unstructured.Unstructured, ids identities) error {
	const would = "created (dry run)"
	switch {
	case !c.register:
		return c.output.done(c.std.out, agent, would)
	case ids.entries != nil && c.output.value != "":
		return errors.New("--output: entries of a SPIRE server are no objects; leave it out, or --spire-server")
	case c.output.value != "":
		return c.output.objects(c.std.out, append([]*unstructured.Unstructured{agent}, ids.objects...))
	}
	if err := c.output.done(c.std.out, agent, would); err != nil {
		return err
	}
	if ids.entries != nil {
		return printDiff(c.std.out, spire.PlanEntries(identity.AgentName{}, ids.entries, nil))
	}
	return printDiff(c.std.out, spire.PlanObjects(identity.AgentName{}, ids.objects, nil))
}

package agents

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/accesswords"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// Registration is the Agent that a command needs on the hub, and registers where it is not there
// yet: the flags of `agentctl agent create` that say what it is.
type Registration struct {
	mode *cli.OneOf
	ask  wanted
}

// AddFlags adds --mode and the flags of the Agent's settings.
func (r *Registration) AddFlags(cmd *cobra.Command) {
	r.mode = &cli.OneOf{Value: string(v1alpha1.ModeManaged),
		Allowed: []string{string(v1alpha1.ModeManaged), string(v1alpha1.ModeAutonomous)}}
	cli.AddEnumFlag(cmd, r.mode, "mode", "", "which side owns the Applications: managed (the hub) or autonomous (the spoke)")
	r.ask.settings.addFlags(cmd)
}

// Given reports whether a flag says what the Agent is.
func (r *Registration) Given() bool {
	return r.ask.settings.flags.Changed("mode") || len(r.ask.settings.given()) > 0
}

// HasIdentity reports whether the flags say which SPIFFE ID the agent has.
func (r *Registration) HasIdentity() bool {
	return r.ask.settings.flags.Changed("trust-domain") || r.ask.settings.flags.Changed("spiffe-id")
}

// Ensure returns the Agent of the hub of that name; where there is none it is created, unless it
// is a dry run, with live access for reading where no flag says otherwise. What is there has to
// be as the flags say. created says that it was not there.
func (r *Registration) Ensure(ctx context.Context, h *cli.Hub, name string,
	dryRun bool) (agent *v1alpha1.Agent, created bool, err error) {
	doing := fmt.Sprintf("register agent %q", name)
	there, err := h.Agents.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		agent, err = r.checked(there)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", doing, err)
		}
		return agent, false, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, false, h.Explain(err, doing)
	}
	if !r.HasIdentity() {
		return nil, false, fmt.Errorf("agent %q is not registered with the hub: --trust-domain is missing, that of the spoke"+
			" (or --spiffe-id), to register it", name)
	}
	r.ask.name, r.ask.mode = name, r.mode.Value
	wants, err := r.ask.agent()
	if err != nil {
		return nil, false, err
	}
	if !r.ask.settings.flags.Changed("access") {
		if wants.Spec.Access, err = accesswords.Change(nil, []string{accesswords.Read}); err != nil {
			return nil, false, err
		}
	}
	wants.Namespace = h.Namespace
	obj, err := toUnstructured(wants)
	if err != nil {
		return nil, false, err
	}
	opts := metav1.CreateOptions{FieldManager: "agentctl", FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	made, err := h.Agents.Create(ctx, obj, opts)
	if err != nil {
		return nil, false, h.Explain(err, doing)
	}
	agent, err = cli.ParseAgent(made)
	return agent, true, err
}

// checked returns an Agent that is there, if it is as the flags say.
func (r *Registration) checked(there *unstructured.Unstructured) (*v1alpha1.Agent, error) {
	agent, err := cli.ParseAgent(there)
	if err != nil {
		return nil, err
	}
	if agent.DeletionTimestamp != nil {
		return nil, errors.New("it exists and is being deleted: try again when it is gone")
	}
	want := agent.DeepCopy()
	if r.ask.settings.flags.Changed("mode") {
		want.Spec.Mode = v1alpha1.AgentMode(r.mode.Value)
	}
	return agent, r.ask.sameAs(there, want)
}

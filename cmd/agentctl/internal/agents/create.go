package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/chartvalues"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/specs"
	"github.com/argomesh/argomesh/identity"
)

type createCommand struct {
	std     cli.Streams
	conn    *cli.Connection
	output  *cli.Output
	mode    *cli.OneOf
	dryRun  *cli.OneOf
	ask     wanted
	wait    bool
	timeout time.Duration
	// register says that the identity is registered with SPIRE as well, by registrar in
	// the cluster of spire.
	register  bool
	registrar registration.Registrar
	spire     *cli.Connection
}

// wanted is what a person asks for on the command line.
type wanted struct {
	name     string
	mode     string
	settings settings
	// principal and principalID are where the spoke reaches the hub, and whom it expects there.
	principal   string
	principalID string
}

func newCreateCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &createCommand{
		std: std, conn: conn,
		output: cli.NewOutput(append(cli.ObjectFormats(), installFormat)...),
		mode:   &cli.OneOf{Allowed: []string{string(v1alpha1.ModeManaged), string(v1alpha1.ModeAutonomous)}},
		dryRun: &cli.OneOf{Value: cli.DryRunNone, Allowed: []string{cli.DryRunNone, cli.DryRunClient, cli.DryRunServer}},
		spire:  cli.NewConnection(std.Err),
	}
	c.registrar.DryRun = c.dryRun
	cmd := &cobra.Command{
		Use:   "create NAME --mode MODE (--spiffe-id ID... | --trust-domain NAME)",
		Short: "Register an agent",
		Long: "Register an agent with the hub, and say what comes next: the values of the agent's chart, and\n" +
			"which ApplicationSets select the new cluster.\n\n" +
			"Doing it again changes nothing: what no flag names stays as it is. What a flag names and the\n" +
			"Agent has otherwise is refused, and \"agentctl agent set\" is the way.\n\n" +
			"With --register its SPIFFE ID is registered with SPIRE as well, as \"agentctl identity\n" +
			"register\" does: the flags from --serviceaccount on say for which workload, and where.",
		Example: "  # An agent whose Applications are written on the hub\n" +
			"  agentctl agent create edge-1 --mode managed --trust-domain example.org --wait\n\n" +
			"  # An agent whose SPIFFE ID is given\n" +
			"  agentctl agent create edge-2 --mode autonomous --spiffe-id spiffe://edge.example/ns/argocd/sa/agent\n\n" +
			"  # A manifest to keep in git\n" +
			"  agentctl agent create edge-3 --mode managed --trust-domain example.org --dry-run=client -o yaml\n\n" +
			"  # A file for who installs the spoke and has no access to the hub: agentctl spoke install --from edge-3.yaml\n" +
			"  agentctl agent create edge-3 --mode managed --trust-domain example.org -o install > edge-3.yaml\n\n" +
			"  # With its identity, in the cluster of the spoke\n" +
			"  agentctl agent create edge-4 --mode managed --trust-domain edge.example --register \\\n" +
			"    --register-context edge-4 --serviceaccount argocd:argomesh-agent --federates-with hub.example",
		Args:              cli.Names(true),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.ask.name, c.ask.mode = args[0], c.mode.Value
			if err := cmp.Or(c.checkRegister(cmd), chartvalues.CheckPrincipal(c.ask.principal, c.ask.principalID)); err != nil {
				return err
			}
			return c.run(cmd.Context())
		},
	}
	c.output.AddFlag(cmd)
	cli.AddEnumFlag(cmd, c.mode, "mode", "",
		"which side owns the Applications: managed (the hub) or autonomous (the spoke)")
	cli.AddEnumFlag(cmd, c.dryRun, "dry-run", "",
		"client: only print what would be sent; server: let the hub check it and store nothing")
	flags := cmd.Flags()
	c.ask.settings.addFlags(cmd)
	chartvalues.AddPrincipalFlags(cmd, &c.ask.principal, &c.ask.principalID)
	flags.BoolVar(&c.wait, "wait", false, "wait until the principal has made the cluster Secret")
	flags.DurationVar(&c.timeout, "timeout", time.Minute, "how long --wait waits")
	cli.Register(cmd, "timeout", cobra.NoFileCompletions)
	c.addRegisterFlags(cmd)
	return cmd
}

func (c *createCommand) run(ctx context.Context) error {
	agent, err := c.ask.agent()
	if err != nil {
		return err
	}
	if c.wait && c.dryRun.Value != cli.DryRunNone {
		return errors.New("--wait: nothing happens after --dry-run, so there is nothing to wait for; leave one out")
	}
	if c.output.Value == installFormat && c.dryRun.Value == cli.DryRunClient {
		return errors.New("-o install: a dry run of the client does not look at the hub; leave one out")
	}
	agent.Namespace = c.conn.Namespace
	obj, err := toUnstructured(agent)
	if err != nil {
		return err
	}
	identities, err := c.identities(agent)
	if err != nil {
		return err
	}
	if c.dryRun.Value == cli.DryRunClient {
		return c.printAll(obj, identities)
	}
	h, err := c.conn.Hub()
	if err != nil {
		return err
	}
	stored, what, err := c.store(ctx, h, agent, obj)
	if err != nil {
		return err
	}
	if err := c.registerAll(ctx, identities); err != nil {
		return fmt.Errorf("agent %q is %s, but its identity is not registered: %w; then do the same again", agent.Name, what,
			err)
	}
	if c.wait {
		if stored, err = waitReady(ctx, h, stored, c.timeout); err != nil {
			return err
		}
	}
	if c.output.Value == installFormat {
		return c.installFile(ctx, stored)
	}
	if err := c.output.Done(c.std.Out, stored, what); err != nil {
		return err
	}
	return c.next(ctx, h, stored)
}

// store creates the Agent, or finds that it is there with the same spec.
func (c *createCommand) store(ctx context.Context, h *cli.Hub, agent *v1alpha1.Agent,
	obj *unstructured.Unstructured) (*unstructured.Unstructured, string, error) {
	doing := fmt.Sprintf("create agent %q", agent.Name)
	opts := metav1.CreateOptions{FieldManager: "agentctl", FieldValidation: metav1.FieldValidationStrict}
	what := "created"
	if c.dryRun.Value == cli.DryRunServer {
		opts.DryRun = []string{metav1.DryRunAll}
		what = "created (server dry run)"
	}
	created, err := h.Agents.Create(ctx, obj, opts)
	if err == nil {
		return created, what, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, "", h.Explain(err, doing)
	}
	there, err := h.Agents.Get(ctx, agent.Name, metav1.GetOptions{})
	if err != nil {
		return nil, "", h.Explain(err, doing)
	}
	if err := c.ask.sameAs(there, agent); err != nil {
		return nil, "", fmt.Errorf("%s: %w", doing, err)
	}
	return there, "unchanged", nil
}

// sameAs returns nil when there, on the hub, says what the flags do. What they do not name
// may be anything.
func (r wanted) sameAs(there *unstructured.Unstructured, want *v1alpha1.Agent) error {
	have, err := cli.ParseAgent(there)
	if err != nil {
		return err
	}
	if have.DeletionTimestamp != nil {
		return errors.New("it exists and is being deleted: try again when it is gone")
	}
	name, err := identity.ParseAgentName(want.Name)
	if err != nil {
		return err
	}
	asked := have.DeepCopy()
	asked.Spec.Mode = want.Spec.Mode
	if err := r.settings.apply(name, &asked.Spec); err != nil {
		return err
	}
	differences, err := specs.Diff(have.Spec, asked.Spec)
	if err != nil {
		return err
	}
	if len(differences) == 0 {
		return nil
	}
	cure := fmt.Sprintf("change that with %q",
		strings.Join(append([]string{"agentctl agent set", want.Name}, r.settings.given()...), " "))
	if have.Spec.Mode != want.Spec.Mode {
		cure = fmt.Sprintf("a mode cannot be changed, so \"agentctl agent delete %s\" comes first", want.Name)
	}
	return fmt.Errorf("it exists with other settings: %s; %s", strings.Join(differences, ", "), cure)
}

// agent returns the Agent asked for. The error names the flag that is wrong.
func (r wanted) agent() (*v1alpha1.Agent, error) {
	name, err := identity.ParseAgentName(r.name)
	if err != nil {
		return nil, fmt.Errorf("the name of the agent: %w", err)
	}
	ids, err := cli.SpiffeIDsOf(name, r.settings.spiffeIDs, r.settings.trustDomain)
	if err != nil {
		return nil, err
	}
	agent := &v1alpha1.Agent{
		ObjectMeta: metav1.ObjectMeta{Name: name.String()},
		Spec: v1alpha1.AgentSpec{
			Mode: v1alpha1.AgentMode(r.mode), Identity: v1alpha1.AgentIdentity{SPIFFEIDs: ids},
			DeletionPolicy: v1alpha1.DeletionOrphan,
		},
	}
	if err := r.settings.apply(name, &agent.Spec); err != nil {
		return nil, err
	}
	if r.mode == "" {
		return nil,
			errors.New("--mode is missing: managed when Applications are written on the hub, autonomous when on the spoke")
	}
	agent.SetGroupVersionKind(v1alpha1.AgentGroupVersionKind)
	return agent, nil
}

// toUnstructured returns agent as it is sent and printed: without the empty
// status and creation time of the Go type.
func toUnstructured(agent *v1alpha1.Agent) (*unstructured.Unstructured, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(agent)
	if err != nil {
		return nil, err
	}
	delete(m, "status")
	unstructured.RemoveNestedField(m, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: m}, nil
}

package install

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/agents"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/chartvalues"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/project"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/rights"
	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh/spire"
)

// ofHub returns the hub, and the Agent there, or as it will be once it is registered; nil without
// --hub-context. What the flags do not say of the principal is filled in.
func (c *spokeCommand) ofHub(ctx context.Context, s *side, name string) (*cli.Hub, *v1alpha1.Agent, error) {
	if c.hubContext == "" {
		return nil, nil, nil
	}
	conn := c.conn.In(c.hubContext)
	hub, err := conn.HubIn(c.hub)
	if err != nil {
		return nil, nil, err
	}
	if err := isOf(ctx, s, hub); err != nil {
		return nil, nil, err
	}
	agent, registers, err := c.agent.Ensure(ctx, hub, name, true) // the API server tries it, and stores nothing yet
	if c.registers = registers; err != nil {
		return nil, nil, err
	}
	if c.options.hubKeepsDefault, err = project.KeepsDefault(ctx, hub); err != nil {
		return nil, nil, err
	}
	address, id := c.principal, c.principalID
	chartvalues.FindPrincipal(ctx, conn, c.hub, &address, &id)
	return hub, agent, c.toPrincipal(s, address, id)
}

// toPrincipal has the agent be told of the principal that was found, as far as neither a flag nor an
// installation that is there says who it is. An agent of another hub is not taken from it.
func (c *spokeCommand) toPrincipal(s *side, address, id string) error {
	is, err := s.releases.Observe(s.chart)
	if err != nil {
		return s.explain(err, "look for "+s.chart)
	}
	if c.principalID == "" {
		if err := sameHub(peerOf(is.Values), id); err != nil {
			return err
		}
		if peerOf(is.Values) == "" {
			c.principalID = id
		}
	}
	if c.principal == "" && !has(is.Values, "config", "principal", "address") {
		c.principal = address
	}
	return nil
}

// isOf refuses a spoke whose agent was welcomed by another hub. What is not known is no other.
func isOf(ctx context.Context, s *side, hub *cli.Hub) error {
	there, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, agentconfig.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return s.explain(err, "read ConfigMap "+agentconfig.Name)
	}
	said, err := hub.ConfigMaps.Get(ctx, hubstate.ConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return hub.Explain(err, "read ConfigMap "+hubstate.ConfigMap)
	}
	was := there.Data[agentconfig.HubKey]
	is, _, _ := unstructured.NestedString(said.Object, "data", hubstate.UIDKey)
	if was == "" || is == "" || was == is {
		return nil
	}
	return fmt.Errorf("the agent there is of another hub, whose UID is %s, and that of this one is %s: is it the right --context and"+
		" --hub-context? To move the spoke, remove the agent first by \"agentctl spoke uninstall\"; if this hub has taken the place of"+
		" that one, let the agent connect to it once", was, is)
}

// sameHub refuses to have an agent be told of a principal when it is told of one of another trust domain;
// empty for none.
func sameHub(was, is string) error {
	if was == "" || is == "" {
		return nil
	}
	before, err := identity.ParseID(was)
	if err != nil {
		return fmt.Errorf("config.principal.spiffe_ids of the agent that is there: %w", err)
	}
	now, err := identity.ParseID(is)
	if err != nil || before.TrustDomain() == now.TrustDomain() {
		return err
	}
	return fmt.Errorf("the agent there is of another hub, whose principal is %s, and that of this one is %s: is it the right --context"+
		" and --hub-context? To move the spoke, remove the agent first by \"agentctl spoke uninstall\"", was, is)
}

// planHub plans what is to be on the hub before the agent is installed, and returns what does it, and says what that
// will do.
func (c *spokeCommand) planHub(ctx context.Context, s *side, hub *cli.Hub, agent *v1alpha1.Agent,
	apps project.Plan) (do func(context.Context) error, will []string, err error) {
	var trust federated
	if c.options.identity.register && c.agent.HasIdentity() {
		trust, err = c.federate.plan(ctx, s.conn, s.conn.In(c.hubContext), &c.options.identity, c.peer,
			agent.Spec.Identity.SPIFFEIDs)
	}
	if c.registers {
		will = append(will, fmt.Sprintf("agent %s will be registered with the hub", agent.Name))
	}
	return func(ctx context.Context) error {
		if err := c.register(ctx, s, hub, agent.Name); err != nil {
			return err
		}
		dryRun := c.options.dryRun.Value != cli.DryRunNone
		if err := apps.Do(ctx, s.std.Out, dryRun); err != nil {
			return err
		}
		return trust.do(ctx, s, dryRun)
	}, slices.Concat(will, apps.Will(), trust.will()), err
}

// register registers the agent with the hub, if it is not.
func (c *spokeCommand) register(ctx context.Context, s *side, hub *cli.Hub, name string) error {
	dryRun := c.options.dryRun.Value != cli.DryRunNone
	_, created, err := c.agent.Ensure(ctx, hub, name, dryRun)
	switch {
	case err != nil || !created:
		return err
	case dryRun:
		return s.say("agent %s is registered with the hub (server dry run)", name)
	}
	return s.say("agent %s is registered with the hub", name)
}

// finish waits until the hub shows the agent connected, and says what is next.
func (c *spokeCommand) finish(ctx context.Context, s *side, hub *cli.Hub, name string) error {
	if c.quiet {
		return nil
	}
	if !c.options.noWait {
		if err := agents.WaitConnected(ctx, hub, name, "", c.options.timeout); err != nil {
			return err
		}
		if err := s.say("agent %s is connected to the hub", name); err != nil {
			return err
		}
	}
	return s.say("next: agentctl agent get %s --context %s -n %s", name, c.hubContext, c.hub)
}

// lackingOnHub returns the rights that the user of the hub's context does not have.
func (c *spokeCommand) lackingOnHub(ctx context.Context, federates bool) ([]string, error) {
	if c.hubContext == "" {
		return nil, nil
	}
	conn := c.conn.In(c.hubContext)
	config, client, err := conn.Client()
	if err != nil {
		return nil, err
	}
	needs := rights.To("get,create", v1alpha1.GroupName, "agents", c.hub)
	if c.options.project != "" {
		r := cli.ProjectResource
		needs = append(needs, rights.To("get,create", r.Group, r.Resource, c.hub)...)
	}
	if federates {
		needs = append(needs, rights.OfSPIRE(spire.ClusterFederatedTrustDomainKind, spire.ClusterSPIFFEIDKind)...)
	}
	lacks, err := rights.Missing(ctx, client, "hub", needs)
	if err != nil {
		return nil, cli.ExplainAPI(err, "ask for rights", "hub", config.Host)
	}
	return lacks, nil
}

package agents

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/chartvalues"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/federation"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/generators"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh/spire"
)

// next says which ApplicationSets select the cluster, and what a person does next. It is said
// beside the output proper; for a program, that asks for a format, the former alone.
func (c *createCommand) next(ctx context.Context, h *cli.Hub, stored *unstructured.Unstructured) error {
	agent, err := cli.ParseAgent(stored)
	if err != nil {
		return err
	}
	text, err := describeSets(ctx, h, agent)
	if err != nil {
		return err
	}
	if c.output.Value == "" && c.dryRun.Value == cli.DryRunNone {
		steps, err := c.ask.steps(agent)
		if err != nil {
			return err
		}
		text += steps
	}
	_, err = fmt.Fprint(c.std.Err, text)
	return err
}

// installFormat is that of the file for "agentctl spoke install --from".
const installFormat = "install"

// installFile prints what who installs the spoke needs.
func (c *createCommand) installFile(ctx context.Context, stored *unstructured.Unstructured) error {
	agent, err := cli.ParseAgent(stored)
	if err != nil {
		return err
	}
	chartvalues.FindPrincipal(ctx, c.conn, c.conn.Namespace, &c.ask.principal, &c.ask.principalID)
	file, err := chartvalues.FileOf(agent, c.ask.principal, c.ask.principalID)
	if err != nil {
		return fmt.Errorf("agent %q is registered, but: %w", agent.Name, err)
	}
	if err := file.Write(c.std.Out); err != nil {
		return err
	}
	for _, line := range c.federating(ctx, agent) {
		if _, err := fmt.Fprintln(c.std.Err, cli.CleanText(line)); err != nil {
			return err
		}
	}
	return nil
}

// federating says what the hub's side does so that the principal trusts an agent of another trust domain, since who has
// the file has no access to the hub. Where the hub cannot be asked, it says nothing.
func (c *createCommand) federating(ctx context.Context, agent *v1alpha1.Agent) (lines []string) {
	principal, err := identity.ParseID(c.ask.principalID)
	if err != nil || len(agent.Spec.Identity.SPIFFEIDs) == 0 {
		return nil
	}
	of, err := identity.ParseID(agent.Spec.Identity.SPIFFEIDs[0])
	if err != nil || of.TrustDomain() == principal.TrustDomain() {
		return nil
	}
	objects, err := registration.NewObjects(c.conn)
	if err != nil {
		return nil
	}
	if note, err := federation.OneSided(ctx, objects, "hub", "spoke", of.TrustDomain()); err == nil && note != "" {
		lines = append(lines, note)
	}
	const label = spire.RegistrationLabel + "=" + chartvalues.PrincipalRegistration
	there, err := objects.List(ctx, spire.ClusterSPIFFEIDKind, label)
	if err != nil {
		return lines
	}
	for _, obj := range there {
		partners, _, _ := unstructured.NestedStringSlice(obj.Object, "spec", "federatesWith")
		if !slices.Contains(partners, of.TrustDomain().Name()) {
			lines = append(lines, fmt.Sprintf("ClusterSPIFFEID %s of the principal does not name %s: add it to"+
				" spec.federatesWith, once the SPIRE of the hub trusts it", obj.GetName(), of.TrustDomain()))
		}
	}
	return lines
}

// describeSets names the ApplicationSets of the hub that select the cluster of an agent.
func describeSets(ctx context.Context, h *cli.Hub, agent *v1alpha1.Agent) (string, error) {
	name, err := identity.ParseAgentName(agent.Name)
	if err != nil {
		return "", err
	}
	sets, err := generators.List(ctx, h)
	if err != nil {
		return fmt.Sprintf("Which ApplicationSets select the cluster cannot be read: %s.\n", cli.OneLine(err)), nil
	}
	labels := controller.ClusterLabels(name, agent.Spec.Labels)
	var out strings.Builder
	for _, set := range sets {
		switch generators.Chooses(set, labels) {
		case generators.Selected:
			fmt.Fprintf(&out, "ApplicationSet %s/%s selects the cluster %s by its labels.\n", set.GetNamespace(), set.GetName(),
				agent.Name)
		case generators.MaybeSelected:
			fmt.Fprintf(&out,
				"ApplicationSet %s/%s may select the cluster %s: that depends on what its other generators give.\n",
				set.GetNamespace(), set.GetName(), agent.Name)
		case generators.NotSelected:
		}
	}
	return out.String(), nil
}

// steps says what comes after a registration.
func (r wanted) steps(agent *v1alpha1.Agent) (string, error) {
	values, err := chartvalues.YAML(agent, cmp.Or(r.principal, noPrincipal), cmp.Or(r.principalID, noPrincipalID))
	if err != nil {
		return "", err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "Next, on the spoke, with these values in %s.yaml:\n\n", agent.Name)
	for _, line := range strings.Split(strings.TrimSuffix(values, "\n"), "\n") {
		fmt.Fprintf(&out, "  %s\n", line)
	}
	fmt.Fprintf(&out, "\n  agentctl spoke install %s --values %s.yaml\n\n", agent.Name, agent.Name)
	if r.principal == "" || r.principalID == "" {
		fmt.Fprintf(&out,
			"--principal and --principal-id fill in where the principal is, and who. The file alone prints\n  agentctl agent values %s --principal HOST:PORT --principal-id ID\n\n", agent.Name)
	}
	if agent.Spec.Access == nil || !agent.Spec.Access.Enabled {
		fmt.Fprintf(&out,
			"The hub has no live access to this spoke, which logs, trees and new Applications need:\n  agentctl agent set %s --access read\n\n", agent.Name)
	}
	fmt.Fprintf(&out, "Then, on the hub:\n  kubectl --namespace %s wait agent/%s --for=condition=Connected\n",
		agent.Namespace, agent.Name)
	return out.String(), nil
}

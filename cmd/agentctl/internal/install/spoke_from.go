package install

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/chartvalues"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// checkFrom refuses flags that have no meaning where a file says who the agent and its principal are.
func (c *spokeCommand) checkFrom() error {
	if c.agent.Given() {
		return errors.New("--from: the file says what the Agent is: leave out what is said on the hub, such as --mode" +
			" and --trust-domain")
	}
	var vain []string
	for _, name := range []string{"hub-context", "hub-namespace", "principal", "principal-id", "hub-bundle-endpoint",
		"spoke-bundle-endpoint", "project"} {
		if c.flags.Changed(name) {
			vain = append(vain, "--"+name)
		}
	}
	if len(vain) > 0 {
		return fmt.Errorf("--from: the file says who the principal is, and the hub is not at hand: leave out %s",
			strings.Join(vain, ", "))
	}
	return c.options.checkOutput()
}

// runFrom installs by a file that the hub's side wrote.
func (c *spokeCommand) runFrom(ctx context.Context) error {
	if err := c.checkFrom(); err != nil {
		return err
	}
	file, err := chartvalues.ReadFile(c.from, c.std.In)
	if err != nil {
		return err
	}
	s := &side{std: c.std, conn: c.conn, chart: charts.Agent, namespace: c.conn.Namespace}
	if err := s.connect(); err != nil {
		return err
	}
	words, err := file.AccessWords()
	if err != nil {
		return err
	}
	if len(words) > 0 {
		if err := s.say("the file lets the hub have live access: %s", strings.Join(words, ", ")); err != nil {
			return err
		}
	}
	config, _ := file.Values["config"].(map[string]any)
	mode, _ := config["mode"].(string)
	if err := c.fromSameHub(s, file.PrincipalID); err != nil {
		return err
	}
	if err := c.hasRights(ctx, s, file.Values); err != nil {
		return err
	}
	c.ids, c.principalID = file.SPIFFEIDs, file.PrincipalID
	if missing, err := c.bring(ctx, s, file.Name, mode, file.Values); err != nil || missing {
		return err
	}
	if err := s.check(ctx, &c.options, file.Values); err != nil {
		return err
	}
	w, err := c.planned(ctx, s, file.Values)
	if err != nil {
		return err
	}
	if w.told, err = projectFor(ctx, s, &c.options, nil, file.Name, w.values); err != nil {
		return err
	}
	if c.options.identity.register {
		if w.identity, err = c.identityFrom(ctx, s, file); err != nil {
			return err
		}
	}
	if c.options.outputDir != "" {
		return s.writeSpoke(ctx, &c.options, w, file.Name, nil)
	}
	if err := s.install(ctx, &c.options, w); err != nil || c.options.dryRun.Value != cli.DryRunNone {
		return err
	}
	return s.say("next, on the hub: agentctl agent get %s", file.Name)
}

// identityFrom plans the registration of the agent of a file, and says what has to be done first where its
// hub has another trust domain.
func (c *spokeCommand) identityFrom(ctx context.Context, s *side, file chartvalues.File) (*registering, error) {
	r, err := agentRegistration(file.Name, file.SPIFFEIDs, file.PrincipalID)
	if err != nil {
		return nil, err
	}
	out, err := s.planIdentity(ctx, &c.options.identity, r)
	if err != nil {
		return nil, err
	}
	for _, hub := range r.FederatesWith {
		if err := c.federate.withoutHub(ctx, s, hub, r.IDs[0].TrustDomain()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fromSameHub refuses a file of another hub than that of the agent that is there.
func (c *spokeCommand) fromSameHub(s *side, id string) error {
	is, err := s.releases.Observe(s.chart)
	if err != nil {
		return s.explain(err, "look for "+s.chart)
	}
	return sameHub(peerOf(is.Values), id)
}

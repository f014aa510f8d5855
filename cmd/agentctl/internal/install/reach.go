package install

import (
	"context"
	"slices"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/check"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/images"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
)

// principalOf is where an agent with such values reaches its principal.
func principalOf(values map[string]any) check.Principal {
	config, _ := values["config"].(map[string]any)
	principal, _ := config["principal"].(map[string]any)
	return check.Principal{
		Address: text(principal, "address"), ID: peerOf(values), Gateway: principal["gateway"] != nil,
	}
}

// reachable has a pod of the spoke, like those of the agent, try the way to the principal, where the agent is to be
// told of one that it does not have yet, unless pods are not waited for. It refuses one that is not reached, or is
// another.
func (c *spokeCommand) reachable(ctx context.Context, s *side, p release.Plan) error {
	to := principalOf(p.Values)
	if c.options.noWait || to == principalOf(p.State.Values) {
		return nil
	}
	like, err := p.Pods()
	if err != nil {
		return err
	}
	image := images.Beside(like, p.AppVersion)
	if image == "" {
		return s.say("principal %s is not tried from the spoke, since the image of agentctl is not known: give --registry,"+
			" or run \"agentctl check path %s\" there", to.Address, to.Address)
	}
	if err := s.say("a pod of the spoke tries the way to principal %s", to.Address); err != nil {
		return err
	}
	found := check.PathJob{Client: s.client, Namespace: s.namespace, Image: image, Like: like}.Run(ctx, to)
	if !slices.ContainsFunc(found, func(f check.Finding) bool { return f.Level != check.Fine }) {
		return s.say("%s", found[0])
	}
	return s.refuse(&c.options, found)
}

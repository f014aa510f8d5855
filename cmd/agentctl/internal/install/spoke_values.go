package install

import (
	"errors"

	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/chartvalues"
)

// baseOf are the values that follow from the Agent on the hub; it is nil if the hub is not known.
func (c *spokeCommand) baseOf(name string, agent *v1alpha1.Agent) map[string]any {
	base := map[string]any{"config": map[string]any{"name": name}}
	if agent != nil {
		base = loader.MergeMaps(base, c.valuesOf(agent))
	}
	return base
}

// valuesOf returns the values that follow from the Agent on the hub.
func (c *spokeCommand) valuesOf(agent *v1alpha1.Agent) map[string]any {
	values := chartvalues.OfAgent(agent, c.principal, c.principalID)
	of, _ := values["config"].(map[string]any)["principal"].(map[string]any)
	if c.principal == "" { // what was given once is kept
		delete(of, "address")
	}
	if c.principalID == "" {
		delete(of, "spiffe_ids")
	}
	return values
}

// over returns base with what the flags say laid over it.
func (c *spokeCommand) over(base map[string]any) (map[string]any, error) {
	if c.options.registry != "" {
		base["image"] = c.options.image("agent")
	}
	return c.options.merged(base)
}

// given is over, and refuses values without an image.
func (c *spokeCommand) given(s *side, base map[string]any) (map[string]any, error) {
	values, err := c.over(base)
	if err != nil {
		return nil, err
	}
	return values, hasImages(s, values)
}

// hasImages refuses an installation whose image is in no registry: ours has none that is public.
func hasImages(s *side, values map[string]any) error {
	is, err := s.releases.Observe(s.chart)
	if err != nil {
		return s.explain(err, "look for "+s.chart)
	}
	if !has(loader.MergeMaps(is.Values, values), "image", "repository") {
		return errors.New("--registry is missing: where the images are that \"make images\" made, such as" +
			" registry.example/argomesh")
	}
	return nil
}

// hasPrincipal refuses values that do not say where the principal is, and who.
func hasPrincipal(known map[string]any) error {
	if has(known, "config", "principal", "address") && has(known, "config", "principal", "spiffe_ids") {
		return nil
	}
	return errors.New("--principal and --principal-id are missing: where the spoke reaches the principal, and the" +
		" SPIFFE ID that it has there")
}

// peerOf returns whom the agent with such values is to meet, the first of them; "" for no one.
func peerOf(values map[string]any) string {
	config, _ := values["config"].(map[string]any)
	principal, _ := config["principal"].(map[string]any)
	ids, _ := principal["spiffe_ids"].([]any)
	if len(ids) == 0 {
		return ""
	}
	id, _ := ids[0].(string)
	return id
}

package install

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/project"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
)

// shareFromHub has a hub that is installed for the first time send AppProject default to its spokes, unless
// the values say what it is to do.
func shareFromHub(s *side, o *options, values map[string]any) (map[string]any, error) {
	first, err := isFirst(s)
	if err != nil || !first || !o.shareDefault || has(values, "config", "projects", "share_default") {
		return values, err
	}
	projects := map[string]any{"share_default": true}
	return loader.MergeMaps(map[string]any{"config": map[string]any{"projects": projects}}, values), nil
}

// shareOnSpoke has a managed spoke whose agent is installed for the first time take AppProject default from
// the hub, unless the values say what it adopts, the hub keeps its own, or an owner has changed the spoke's.
func shareOnSpoke(ctx context.Context, s *side, o *options, values map[string]any) (map[string]any, error) {
	first, err := isFirst(s)
	if err != nil || !first || !o.shareDefault || o.hubKeepsDefault || has(values, "config", "policy", "adopt") {
		return values, err
	}
	config, _ := values["config"].(map[string]any)
	if config["mode"] != string(v1alpha1.ModeManaged) {
		return values, nil
	}
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		return nil, err
	}
	stock, err := project.HasStockDefault(ctx, client, s.namespace)
	if err != nil {
		return nil, s.explain(err, "look at AppProject "+project.Default)
	}
	if !stock {
		return values, s.say("AppProject %s of the spoke is not as Argo CD makes it, so it stays: Applications of the hub"+
			" need another project, or set config.policy.adopt to [%s]", project.Default, project.AdoptDefault)
	}
	policy := map[string]any{"adopt": []any{project.AdoptDefault}}
	return loader.MergeMaps(map[string]any{"config": map[string]any{"policy": policy}}, values), nil
}

// isFirst reports whether there is no release of the chart yet.
func isFirst(s *side) (bool, error) {
	is, err := s.releases.Observe(s.chart)
	if err != nil {
		return false, s.explain(err, "look for "+s.chart)
	}
	return is.Revision == 0, nil
}

// projectFor returns what a person is told on a first install of a managed spoke that does not have AppProject default
// in common with its hub: an AppProject that fits. Hub is nil where it is not at hand.
func projectFor(ctx context.Context, s *side, o *options, hub *cli.Hub, name string,
	known map[string]any) (lines []string, err error) {
	config, _ := known["config"].(map[string]any)
	policy, _ := config["policy"].(map[string]any)
	adopt, _ := policy["adopt"].([]any)
	first, err := isFirst(s)
	if err != nil || !first || o.project != "" || config["mode"] != string(v1alpha1.ModeManaged) ||
		project.Adopts(adopt) && !o.hubKeepsDefault {
		return nil, err
	}
	by, namespace, cure := hubstate.ByDestination, s.namespace, "make one there, such as this"
	if hub != nil {
		namespace, cure = hub.Namespace, "--project NAME makes one there, such as this"
		if by, err = project.MappingOf(ctx, hub); err != nil {
			return nil, err
		}
	}
	text, err := project.Text(project.For(name, namespace, name, by))
	if err != nil {
		return nil, err
	}
	return append(lines, fmt.Sprintf("AppProject %s of the hub is not that of this spoke, so Applications of the hub"+
		" need another one: %s:", project.Default, cure), strings.TrimSuffix(text, "\n")), nil
}

// planProject plans for --project, on the hub.
func planProject(ctx context.Context, o *options, hub *cli.Hub, agent *v1alpha1.Agent) (project.Plan, error) {
	switch {
	case o.project == "" || hub == nil:
		return project.Plan{}, nil
	case agent.Spec.Mode != v1alpha1.ModeManaged:
		return project.Plan{}, errors.New("--project: an autonomous agent has AppProjects of its spoke: leave it out")
	case o.project == project.Default:
		return project.Plan{}, errors.New("--project default: whether that is shared, config.projects.share_default" +
			" of the principal says: name another one")
	}
	return project.New(ctx, hub, o.project, agent.Name)
}

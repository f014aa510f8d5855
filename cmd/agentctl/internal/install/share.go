package install

import (
	"context"
	"reflect"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
)

// defaultProject is the AppProject that Applications are of which name none; Argo CD makes it.
const defaultProject = "default"

// adoptDefault is what a spoke's policy.adopt has to name for that to be the hub's.
const adoptDefault = "appproject/" + defaultProject

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
	stock, err := hasStockDefault(ctx, s)
	if err != nil {
		return nil, err
	}
	if !stock {
		return values, s.say("AppProject %s of the spoke is not as Argo CD makes it, so it stays: Applications of the hub"+
			" need another project, or set config.policy.adopt to [%s]", defaultProject, adoptDefault)
	}
	policy := map[string]any{"adopt": []any{adoptDefault}}
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

// stockDefault is the spec with which Argo CD makes AppProject default: it admits all.
func stockDefault() map[string]any {
	return map[string]any{
		"sourceRepos":              []any{"*"},
		"destinations":             []any{map[string]any{"server": "*", "namespace": "*"}},
		"clusterResourceWhitelist": []any{map[string]any{"group": "*", "kind": "*"}},
	}
}

// hasStockDefault reports whether AppProject default is as Argo CD makes it, or is still to be made.
func hasStockDefault(ctx context.Context, s *side) (bool, error) {
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		return false, err
	}
	found, err := client.Resource(cli.ProjectResource).Namespace(s.namespace).Get(ctx, defaultProject, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, s.explain(err, "look at AppProject "+defaultProject)
	}
	return reflect.DeepEqual(found.Object["spec"], any(stockDefault())), nil
}

// keepsDefault reports whether a hub says that it does not send AppProject default. One that says nothing yet
// is being installed.
func keepsDefault(ctx context.Context, hub *cli.Hub) (bool, error) {
	said, err := hub.ConfigMaps.Get(ctx, hubstate.ConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, hub.Explain(err, "read ConfigMap "+hubstate.ConfigMap)
	}
	is, _, _ := unstructured.NestedString(said.Object, "data", hubstate.DefaultProjectKey)
	return is == string(hubstate.NotShared) || is == string(hubstate.NoLongerShared), nil
}

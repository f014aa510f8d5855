// Package project has AppProjects by which Applications of a hub are on one agent, where the hub does not share
// AppProject default with it: one that fits, and the making of it.
//
//	plan, err := project.New(ctx, hub, "edge-1-apps", "edge-1")
//	err = plan.Do(ctx, os.Stdout, false)
package project

import (
	"context"
	"fmt"
	"io"
	"path"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/backends/glob"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
)

// Default is the AppProject that Applications are of which name none; Argo CD makes it.
const Default = "default"

// AdoptDefault is what a spoke's policy.adopt has to name for that to be the hub's.
const AdoptDefault = "appproject/" + Default

// Adopts reports whether a spoke whose policy.adopt has these patterns takes AppProject default from its hub.
func Adopts(patterns []any) bool {
	return slices.ContainsFunc(patterns, func(p any) bool {
		pattern, _ := p.(string)
		matches, err := path.Match(pattern, AdoptDefault)
		return err == nil && matches
	})
}

// For returns an AppProject of a hub that admits Applications for one agent: of any repository, into any namespace of
// the spoke, and of what is in no namespace, namespaces. By is by what the hub tells whose an Application is.
func For(name, namespace, agent string, by hubstate.Mapping) *unstructured.Unstructured {
	spec := map[string]any{
		"description":              "Applications of the hub on agent " + agent,
		"sourceRepos":              []any{"*"},
		"destinations":             []any{map[string]any{"name": agent, "namespace": "*"}},
		"clusterResourceWhitelist": []any{map[string]any{"group": "", "kind": "Namespace"}},
	}
	if by == hubstate.ByNamespace {
		spec["sourceNamespaces"] = []any{agent}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": cli.ProjectResource.GroupVersion().String(), "kind": "AppProject",
		"metadata": map[string]any{"name": name, "namespace": namespace}, "spec": spec,
	}}
}

// Lacks says what an AppProject that is there lacks of what [For] has for an agent; "" for nothing.
func Lacks(there *unstructured.Unstructured, agent string, by hubstate.Mapping) string {
	destinations, _, _ := unstructured.NestedSlice(there.Object, "spec", "destinations")
	sources, _, _ := unstructured.NestedStringSlice(there.Object, "spec", "sourceNamespaces")
	switch {
	case !slices.ContainsFunc(destinations, func(d any) bool {
		destination, _ := d.(map[string]any)
		name, _ := destination["name"].(string)
		return name != "" && glob.Matches(name, agent)
	}):
		return fmt.Sprintf("a destination with name %s (spec.destinations)", agent)
	case by == hubstate.ByNamespace && !mapping.MatchesNamespace(sources, agent):
		return fmt.Sprintf("namespace %s (spec.sourceNamespaces)", agent)
	}
	return ""
}

// MappingOf returns by what a hub tells whose an Application is: where it says nothing of it, as a new one does.
func MappingOf(ctx context.Context, hub *cli.Hub) (hubstate.Mapping, error) {
	said, err := hub.ConfigMaps.Get(ctx, hubstate.ConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return hubstate.ByDestination, nil
	}
	if err != nil {
		return "", hub.Explain(err, "read ConfigMap "+hubstate.ConfigMap)
	}
	by, _, _ := unstructured.NestedString(said.Object, "data", hubstate.MappingKey)
	if by == string(hubstate.ByNamespace) {
		return hubstate.ByNamespace, nil
	}
	return hubstate.ByDestination, nil
}

// Text is an AppProject as YAML.
func Text(o *unstructured.Unstructured) (string, error) {
	raw, err := yaml.Marshal(o.Object)
	return string(raw), err
}

// Plan is what has a hub have an AppProject for an agent. The zero value is nothing.
type Plan struct {
	hub *cli.Hub
	// Object is the one that is made; nil for one that is there.
	Object *unstructured.Unstructured
}

// New plans for an agent, and has the API server try it. One that is there is left as it is, if it admits the agent's
// Applications, and else refused.
func New(ctx context.Context, hub *cli.Hub, name, agent string) (Plan, error) {
	by, err := MappingOf(ctx, hub)
	if err != nil {
		return Plan{}, err
	}
	there, err := hub.Projects.Namespace(hub.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		if lacks := Lacks(there, agent, by); lacks != "" {
			return Plan{}, fmt.Errorf("--project %s: AppProject %[1]s is on the hub and lacks %s: add that, or name"+
				" another one", name, lacks)
		}
		return Plan{}, nil
	}
	if !apierrors.IsNotFound(err) {
		return Plan{}, cli.ExplainAPI(err, "look for AppProject "+name, "hub", hub.Host)
	}
	p := Plan{hub: hub, Object: For(name, hub.Namespace, agent, by)}
	return p, p.create(ctx, true)
}

// Will says, before it is done, what Do will do.
func (p Plan) Will() []string {
	if p.Object == nil {
		return nil
	}
	return []string{fmt.Sprintf("AppProject %s will be created on the hub", p.Object.GetName())}
}

// Do carries the plan out, or says what it would do.
func (p Plan) Do(ctx context.Context, out io.Writer, dryRun bool) error {
	if p.Object == nil {
		return nil
	}
	how := ""
	if dryRun {
		how = " (server dry run)"
	} else if err := p.create(ctx, false); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "AppProject %s created on the hub%s\n", p.Object.GetName(), how)
	return err
}

func (p Plan) create(ctx context.Context, dryRun bool) error {
	opts := metav1.CreateOptions{FieldManager: "agentctl", FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	_, err := p.hub.Projects.Namespace(p.hub.Namespace).Create(ctx, p.Object, opts)
	if err == nil || !dryRun && apierrors.IsAlreadyExists(err) {
		return nil
	}
	return cli.ExplainAPI(err, "create AppProject "+p.Object.GetName(), "hub", p.hub.Host)
}

// stockDefault is the spec with which Argo CD makes AppProject default: it admits all.
func stockDefault() map[string]any {
	return map[string]any{
		"sourceRepos":              []any{"*"},
		"destinations":             []any{map[string]any{"server": "*", "namespace": "*"}},
		"clusterResourceWhitelist": []any{map[string]any{"group": "*", "kind": "*"}},
	}
}

// HasStockDefault reports whether AppProject default of a namespace is as Argo CD makes it, or is still to be made.
func HasStockDefault(ctx context.Context, client dynamic.Interface, namespace string) (bool, error) {
	found, err := client.Resource(cli.ProjectResource).Namespace(namespace).Get(ctx, Default, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return reflect.DeepEqual(found.Object["spec"], any(stockDefault())), nil
}

// KeepsDefault reports whether a hub says that it does not send AppProject default. One that says nothing yet
// is being installed.
func KeepsDefault(ctx context.Context, hub *cli.Hub) (bool, error) {
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

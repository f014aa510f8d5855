//go:build linux

package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// TestHubStaysWithinThePolicy has a hub that wants a binding to cluster-admin on a spoke
// whose owner bounds its namespaces and leaves out override: by a project that was there
// before the owner did so, by a new one, by one whose service accounts sync, by manifests
// of an operation and by another revision. On the spoke Argo CD's own controller deploys.
// What the Application says is synced as ever, a commit included that the controller has
// not seen yet; and the policy opened, the same sync makes the binding.
func TestHubStaysWithinThePolicy(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnArgo(t), t.Context()
	c := newCommander(t, w)
	const bindPath, accounts = "bind", "destinationServiceAccounts"
	first, err := c.repository.Commit(ctx, "a binding", map[string]string{bindPath + "/binding.yaml": binding("owned-by-source")})
	if err != nil {
		t.Fatal(err)
	}
	within := []any{map[string]any{"name": env.Managed, "namespace": "owner-*"}}
	everything := []any{map[string]any{"group": "*", "kind": "*"}}
	in := func(project, name, path string) {
		t.Helper()
		app := c.app(env.Managed, name, path)
		spec := app.Object["spec"].(map[string]any)
		spec["project"] = project
		delete(spec, "syncPolicy") // its namespace is there
		env.Create(t, w.OnHub(env.Managed), app)
		c.remove(env.Managed, name)
	}
	outOfSync := func(name string) {
		t.Helper()
		env.Eventually(t, "the hub shows that "+name+" is out of sync", func() error {
			return env.FieldIs(ctx, w.OnHub(env.Managed), name, "OutOfSync", "status", "sync", "status")
		})
	}
	wide := []any{within[0], map[string]any{"name": env.Managed, "namespace": "kube-system"}}
	teamProject(t, w, "owner-there", map[string]any{"destinations": wide, "clusterResourceWhitelist": everything})
	in("owner-there", "owner-cut", bindPath)
	outOfSync("owner-cut")

	bounded := map[string]any{
		"destination_namespaces": []string{"owner-*"}, "service_accounts": []string{"owner"},
		"operations": []string{"sync", "refresh", "terminate"},
	}
	ownersPolicy(t, w, bounded)
	env.Eventually(t, "the hub names by path what the project lacks", func() error {
		agent, err := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, env.Managed, metav1.GetOptions{})
		if err != nil {
			return err
		}
		shortened, _, _ := unstructured.NestedSlice(agent.Object, "status", "shortened") // the environment's own project is there too
		if !slices.ContainsFunc(shortened, func(o any) bool {
			return reflect.DeepEqual(o, map[string]any{
				"kind": "AppProject", "namespace": harness.ArgoCDNamespace, "name": "owner-there",
				"paths": []any{"spec.clusterResourceWhitelist[0]", "spec.destinations[1]"},
			})
		}) {
			return fmt.Errorf("it names %v", shortened)
		}
		return nil
	})
	c.sync(env.Managed, "owner-cut", nil)
	c.shows(env.Managed, "owner-cut", "Failed", "not permitted in project owner-there")

	for name, beyond := range map[string]struct {
		spec map[string]any
		says string
	}{
		"owner-kinds": {
			map[string]any{"clusterResourceWhitelist": everything},
			`policy.cluster_resources of the spoke does not allow cluster resource "*/*" of the project`,
		},
		"owner-accounts": {
			map[string]any{accounts: []any{map[string]any{"server": "*", "namespace": "owner-*", "defaultServiceAccount": "kube-system:master"}}},
			`policy.service_accounts of the spoke does not allow service account "kube-system:master" of the project`,
		},
	} {
		spec := map[string]any{"destinations": within, "clusterResourceWhitelist": []any{}}
		maps.Copy(spec, beyond.spec)
		hubProject(t, w, name, spec)
		in(name, name, bindPath)
		env.Eventually(t, "the hub says why "+name+" is not on the spoke", func() error {
			return env.ConditionSays(ctx, w.OnHub(env.Managed), name, "ArgomeshError", `AppProject "`+name+`" of the hub is not on the spoke: `+beyond.says)
		})
		if err := errors.Join(env.Gone(ctx, w.Edge1.Resource(harness.AppProjects, harness.ArgoCDNamespace), name), env.Gone(ctx, w.OnSpoke(env.Managed), name)); err != nil {
			t.Error(err)
		}
	}

	teamProject(t, w, "owner-web", map[string]any{"destinations": within, "clusterResourceWhitelist": []any{}})
	in("owner-web", "owner-shop", quickPath)
	outOfSync("owner-shop")
	const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: commanded}\ndata: {text: two}\n"
	second, err := c.repository.Commit(ctx, "what the controller has not seen", map[string]string{quickPath + "/configmap.yaml": configMap})
	if err != nil {
		t.Fatal(err)
	}
	c.sync(env.Managed, "owner-shop", map[string]any{"prune": true})
	c.shows(env.Managed, "owner-shop", "Succeeded", "")
	deployed := func() error {
		return errors.Join(
			env.FieldIs(ctx, w.OnSpoke(env.Managed), "owner-shop", second, "status", "operationState", "syncResult", "revision"),
			env.FieldIs(ctx, w.Edge1.Resource(env.ConfigMaps, "owner-shop"), "commanded", "two", "data", "text"),
		)
	}
	if err := deployed(); err != nil {
		t.Error(err)
	}
	for says, sync := range map[string]map[string]any{
		"manifests of its own":                      {"manifests": []any{binding("owned-by-operation")}},
		"sources other than those":                  {"prune": true, "source": map[string]any{"repoURL": c.repository.URL, "path": bindPath}},
		`revision "` + first + `", which the spoke`: {"revision": first},
	} {
		env.Patch(t, w.OnHub(env.Managed), "owner-shop", map[string]any{"operation": map[string]any{"sync": sync}})
		c.shows(env.Managed, "owner-shop", "Error", "policy.operations of the spoke does not allow override, and the operation has "+says)
	}
	c.ran(env.Managed, "owner-shop", 1)
	if err := errors.Join(deployed(), owned(ctx, w)); err != nil {
		t.Error(err)
	}

	opened := maps.Clone(bounded)
	opened["destination_namespaces"], opened["cluster_resources"] = []string{"owner-*", "kube-system"}, []string{"*/*"}
	ownersPolicy(t, w, opened)
	env.Eventually(t, "the spoke has the whole project", func() error {
		return env.FieldIs(ctx, w.Edge1.Resource(harness.AppProjects, harness.ArgoCDNamespace), "owner-there", everything, "spec", "clusterResourceWhitelist")
	})
	c.sync(env.Managed, "owner-cut", nil)
	c.shows(env.Managed, "owner-cut", "Succeeded", "")
	if err := w.Edge1.Resource(clusterRoleBindings, "").Delete(ctx, "owned-by-source", metav1.DeleteOptions{}); err != nil {
		t.Errorf("what the policy admits is not there: %v", err)
	}
}

// ownersPolicy runs the agent of the managed spoke with these fields of its policy set,
// for as long as the test runs.
func ownersPolicy(t *testing.T, w *env.Argo, fields map[string]any) {
	t.Helper()
	agent, ctx := w.Agents[env.Managed], context.WithoutCancel(t.Context())
	before, err := os.ReadFile(agent.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(before, &config); err != nil {
		t.Fatal(err)
	}
	maps.Copy(config["policy"].(map[string]any), fields)
	changed, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	restart := func(content []byte) error {
		return errors.Join(agent.Stop(ctx), os.WriteFile(agent.ConfigFile, content, 0o600), agent.Start(ctx))
	}
	t.Cleanup(func() {
		if err := restart(before); err != nil {
			t.Error(err)
		}
	})
	if err := restart(changed); err != nil {
		t.Fatal(err)
	}
}

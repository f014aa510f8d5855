//go:build linux

package sync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// refused is a check that the hub's Application says which rule of the spoke refused it;
// with an empty text, that it says of none.
func refused(ctx context.Context, r *env.BareAgent, name, text string) error {
	o, err := r.Hub.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	condition := env.ConditionIn(o, "ArgomeshError")
	message, _ := condition["message"].(string)
	if text == "" && condition != nil || !strings.Contains(message, text) {
		return fmt.Errorf("the condition of %s is %v", name, condition)
	}
	return nil
}

// TestPolicyOfSpoke lets the owner of a spoke forbid kinds, projects, namespaces and
// operations. Each refusal names its rule on the hub, where its author looks, and nothing
// of what was refused is on the spoke.
func TestPolicyOfSpoke(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	r := w.Register(t, "strict", "managed")
	r.Settings = harness.Settings{
		"policy.kinds":                  []string{"application", "appproject", "repository"},
		"policy.projects":               []string{"strict-*"},
		"policy.destination_namespaces": []string{"web-*"},
		"policy.operations":             []string{"refresh"},
	}
	r.Start(t)
	hubSecrets, hubProjects := w.Hub.Resource(env.Secrets, harness.ArgoCDNamespace), w.HubProjects()
	t.Cleanup(func() {
		for _, name := range []string{"strict-repo", "strict-template"} {
			_ = hubSecrets.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) // it may have gone
		}
		for _, name := range []string{"strict-web", "strict-all", "lax"} {
			_ = hubProjects.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{})
		}
	})
	const by = " of the spoke does not allow "

	// The hub's projects admit what the spoke does not.
	within := projectFor("strict-web", r.Name)
	within.Object["spec"].(map[string]any)["destinations"] = []any{map[string]any{"name": r.Name, "namespace": "web-*"}}
	env.Create(t, hubProjects, within)
	env.Create(t, hubProjects, projectFor("strict-all", r.Name)) // into all namespaces
	env.Create(t, hubProjects, projectFor("lax", r.Name))

	// Applications, by project and by namespace.
	application := func(name, project, namespace string) *unstructured.Unstructured {
		app := r.Application(name)
		spec := app.Object["spec"].(map[string]any)
		spec["project"], spec["destination"] = project, map[string]any{"name": r.Name, "namespace": namespace}
		return app
	}
	env.Create(t, r.Hub, application("by-project", "lax", "web-1"))
	env.Create(t, r.Hub, application("by-namespace", "strict-all", "kube-system"))
	env.Create(t, r.Hub, application("allowed", "strict-web", "web-1"))
	env.Eventually(t, "what is allowed arrives", func() error { return env.Exists(ctx, r.Spoke, "allowed") })
	env.Eventually(t, "the rule about projects is named", func() error { return refused(ctx, r, "by-project", "policy.projects"+by+`project "lax"`) })
	env.Eventually(t, "the rule about namespaces is named", func() error {
		return refused(ctx, r, "by-namespace", "policy.destination_namespaces"+by+`namespace "kube-system"`)
	})
	if err := errors.Join(refused(ctx, r, "allowed", ""), env.Gone(ctx, r.Spoke, "by-project"), env.Gone(ctx, r.Spoke, "by-namespace")); err != nil {
		t.Error(err)
	}
	env.Patch(t, r.Hub, "by-namespace", map[string]any{"spec": map[string]any{"project": "strict-web", "destination": map[string]any{"namespace": "web-2"}}})
	env.Eventually(t, "in a namespace that is allowed it arrives", func() error {
		return errors.Join(env.Exists(ctx, r.Spoke, "by-namespace"), refused(ctx, r, "by-namespace", ""))
	})

	// Kinds without conditions are named by the Agent.
	env.Create(t, hubSecrets, repositorySecret("strict-repo", "strict-web"))
	template := repositorySecret("strict-template", "strict-web")
	template.SetLabels(map[string]string{"argocd.argoproj.io/secret-type": "repo-creds"})
	env.Create(t, hubSecrets, template)
	onSpoke := w.Spoke.Resource(env.Secrets, r.Namespace)
	env.Eventually(t, "the project that is allowed arrives", func() error { return env.Exists(ctx, r.Projects(), "strict-web") })
	env.Eventually(t, "its repository arrives", func() error { return env.Exists(ctx, onSpoke, "strict-repo") })
	for name, text := range map[string]string{
		"strict-template": "policy.kinds" + by + "repo-creds",
		"strict-all":      "policy.destination_namespaces" + by + `destination "*" of the project`,
		"lax":             "policy.projects" + by + `project "lax"`,
	} {
		env.Eventually(t, "the Agent names the rule that refuses "+name, func() error { return r.Parked(ctx, name, text) })
	}
	if err := errors.Join(env.Gone(ctx, onSpoke, "strict-template"), env.Gone(ctx, r.Projects(), "strict-all"), env.Gone(ctx, r.Projects(), "lax")); err != nil {
		t.Error(err)
	}

	// Operations: one that may be asked for, one that ends where it was asked for.
	env.Patch(t, r.Hub, "allowed", map[string]any{"metadata": map[string]any{"annotations": map[string]any{"argocd.argoproj.io/refresh": "normal"}}})
	env.Eventually(t, "a refresh is passed on", func() error {
		return env.FieldIs(ctx, r.Spoke, "allowed", "normal", "metadata", "annotations", "argocd.argoproj.io/refresh")
	})
	env.Patch(t, r.Hub, "allowed", map[string]any{"operation": map[string]any{"sync": map[string]any{"revision": "1"}}})
	env.Eventually(t, "a sync ends with the rule that refused it", func() error {
		return errors.Join(
			env.FieldIs(ctx, r.Hub, "allowed", "Error", "status", "operationState", "phase"),
			env.FieldIs(ctx, r.Hub, "allowed", "not run by agent "+r.Name+": policy.operations"+by+"sync", "status", "operationState", "message"),
			env.FieldIs(ctx, r.Hub, "allowed", nil, "operation"),
		)
	})
	copied := env.Get(t, r.Spoke, "allowed")
	if state, _, _ := unstructured.NestedMap(copied.Object, "status", "operationState"); copied.Object["operation"] != nil || state != nil {
		t.Errorf("the spoke's copy has operation %v, state %v", copied.Object["operation"], state)
	}

	// A deletion with workloads is refused, one that leaves them passes.
	env.Patch(t, r.Hub, "allowed", map[string]any{"metadata": map[string]any{"finalizers": []any{env.Cascade}}})
	if err := r.Hub.Delete(ctx, "allowed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the rule about deletions with workloads is named", func() error {
		return refused(ctx, r, "allowed", "policy.operations"+by+"cascade")
	})
	if o := env.Get(t, r.Spoke, "allowed"); o.GetUID() != copied.GetUID() || o.GetDeletionTimestamp() != nil || len(o.GetFinalizers()) > 0 {
		t.Errorf("the spoke's copy is %v", o.Object["metadata"])
	}
	env.Patch(t, r.Hub, "allowed", map[string]any{"metadata": map[string]any{"finalizers": nil}})
	env.Eventually(t, "the hub's Application goes", func() error { return env.Gone(ctx, r.Hub, "allowed") })
	env.Eventually(t, "and the copy, without its workloads", func() error { return env.Gone(ctx, r.Spoke, "allowed") })
}

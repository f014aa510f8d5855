//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/harness"
)

// refused is a check that the hub's Application says which rule of the spoke refused it;
// with an empty text, that it says of none.
func (r *remote) refused(ctx context.Context, name, text string) error {
	o, err := r.hub.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	condition := conditionIn(o, "ArgomeshError")
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
	w, ctx := theQuietWorld(t), t.Context()
	r := w.register(t, "strict", "managed")
	r.settings = harness.Settings{
		"policy.kinds":                  []string{"application", "appproject", "repository"},
		"policy.projects":               []string{"strict-*"},
		"policy.destination_namespaces": []string{"web-*"},
		"policy.operations":             []string{"refresh"},
	}
	r.start(t)
	hubSecrets, hubProjects := w.hub.Resource(secrets, harness.ArgoCDNamespace), w.hubProjects()
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
	within := projectFor("strict-web", r.name)
	within.Object["spec"].(map[string]any)["destinations"] = []any{map[string]any{"name": r.name, "namespace": "web-*"}}
	create(t, hubProjects, within)
	create(t, hubProjects, projectFor("strict-all", r.name)) // into all namespaces
	create(t, hubProjects, projectFor("lax", r.name))

	// Applications, by project and by namespace.
	application := func(name, project, namespace string) *unstructured.Unstructured {
		app := r.application(name)
		spec := app.Object["spec"].(map[string]any)
		spec["project"], spec["destination"] = project, map[string]any{"name": r.name, "namespace": namespace}
		return app
	}
	create(t, r.hub, application("by-project", "lax", "web-1"))
	create(t, r.hub, application("by-namespace", "strict-all", "kube-system"))
	create(t, r.hub, application("allowed", "strict-web", "web-1"))
	eventually(t, "what is allowed arrives", func() error { return there(ctx, r.spoke, "allowed") })
	eventually(t, "the rule about projects is named", func() error { return r.refused(ctx, "by-project", "policy.projects"+by+`project "lax"`) })
	eventually(t, "the rule about namespaces is named", func() error {
		return r.refused(ctx, "by-namespace", "policy.destination_namespaces"+by+`namespace "kube-system"`)
	})
	if err := errors.Join(r.refused(ctx, "allowed", ""), gone(ctx, r.spoke, "by-project"), gone(ctx, r.spoke, "by-namespace")); err != nil {
		t.Error(err)
	}
	patch(t, r.hub, "by-namespace", map[string]any{"spec": map[string]any{"project": "strict-web", "destination": map[string]any{"namespace": "web-2"}}})
	eventually(t, "in a namespace that is allowed it arrives", func() error {
		return errors.Join(there(ctx, r.spoke, "by-namespace"), r.refused(ctx, "by-namespace", ""))
	})

	// Kinds without conditions are named by the Agent.
	create(t, hubSecrets, repositorySecret("strict-repo", "strict-web"))
	template := repositorySecret("strict-template", "strict-web")
	template.SetLabels(map[string]string{"argocd.argoproj.io/secret-type": "repo-creds"})
	create(t, hubSecrets, template)
	onSpoke := w.spoke.Resource(secrets, r.namespace)
	eventually(t, "the project that is allowed arrives", func() error { return there(ctx, r.projects(), "strict-web") })
	eventually(t, "its repository arrives", func() error { return there(ctx, onSpoke, "strict-repo") })
	for name, text := range map[string]string{
		"strict-template": "policy.kinds" + by + "repo-creds",
		"strict-all":      "policy.destination_namespaces" + by + `destination "*" of the project`,
		"lax":             "policy.projects" + by + `project "lax"`,
	} {
		eventually(t, "the Agent names the rule that refuses "+name, func() error { return r.parked(ctx, name, text) })
	}
	if err := errors.Join(gone(ctx, onSpoke, "strict-template"), gone(ctx, r.projects(), "strict-all"), gone(ctx, r.projects(), "lax")); err != nil {
		t.Error(err)
	}

	// Operations: one that may be asked for, one that ends where it was asked for.
	patch(t, r.hub, "allowed", map[string]any{"metadata": map[string]any{"annotations": map[string]any{"argocd.argoproj.io/refresh": "normal"}}})
	eventually(t, "a refresh is passed on", func() error {
		return field(ctx, r.spoke, "allowed", "normal", "metadata", "annotations", "argocd.argoproj.io/refresh")
	})
	patch(t, r.hub, "allowed", map[string]any{"operation": map[string]any{"sync": map[string]any{"revision": "1"}}})
	eventually(t, "a sync ends with the rule that refused it", func() error {
		return errors.Join(
			field(ctx, r.hub, "allowed", "Error", "status", "operationState", "phase"),
			field(ctx, r.hub, "allowed", "not run by agent "+r.name+": policy.operations"+by+"sync", "status", "operationState", "message"),
			field(ctx, r.hub, "allowed", nil, "operation"),
		)
	})
	copied := get(t, r.spoke, "allowed")
	if state, _, _ := unstructured.NestedMap(copied.Object, "status", "operationState"); copied.Object["operation"] != nil || state != nil {
		t.Errorf("the spoke's copy has operation %v, state %v", copied.Object["operation"], state)
	}

	// A deletion with workloads is refused, one that leaves them passes.
	patch(t, r.hub, "allowed", map[string]any{"metadata": map[string]any{"finalizers": []any{cascade}}})
	if err := r.hub.Delete(ctx, "allowed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rule about deletions with workloads is named", func() error {
		return r.refused(ctx, "allowed", "policy.operations"+by+"cascade")
	})
	if o := get(t, r.spoke, "allowed"); o.GetUID() != copied.GetUID() || o.GetDeletionTimestamp() != nil || len(o.GetFinalizers()) > 0 {
		t.Errorf("the spoke's copy is %v", o.Object["metadata"])
	}
	patch(t, r.hub, "allowed", map[string]any{"metadata": map[string]any{"finalizers": nil}})
	eventually(t, "the hub's Application goes", func() error { return gone(ctx, r.hub, "allowed") })
	eventually(t, "and the copy, without its workloads", func() error { return gone(ctx, r.spoke, "allowed") })
}

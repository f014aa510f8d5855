//go:build linux

package sync

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

var clusterRoleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}

// binding is the manifest that makes anyone who deploys it the master of a Kubernetes cluster.
// Manifests of an operation are JSON.
func binding(name string) string {
	return `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "` + name + `"},
"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
"subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "escape-web"}]}
`
}

// TestTenantStaysInItsProject has someone who may write Applications in one namespace of
// the hub, and nothing else, try to become cluster-admin of the spoke: by the projects
// default of hub and spoke, by one that is not there, by another namespace, and by what its
// own project does not permit, as sources and as manifests of an operation. On the spoke
// Argo CD's own controller deploys. Its project opened, the same Application does it.
func TestTenantStaysInItsProject(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnArgo(t), t.Context()
	projects := w.Hub.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	const in, name = "escape-web", "escape-tenant"
	confined := map[string]any{
		"sourceRepos": []any{"*"}, "sourceNamespaces": []any{env.Managed}, "clusterResourceWhitelist": []any{},
		"destinations": []any{map[string]any{"name": env.Managed, "namespace": in}},
	}
	narrow(t, w, env.Project, map[string]any{"sourceNamespaces": []any{env.Autonomous}})
	narrow(t, w, "default", map[string]any{"sourceNamespaces": []any{harness.ArgoCDNamespace}})
	ownersPolicy(t, w, map[string]any{"projects": []string{"*"}}) // which names no project of the spoke's own
	repository, err := w.Harness.NewRepository(ctx, "escape", map[string]string{"escape/binding.yaml": binding("owned-by-source")})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Edge1.EnsureNamespace(ctx, in); err != nil {
		t.Fatal(err)
	}
	teamProject(t, w, name, confined)
	tenant := tenant(t, w)
	if err := env.MergePatch(ctx, tenant.Resource(harness.AppProjects).Namespace(harness.ArgoCDNamespace), name, map[string]any{}); err == nil {
		t.Fatal("the tenant may write AppProjects")
	}
	applications := tenant.Resource(harness.Applications).Namespace(env.Managed)
	attempt := func(app, project, namespace string, automated bool) {
		t.Helper()
		o := w.Plain(app, env.Managed, env.Managed)
		spec := o.Object["spec"].(map[string]any)
		spec["project"], spec["destination"] = project, map[string]any{"name": env.Managed, "namespace": namespace}
		spec["source"] = map[string]any{"repoURL": repository.URL, "path": "escape", "targetRevision": harness.Branch}
		if automated {
			spec["syncPolicy"] = map[string]any{"automated": map[string]any{}}
		}
		env.Create(t, applications, o)
		t.Cleanup(func() { _ = applications.Delete(context.WithoutCancel(ctx), app, metav1.DeleteOptions{}) }) // it may have gone
	}
	attempt("by-default", "default", in, true)
	attempt("by-none", "nobodys", in, true)
	attempt("by-namespace", name, "kube-system", true)
	attempt("by-source", name, in, true)
	attempt("by-operation", name, in, false)
	refused := func(app, text string) {
		t.Helper()
		env.Eventually(t, "what holds "+app, func() error { return env.ConditionSays(ctx, applications, app, "ArgomeshError", text) })
	}
	refused("by-default", `AppProject "default" of the hub does not admit Applications of namespace `+env.Managed)
	refused("by-none", `AppProject "nobodys" does not exist on the hub`)
	refused("by-namespace", `AppProject "`+name+`" of the hub does not permit namespace "kube-system"`)
	// It has no identity to look at here, and says so.
	out, _ := w.Harness.Agentctl(ctx, w.Hub, "identity", "doctor", "--principal-config", w.Principal.ConfigFile, "--socket", "unix://"+filepath.Join(t.TempDir(), "none.sock"), "--timeout", "1s")
	for _, app := range []string{"by-default", "by-none", "by-namespace"} {
		if !strings.Contains(out, "Application "+env.Managed+"/"+app+" is not sent to agent "+env.Managed) {
			t.Errorf("doctor does not name %s:\n%s", app, out)
		}
	}
	if strings.Contains(out, "/by-source ") || strings.Contains(out, "/by-operation ") {
		t.Errorf("doctor names what is sent:\n%s", out)
	}

	env.Eventually(t, "the spoke's Argo CD refuses what the project does not permit", func() error {
		return says(ctx, applications, "by-source", "not permitted in project "+name, "status", "operationState", "message")
	})
	env.Eventually(t, "the other is there too", func() error { return env.Exists(ctx, w.OnSpoke(env.Managed), "by-operation") })
	env.Patch(t, applications, "by-operation", map[string]any{"operation": map[string]any{"sync": map[string]any{"manifests": []any{binding("owned-by-operation")}}}})
	env.Eventually(t, "and what an operation brings", func() error {
		return says(ctx, applications, "by-operation", "not permitted in project "+name, "status", "operationState", "message")
	})

	// The hub's default admits the tenant now, and permits it as little; the spoke's own
	// permits everything.
	env.Patch(t, projects, "default", map[string]any{"spec": confined})
	refused("by-default", `policy.projects of the spoke does not allow project "default" by its very name, and the one on the spoke is not the hub's; `+
		`the hub's comes with projects.share_default of the principal and appproject/default in policy.adopt of the spoke`)

	if err := owned(ctx, w); err != nil {
		t.Error(err)
	}
	for _, app := range []string{"by-default", "by-none", "by-namespace"} {
		if err := env.Gone(ctx, w.OnSpoke(env.Managed), app); err != nil {
			t.Errorf("on the spoke: %v", err)
		}
	}
	env.Patch(t, projects, name, map[string]any{"spec": map[string]any{"clusterResourceWhitelist": []any{map[string]any{"group": "*", "kind": "*"}}}})
	env.Eventually(t, "the spoke has the project as it is opened", func() error {
		o, err := w.Edge1.Resource(harness.AppProjects, harness.ArgoCDNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if kinds, _, _ := unstructured.NestedSlice(o.Object, "spec", "clusterResourceWhitelist"); len(kinds) == 0 {
			return errors.New("it permits no kinds outside of namespaces")
		}
		return nil
	})
	env.Patch(t, applications, "by-source", map[string]any{"operation": map[string]any{"sync": map[string]any{}}})
	env.Eventually(t, "its project opened, it does what it could not", func() error {
		if err := owned(ctx, w); err == nil {
			return errors.New("nobody is cluster-admin by it")
		}
		return nil
	})
	if err := w.Edge1.Resource(clusterRoleBindings, "").Delete(ctx, "owned-by-source", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// owned is a check that nothing of the tenant's binds anybody on the spoke.
func owned(ctx context.Context, w *env.Argo) error {
	list, err := w.Edge1.Resource(clusterRoleBindings, "").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, o := range list.Items {
		if strings.HasPrefix(o.GetName(), "owned-by-") {
			return fmt.Errorf("the spoke has ClusterRoleBinding %s", o.GetName())
		}
	}
	return nil
}

// tenant may write the Applications of the managed agent's namespace on the hub, and
// nothing else.
func tenant(t *testing.T, w *env.Argo) dynamic.Interface {
	t.Helper()
	if err := w.Hub.ApplyYAML(t.Context(), []byte(`apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant, namespace: `+env.Managed+`}
rules: [{apiGroups: [argoproj.io], resources: [applications], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: `+env.Managed+`}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}]
`)); err != nil {
		t.Fatal(err)
	}
	config := w.Hub.REST()
	config.Impersonate = rest.ImpersonationConfig{UserName: "tenant"}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// narrow changes the spec of a project of the hub for as long as the test runs.
func narrow(t *testing.T, w *env.Argo, name string, spec map[string]any) {
	t.Helper()
	projects := w.Hub.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	before := env.Get(t, projects, name).Object["spec"]
	env.Patch(t, projects, name, map[string]any{"spec": spec})
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		o, err := projects.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			o.Object["spec"] = before
			_, err = projects.Update(ctx, o, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Error(err)
		}
	})
}

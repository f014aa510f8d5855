package argocd

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/manifests"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
)

// stockSet is what `make manifests` takes of Argo CD.
func stockSet(t *testing.T) manifests.Set {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/argoproj/argo-cd/v3").Output()
	if err != nil {
		t.Fatal(err)
	}
	set := manifests.Set{Version: "v3.5.3", Files: map[string][]byte{}}
	for name, path := range map[string]string{
		"install.yaml":                   "manifests/install.yaml",
		"applications/role.yaml":         "examples/k8s-rbac/argocd-server-applications/argocd-server-rbac-clusterrole.yaml",
		"applications/role-binding.yaml": "examples/k8s-rbac/argocd-server-applications/argocd-server-rbac-clusterrolebinding.yaml",
	} {
		if set.Files[name], err = os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), filepath.FromSlash(path))); err != nil {
			t.Fatal(err)
		}
	}
	return set
}

func TestStockObjects(t *testing.T) {
	set := stockSet(t)
	for role, c := range map[Role]struct{ has, lacks []string }{
		Hub: {
			[]string{"Deployment argocd-server", "Deployment argocd-applicationset-controller", "Deployment argocd-repo-server",
				"Deployment argocd-redis", "ClusterRole argocd-server-cluster-apps", "CustomResourceDefinition applications.argoproj.io"},
			[]string{"StatefulSet argocd-application-controller", "ClusterRole argocd-application-controller", "Service argocd-metrics"},
		},
		ManagedSpoke: {
			[]string{"StatefulSet argocd-application-controller", "Deployment argocd-repo-server", "Deployment argocd-redis",
				"Secret argocd-secret", "ConfigMap argocd-cm", "CustomResourceDefinition appprojects.argoproj.io"},
			[]string{"Deployment argocd-server", "ClusterRole argocd-server-cluster-apps", "Deployment argocd-dex-server",
				"Secret argocd-notifications-secret", "Deployment argocd-applicationset-controller"},
		},
		AutonomousSpoke: {
			[]string{"StatefulSet argocd-application-controller", "Deployment argocd-applicationset-controller"},
			[]string{"Deployment argocd-server", "Deployment argocd-notifications-controller"},
		},
	} {
		objects, err := StockObjects(set, role, "gitops")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, o := range objects {
			names = append(names, o.GetKind()+" "+o.GetName())
			subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
			for _, s := range subjects {
				if ns := s.(map[string]any)["namespace"]; ns != nil && ns != "gitops" {
					t.Errorf("role %d: %s %s is for namespace %v", role, o.GetKind(), o.GetName(), ns)
				}
			}
			params, _, _ := unstructured.NestedString(o.Object, "data", "application.namespaces")
			if o.GetName() == paramsMap && (params == "*") != (role == Hub) {
				t.Errorf("role %d: Applications of the namespaces %q", role, params)
			}
		}
		for _, want := range c.has {
			if !slices.Contains(names, want) {
				t.Errorf("role %d has no %s", role, want)
			}
		}
		for _, no := range c.lacks {
			if slices.Contains(names, no) {
				t.Errorf("role %d has %s", role, no)
			}
		}
	}
}

// The release says nothing of the arguments of argocd-server, which agentctl changes, and its program is the
// same as before.
func TestStockServerHasNoArguments(t *testing.T) {
	objects, err := StockObjects(stockSet(t), Hub, "argocd")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" && o.GetName() == serverPart
	})
	containers, _, _ := unstructured.NestedSlice(objects[i].Object, "spec", "template", "spec", "containers")
	c := containers[0].(map[string]any)
	if got := c["command"].([]any); c["args"] != nil || !slices.Equal(got, []any{"/usr/bin/tini", "--", "/usr/local/bin/argocd-server"}) {
		t.Errorf("argocd-server runs %v with %v", got, c["args"])
	}
}

// What the chart renders is what went in.
func TestStockChart(t *testing.T) {
	objects, err := StockObjects(stockSet(t), Hub, "argocd")
	if err != nil {
		t.Fatal(err)
	}
	files, err := StockChart("v3.5.3", objects)
	if err != nil {
		t.Fatal(err)
	}
	template := string(files["templates/argocd.yaml"])
	if strings.Contains(strings.ReplaceAll(template, `{{ "{{" }}`, ""), "{{") {
		t.Error("a text of Argo CD would be run as a template")
	}
	rendered, err := release.Objects(strings.ReplaceAll(template, `{{ "{{" }}`, "{{"))
	if err != nil || len(rendered) != len(objects) {
		t.Fatalf("%d objects of %d, %v", len(rendered), len(objects), err)
	}
	for i, o := range rendered {
		if keep := o.GetAnnotations()["helm.sh/resource-policy"]; (keep == "keep") != (objects[i].GetKind() == "CustomResourceDefinition") {
			t.Errorf("%s %s has the policy %q", o.GetKind(), o.GetName(), keep)
		}
	}
}

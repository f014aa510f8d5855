//go:build linux

package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// examples is the folder of what people copy.
const examples = "../../../examples"

// Whatever people copy is taken by an API server, without a field that it does not know.
func TestExamples(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "helm")
	h := harnesstest.New(t)
	crds, err := h.ArgoCDManifests()
	if err != nil {
		t.Fatal(err)
	}
	c, err := h.StartControlPlane(t.Context(), harness.ControlPlaneConfig{Name: "hub", Manifests: append(crds, charts.Definitions(t)...)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureNamespace(t.Context(), harness.ArgoCDNamespace); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	err = filepath.WalkDir(examples, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".yaml" {
			return err
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096); ; {
			o := &unstructured.Unstructured{}
			if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				t.Errorf("%s: %v", file, err)
				return nil
			}
			resource, known := exampleKinds[o.GetKind()]
			if !known {
				if !slices.Contains(notApplied, filepath.Base(file)) {
					t.Errorf("%s: no one tries its kind %q", file, o.GetKind())
				}
				continue
			}
			seen[o.GetKind()]++
			_, err := c.Resource(resource, o.GetNamespace()).Create(t.Context(), o,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				t.Errorf("%s: %s %s: %v", file, o.GetKind(), o.GetName(), err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for kind := range exampleKinds {
		if seen[kind] == 0 {
			t.Errorf("there is no example of %s", kind)
		}
	}
	terraform := map[string]any{}
	if err := json.Unmarshal([]byte(content(t, examples, "terraform", "main.tf.json")), &terraform); err != nil {
		t.Error(err)
	}
	if out, err := charts.Helm(t, "template", "x", filepath.Join(examples, "..", "charts", charts.Agent), "-f", filepath.Join(examples, "terraform", "values.yaml")); err != nil {
		t.Errorf("the values of the Terraform example: %v\n%s", err, out)
	}
}

// exampleKinds are what the examples have, by the resource that has each.
var exampleKinds = map[string]schema.GroupVersionResource{
	"Agent": env.Agents, "Application": harness.Applications, "AppProject": harness.AppProjects, "ConfigMap": env.ConfigMaps,
	"ApplicationSet": {Group: "argoproj.io", Version: "v1alpha1", Resource: "applicationsets"},
}

// notApplied are files of other tools.
var notApplied = []string{"kustomization.yaml", "resourceset.yaml", "values.yaml"}

// What people install by Kustomize is what agentctl brings.
func TestExamplesOfArgoCD(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "kubectl")
	c, err := harnesstest.New(t).StartControlPlane(t.Context(), harness.ControlPlaneConfig{Name: "bare"})
	if err != nil {
		t.Fatal(err)
	}
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/argoproj/argo-cd/v3").Output()
	if err != nil {
		t.Fatal(err)
	}
	base, manifests, brought := t.TempDir(), archives(t), t.TempDir()
	for _, folder := range []string{"manifests", "examples/k8s-rbac"} {
		if err := os.CopyFS(filepath.Join(base, "argo-cd", folder), os.DirFS(filepath.Join(strings.TrimSpace(string(module)), folder))); err != nil {
			t.Fatal(err)
		}
	}
	with := []string{"--with", "argocd", "--manifests", manifests, "--output-dir", brought, "--check-images=false"}
	must(t, c.Kubeconfig, append(slices.Clone(hubArgs), with...)...)
	for role, mode := range map[string]string{"spoke-managed": "managed", "spoke-autonomous": "autonomous"} {
		from := filepath.Join(t.TempDir(), "from.yaml")
		file := "kind: SpokeInstall\nname: " + role + "\nspiffeIDs: [spiffe://edge.example/argomesh/agent/" + role + "]\n" +
			"principalID: spiffe://hub.example/argomesh/principal\nvalues: {config: {name: " + role + ", mode: " + mode +
			", principal: {address: 'hub.example:443', spiffe_ids: ['spiffe://hub.example/argomesh/principal']}}}\n"
		if err := os.WriteFile(from, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		must(t, c.Kubeconfig, append([]string{"spoke", "install", "--from", from, "--registry", registry}, with...)...)
	}
	for role, folder := range map[string]string{"hub": "hub/argocd", "spoke-managed": "spokes/spoke-managed/argocd", "spoke-autonomous": "spokes/spoke-autonomous/argocd"} {
		text := content(t, examples, "argocd", role, "kustomization.yaml")
		const remote = "https://github.com/argoproj/argo-cd//"
		if !strings.Contains(text, remote) || strings.Count(text, "?ref=v3.5.3") != strings.Count(text, remote) {
			t.Errorf("%s has not the release that agentctl brings:\n%s", role, text)
		}
		text = strings.ReplaceAll(strings.ReplaceAll(text, remote, "../argo-cd/"), "?ref=v3.5.3", "")
		if err := os.MkdirAll(filepath.Join(base, role), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(base, role, "kustomization.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want := documents(t, kubectl(t, c, "kustomize", filepath.Join(brought, filepath.FromSlash(folder))))
		delete(want, "Namespace "+harness.ArgoCDNamespace)
		for _, o := range want { // which is for helm
			unstructured.RemoveNestedField(o.(map[string]any), "metadata", "annotations", "helm.sh/resource-policy")
			if metadata := o.(map[string]any)["metadata"].(map[string]any); fmt.Sprint(metadata["annotations"]) == "map[]" {
				delete(metadata, "annotations")
			}
		}
		if diff := cmp.Diff(want, documents(t, kubectl(t, c, "kustomize", filepath.Join(base, role)))); diff != "" {
			t.Errorf("%s differs from what agentctl brings (-agentctl +example):\n%s", role, diff)
		}
	}
}

//go:build linux

package install

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// documents are the objects of YAML text, by kind and name.
func documents(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for d := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		var o map[string]any
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if metadata, is := o["metadata"].(map[string]any); is {
			out[o["kind"].(string)+" "+metadata["name"].(string)] = o
		}
	}
}

// kubectl runs kubectl with a cluster.
func kubectl(t *testing.T, c *harness.ControlPlane, args ...string) string {
	t.Helper()
	cmd, err := harnesstest.New(t).Kubectl(t.Context(), t.TempDir(), c.Kubeconfig, args...)
	if err != nil {
		t.Fatal(err)
	}
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		t.Fatalf("kubectl %q: %v\n%s", args, err, complaint.String())
	}
	return out.String()
}

// content is that of a file of a folder.
func content(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// writesHubFiles has the install write files in place of objects, and returns their folder.
func writesHubFiles(t *testing.T, c *harness.ControlPlane, install []string) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "gitops")
	before := revisions(t, c)
	args := append(slices.Clone(install), "--output-dir", folder)
	out := must(t, c.Kubeconfig, args...)
	if !strings.Contains(out, "next: kubectl apply --server-side -k "+filepath.Join(folder, "hub")) || !strings.Contains(out, "among the components") {
		t.Errorf("it prints\n%s", out)
	}
	if diff := cmp.Diff(before, revisions(t, c)); diff != "" {
		t.Errorf("it wrote to the cluster (-before +after):\n%s", diff)
	}
	if out := must(t, c.Kubeconfig, args...); strings.Contains(out, "written") {
		t.Errorf("a second time it prints\n%s", out)
	}
	kubectl(t, c, "apply", "--server-side", "--dry-run=server", "-k", filepath.Join(folder, "hub"))
	if _, err := agentctl(t, c.Kubeconfig, append(args, "--dry-run")...); err == nil || !strings.Contains(err.Error(), "leave --dry-run out") {
		t.Errorf("with --dry-run: %v", err)
	}

	// The Kustomization of Argo CD takes its own argocd-server, and the component over it.
	own := filepath.Join(folder, "argocd")
	if err := os.MkdirAll(own, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"server.yaml":        kubectl(t, c, "get", "deployment", "argocd-server", "-n", harness.ArgoCDNamespace, "-o", "yaml"),
		"kustomization.yaml": "resources: [server.yaml]\ncomponents: [../hub/argocd-server]\n",
	} {
		if err := os.WriteFile(filepath.Join(own, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if built := kubectl(t, c, "kustomize", own); !strings.Contains(built, "- --redis=argomesh-principal:6379") || !strings.Contains(built, "name: argocd-server") {
		t.Errorf("argocd-server with the component is\n%s", built)
	}
	return folder
}

// sameAsInstalled compares a file with what helm has of the release.
func sameAsInstalled(t *testing.T, c *harness.ControlPlane, chart string, file ...string) {
	t.Helper()
	out, err := charts.Helm(t, "get", "manifest", chart, "--namespace", harness.ArgoCDNamespace, "--kubeconfig", c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(documents(t, out), documents(t, content(t, file...))); diff != "" {
		t.Errorf("%s has other objects than were installed (-installed +file):\n%s", filepath.Join(file...), diff)
	}
}

// writesSpokeFiles adds a spoke to the folder.
func writesSpokeFiles(t *testing.T, c *harness.ControlPlane, folder string, install []string) {
	t.Helper()
	args := append(slices.Clone(install), "--output-dir", folder, "--repo-url", "https://git.example.org/fleet.git", "--repo-path", "argomesh")
	before := revisions(t, c)
	must(t, c.Kubeconfig, args...)
	if diff := cmp.Diff(before, revisions(t, c)); diff != "" {
		t.Errorf("it wrote to the cluster (-before +after):\n%s", diff)
	}
	sameAsInstalled(t, c, charts.Agent, folder, "spokes", "edge-9", charts.Agent+".yaml")
	kubectl(t, c, "apply", "--server-side", "--dry-run=server", "--force-conflicts", "-k", filepath.Join(folder, "spokes", "edge-9"))
	kubectl(t, c, "apply", "--server-side", "--dry-run=server", "--force-conflicts", "-k", filepath.Join(folder, "hub", "agents"))
	agent := documents(t, content(t, folder, "hub", "agents", "edge-9.yaml"))["Agent edge-9"].(map[string]any)
	there, err := c.Resource(env.Agents, harness.ArgoCDNamespace).Get(t.Context(), "edge-9", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := there.MarshalJSON() // numbers as a file has them
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(documents(t, string(raw))["Agent edge-9"].(map[string]any)["spec"], agent["spec"]); diff != "" {
		t.Errorf("the Agent in the file is another (-there +file):\n%s", diff)
	}
	set := content(t, folder, "hub", "agents-applicationset", "applicationset.yaml")
	for _, want := range []string{"path: argomesh/spokes/*", "repoURL: https://git.example.org/fleet.git", "name: '{{.path.basename}}'"} {
		if !strings.Contains(set, want) {
			t.Errorf("the ApplicationSet does not have %q:\n%s", want, set)
		}
	}
	kubectl(t, c, "apply", "--server-side", "--dry-run=server", "-k", filepath.Join(folder, "hub", "agents-applicationset"))
}

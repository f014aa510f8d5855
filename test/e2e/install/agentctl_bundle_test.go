//go:build linux

package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// kubeletOfAll has every container have the same log, a file.
const kubeletOfAll = `
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: all}
spec: {logs: [{logsFile: %q}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterPortForward
metadata: {name: all}
spec: {forwards: [{target: {address: 127.0.0.1, port: %d}}]}
`

// What a log may hold, and what it must not show in a bundle: all that has "canary".
const (
	connected    = `{"level":"info","agent":"edge-1","message":"agent connected"}`
	secretCanary = "canary-of-a-secret-7f3a"
)

var logLines = []string{
	connected,
	"redis refused " + secretCanary,
	"token eyJjYW5hcnkiOiJjYW5hcnkifQ.canary-claims.canary-signature is no good",
	"GET https://user:canary-of-a-url@git.example/r.git",
	`{"authorization":"Bearer canary-of-a-header"}`,
	"password=canary-of-a-word",
	"-----BEGIN EC PRIVATE KEY-----", "canary-of-a-key", "-----END EC PRIVATE KEY-----",
}

// writeLog writes logLines in the form of a container runtime.
func writeLog(t *testing.T, h *harness.Harness) (path string) {
	t.Helper()
	var out strings.Builder
	for _, line := range logLines {
		out.WriteString("2026-11-28T12:00:00.000000000Z stdout F " + line + "\n")
	}
	path = h.Path("container.log")
	if err := os.WriteFile(path, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A bundle has what a reader needs, and no canary, of which there is one in each place where a
// secret can stand.
func bundles(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	env.Create(t, c.Resource(env.Secrets, harness.ArgoCDNamespace), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "some-secret"},
		"stringData": map[string]any{"auth": secretCanary, "other": "canary-that-nothing-repeats"},
	}})
	podsSay(t, c, strings.Join(logLines, "\n")+"\n")
	canaries := []string{
		"--set", "podAnnotations.note=canary-of-an-annotation",
		"--set", "env[0].name=ANY__NOTHING", "--set", "env[0].value=canary-of-the-environment",
		"--set", "extraContainers[0].name=beside", "--set", "extraContainers[0].image=" + registry + "/beside:1",
		"--set", "extraContainers[0].args={--user=canary-of-an-argument,--password,canary-of-another}",
		"--set", "extraContainers[0].env[0].name=PASSWORD", "--set", "extraContainers[0].env[0].value=canary-of-a-container",
	}
	must(t, c.Kubeconfig, append(slices.Clone(hubArgs), canaries...)...)
	agents := c.Resource(env.Agents, harness.ArgoCDNamespace)
	name := "edge-of-bundle"
	env.Create(t, agents, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argomesh.io/v1alpha1", "kind": "Agent",
		"metadata": map[string]any{"name": name, "annotations": map[string]any{"note": "canary-of-an-agent"}},
		"spec":     map[string]any{"mode": "managed", "identity": map[string]any{"spiffeIDs": []any{env.SPIFFEID(name)}}},
	}})
	hasController(t, c)
	connects(t, c)
	must(t, c.Kubeconfig, append([]string{
		"spoke", "install", name, "--hub-context", c.Name, "--registry", registry, "--principal", "hub.example:443", "--principal-id", env.PrincipalID,
	}, canaries...)...)
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if out := must(t, c.Kubeconfig, "bundle", "--file", file); strings.TrimSpace(out) != file {
		t.Errorf("it prints %q", out)
	}
	files := filesOf(t, file)
	for where, want := range map[string]string{
		"version.json":             "gitVersion",
		"objects/agents.yaml":      name,
		"objects/deployments.yaml": registry + "/principal",
		"objects/configmaps.yaml":  "principal.yaml",
		"objects/pods.yaml":        registry + "/agent",
		"objects/events.yaml":      "kind: Event",
		"helm.yaml":                "podAnnotations",
		"problems.txt":             "",
	} {
		if content, there := files[where]; !there || !strings.Contains(content, want) {
			t.Errorf("%s does not have %q: %t, %.300s", where, want, there, content)
		}
	}
	logs := 0
	for where, content := range files {
		if i := strings.Index(content, "canary"); i >= 0 {
			t.Errorf("%s has a canary: %q", where, content[max(0, i-40):min(len(content), i+60)])
		}
		if strings.HasPrefix(where, "logs/") {
			logs++
			if !strings.Contains(content, connected) {
				t.Errorf("%s does not say that the agent connected: %s", where, content)
			}
		}
	}
	if logs < 7 { // principal, envoy and the container beside them; two pods of the agent with that
		t.Errorf("%d logs", logs)
	}
	if _, err := agentctl(t, c.Kubeconfig, "bundle", "--file", file); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("a file that is there: %v", err)
	}

	// Who may not read Secrets does not know what logs repeat.
	allow(t, c, "reader", harness.ArgoCDNamespace, "", "pods")
	without := filepath.Join(t.TempDir(), "without.tar.gz")
	must(t, asUser(t, c, "reader"), "bundle", "--file", without)
	files = filesOf(t, without)
	for where, content := range files {
		if strings.HasPrefix(where, "logs/") || strings.Contains(content, "canary") {
			t.Errorf("without the right to read Secrets there is %s: %s", where, content)
		}
	}
	if !strings.Contains(files["problems.txt"], "--logs") {
		t.Errorf("it does not say why: %s", files["problems.txt"])
	}
	if err := agents.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	must(t, c.Kubeconfig, "spoke", "uninstall", "--yes")
	must(t, c.Kubeconfig, "hub", "uninstall", "--yes")
	if history, err := charts.Helm(t, "list", "--namespace", harness.ArgoCDNamespace, "--kubeconfig", c.Kubeconfig, "--short"); err != nil || strings.TrimSpace(history) != "" {
		t.Errorf("helm lists %q, %v", history, err)
	}
}

// filesOf reads an archive.
func filesOf(t *testing.T, path string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > 20<<20 {
		t.Errorf("%s has %d bytes", path, len(raw))
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		out[header.Name] = string(content)
	}
}

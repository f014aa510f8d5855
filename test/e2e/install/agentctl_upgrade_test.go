//go:build linux

package install

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// agentctlVersion is what agentctl says that it is.
func agentctlVersion(t *testing.T, c *harness.ControlPlane) string {
	t.Helper()
	var said struct{ Version string }
	if err := json.Unmarshal([]byte(must(t, c.Kubeconfig, "version", "-o", "json")), &said); err != nil || said.Version == "" {
		t.Fatalf("it says %+v, %v", said, err)
	}
	return said.Version
}

// spokesOf is a kubeconfig for agentctl spoke upgrade: its contexts are called as the agents, and that
// of a lost one leads nowhere.
func spokesOf(t *testing.T, c *harness.ControlPlane, there, lost []string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	own := config.Contexts[config.CurrentContext]
	nowhere := config.Clusters[own.Cluster].DeepCopy()
	nowhere.Server = "https://127.0.0.1:1"
	config.Clusters["nowhere"] = nowhere
	for _, name := range there {
		config.Contexts["at-"+name] = own
	}
	for _, name := range lost {
		config.Contexts["at-"+name] = &clientcmdapi.Context{Cluster: "nowhere", AuthInfo: own.AuthInfo}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// called gives a context of a kubeconfig another name, too.
func called(t *testing.T, kubeconfig, is, other string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts[other] = config.Contexts[is]
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
}

// waitsWithoutLimit runs an upgrade of one agent with --timeout 0, to values with which there are other pods. It waits
// for these, and then for the agent, which comes back once they are ready.
func waitsWithoutLimit(t *testing.T, kubeconfig string, comesBack func(), args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), agentctlBinary(t),
		append([]string{"--kubeconfig", kubeconfig}, append(args, "--timeout", "0", "--set", "podLabels.timeout=none")...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
		if strings.HasSuffix(lines.Text(), "pods are ready") && strings.Contains(lines.Text(), "2 of 2") {
			comesBack()
		}
	}
	if err := cmd.Wait(); err != nil || len(said) == 0 || !strings.HasPrefix(said[len(said)-1], "1 agents run ") {
		t.Errorf("with --timeout 0: %v %s\n%s", err, complaint.String(), strings.Join(said, "\n"))
	}
}

// Agents are upgraded one at a time, the hub first, and the first that does not come back ends it. The
// spoke is the hub's cluster, and the test says of itself what principal and agents would.
func upgradesSpokes(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	ctx, version := t.Context(), agentctlVersion(t, c)
	must(t, c.Kubeconfig, hubArgs...)
	agents := c.Resource(env.Agents, harness.ArgoCDNamespace)
	says := func(name, runs string) {
		t.Helper()
		_, err := agents.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"connected":true,"versions":{"agent":"`+runs+`"},`+
			`"conditions":[{"type":"Connected","status":"True","reason":"Connected","message":"","lastTransitionTime":"2026-11-28T00:00:00Z"}]}}`),
			metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := agents.Delete(ctx, "edge-1", metav1.DeleteOptions{}); err != nil { // of the test before
		t.Fatal(err)
	}
	for _, name := range []string{"fleet-1", "fleet-2", "fleet-3", "fleet-4"} {
		env.Create(t, agents, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "argomesh.io/v1alpha1", "kind": "Agent", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"mode": "managed", "suspended": name == "fleet-4", "identity": map[string]any{"spiffeIDs": []any{env.SPIFFEID(name)}}},
		}})
		says(name, "v0.0.1")
	}
	hasController(t, c)
	must(t, c.Kubeconfig, "spoke", "install", "fleet-1", "--hub-context", c.Name, "--registry", registry, "--no-wait",
		"--principal", "hub.example:8443", "--principal-id", "spiffe://hub.example/argomesh/principal")
	fleet := spokesOf(t, c, []string{"fleet-1", "fleet-3"}, []string{"fleet-2"})
	upgrade := func(args ...string) (string, error) {
		return agentctl(t, fleet, append([]string{"spoke", "upgrade", "--hub-context", c.Name, "--contexts", "at-NAME", "--timeout", "4s"}, args...)...)
	}
	refused := func(says string, args ...string) {
		t.Helper()
		if out, err := upgrade(args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("upgrade %q: %v, want %q\n%s", args, err, says, out)
		}
	}
	env.Create(t, c.Resource(env.ConfigMaps, harness.ArgoCDNamespace), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argomesh-hub"},
		"data": map[string]any{"uid": "x", "mapping": "destination", "principal-version": "v0.0.1"},
	}})
	refused("the hub comes first", "fleet-1")
	env.Patch(t, c.Resource(env.ConfigMaps, harness.ArgoCDNamespace), "argomesh-hub", map[string]any{"data": map[string]any{"principal-version": version}})
	refused("not registered with the hub: fleet-9", "fleet-1", "fleet-9")
	refused("no context at-other-fleet-1: --contexts says", "fleet-1", "--contexts", "at-other-NAME")
	refused("all spokes would be one", "--all", "--contexts", "one")
	refused("runs v0.0.1, not "+version, "fleet-1")

	waitsWithoutLimit(t, fleet, func() { says("fleet-1", version) }, "spoke", "upgrade", "fleet-1", "--hub-context", c.Name, "--contexts", "at-NAME")
	out, err := upgrade("--all")
	if err == nil || !strings.Contains(err.Error(), "agent fleet-2: ") || !strings.Contains(err.Error(), "1 of 3 are upgraded, and 1 are left as they were: fleet-3") ||
		!strings.Contains(out, "agent fleet-4 is suspended, and left out") || strings.Contains(out, "agent fleet-3") {
		t.Errorf("with one that is away: %v\n%s", err, out)
	}
	before := revisions(t, c)
	out, err = upgrade("fleet-1")
	if err := errors.Join(err); err != nil || !strings.Contains(out, "1 agents run "+version) {
		t.Errorf("again: %v\n%s", err, out)
	}
	if diff := cmp.Diff(before, revisions(t, c)); diff != "" {
		t.Errorf("what is as it should be was written (-before +after):\n%s", diff)
	}
	// Killed once the record of the upgrade is there: another run ends it.
	helm(t, c.Kubeconfig, "upgrade", charts.Agent, chartOfVersion(t, charts.Agent, "0.0.9"), "--reuse-values")
	kubeconfig, reached := endsAt(t, 1, c)
	called(t, kubeconfig, c.Name, "fleet-1")
	if !killed(t, exec.CommandContext(ctx, agentctlBinary(t), "--kubeconfig", kubeconfig, "spoke", "upgrade", "fleet-1", "--hub-context", c.Name), reached) {
		t.Error("an upgrade of an older chart writes nothing")
	}
	out, err = upgrade("fleet-1", "--timeout", "1m")
	if got := chartOf(t, c, charts.Agent); err != nil || got != charts.Agent+"-0.1.0" || !strings.Contains(out, "(pending-upgrade)") {
		t.Errorf("after a kill there is chart %s, %v\n%s", got, err, out)
	}
	must(t, c.Kubeconfig, "spoke", "uninstall", "--yes")
	for _, name := range []string{"fleet-1", "fleet-2", "fleet-3", "fleet-4"} {
		if err := agents.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	if err := c.Resource(env.ConfigMaps, harness.ArgoCDNamespace).Delete(ctx, "argomesh-hub", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	must(t, c.Kubeconfig, "hub", "uninstall", "--yes")
}

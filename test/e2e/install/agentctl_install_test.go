//go:build linux

package install

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// cluster is a control plane on which pods get ready, with Argo CD's definitions and nothing of
// Argo CD that runs.
func cluster(t *testing.T) *harness.ControlPlane {
	t.Helper()
	return clusterThatSays(t, newAdmin(t))
}

// clusterThatSays is a cluster whose pods all have that admin server.
func clusterThatSays(t *testing.T, says *admin) *harness.ControlPlane {
	t.Helper()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "helm")
	h := harnesstest.AtOnce(t) // what uses it mostly waits for pods to end
	manifests, err := h.ArgoCDManifests()
	if err != nil {
		t.Fatal(err)
	}
	kubelet := h.Path("kubelet.yaml")
	if err := os.WriteFile(kubelet, fmt.Appendf(nil, kubeletOfAll+kubeletOfPods, writeLog(t, h), says.port), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := h.StartControlPlane(t.Context(), harness.ControlPlaneConfig{
		Name: "cluster", Workloads: true, Manifests: manifests, Kubelet: kubelet,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureNamespace(t.Context(), harness.ArgoCDNamespace); err != nil {
		t.Fatal(err)
	}
	hasDriver(t, c)
	return c
}

// hasDriver has a cluster know SPIFFE's CSI driver, without which nothing of ours is installed.
func hasDriver(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	env.Create(t, c.Resource(csiDrivers, ""), csiDriver())
}

// hasController has a cluster have an application controller, without which no agent is installed beside it; it
// has no pods. It goes with the test.
func hasController(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	const name = "a-controller"
	labels := map[string]any{"app.kubernetes.io/component": "application-controller"}
	env.Create(t, c.Resource(statefulSet, harness.ArgoCDNamespace), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": map[string]any{"name": name, "labels": labels},
		"spec": map[string]any{
			"replicas": int64(0), "selector": map[string]any{"matchLabels": labels}, "serviceName": name,
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{
				"containers": []any{map[string]any{"name": "controller", "image": "argocd:v3.5.3"}},
			}},
		},
	}})
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := c.Resource(statefulSet, harness.ArgoCDNamespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// podsSay has each container of a cluster have that log.
func podsSay(t *testing.T, c *harness.ControlPlane, text string) {
	t.Helper()
	var log strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprintf(&log, "2026-11-29T00:00:00Z stdout F %s", line)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(c.Kubeconfig), "container.log"), []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func agentctlBinary(t *testing.T) string {
	t.Helper()
	return harnesstest.Binary(t, "agentctl")
}

// agentctl runs agentctl with a kubeconfig, and returns what it prints.
func agentctl(t *testing.T, kubeconfig string, args ...string) (out string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), agentctlBinary(t), append([]string{"--kubeconfig", kubeconfig}, args...)...)
	var printed, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &complaint
	if err := cmd.Run(); err != nil {
		return printed.String(), fmt.Errorf("%w: %s", err, complaint.String())
	}
	return printed.String(), nil
}

// must is agentctl for what has to go well.
func must(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	out, err := agentctl(t, kubeconfig, args...)
	if err != nil {
		t.Fatalf("agentctl %q: %v\n%s", args, err, out)
	}
	return out
}

// installed are the kinds of what the charts install.
var installed = []schema.GroupVersionResource{
	{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "serviceaccounts"}, {Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
}

// revisions are the resourceVersions of all that was installed, by kind and name, the records
// of Helm included. That of a Deployment is its generation, since its status changes by itself.
func revisions(t *testing.T, c *harness.ControlPlane) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, kind := range installed {
		list, err := c.Resource(kind, "").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			if !strings.Contains(o.GetName(), "argomesh") {
				continue
			}
			revision := o.GetResourceVersion()
			if kind.Resource == "deployments" || kind.Resource == "poddisruptionbudgets" {
				revision = fmt.Sprint("generation ", o.GetGeneration())
			}
			out[kind.Resource+" "+o.GetName()] = revision
		}
	}
	return out
}

// helmHistory is what helm says of the release.
func helmHistory(t *testing.T, c *harness.ControlPlane, release string) (statuses []string) {
	t.Helper()
	out, err := charts.Helm(t, "history", release, "--namespace", harness.ArgoCDNamespace, "--kubeconfig", c.Kubeconfig, "--output", "json")
	if err != nil {
		t.Fatal(err)
	}
	var revisions []struct {
		Status string `json:"status"`
	}
	if err := json.Unmarshal([]byte(out), &revisions); err != nil {
		t.Fatal(err)
	}
	for _, r := range revisions {
		statuses = append(statuses, r.Status)
	}
	return statuses
}

// imageRegistry has every image but those below none.
var imageRegistry = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/v2/none/") {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
	w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
	w.Header().Set("Content-Length", "2")
}))

// registry is the folder of our images.
var registry = strings.TrimPrefix(imageRegistry.URL, "http://") + "/argomesh"

// hubArgs install the principal.
var hubArgs = []string{"hub", "install", "--registry", registry, "--timeout", "2m", "--set", "envoy.image.repository=" + registry + "/envoy"}

// One cluster serves all of a test, one after the other, since a chart is installed once.
func TestAgentctlInstall(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	t.Run("installs, upgrades and removes", func(t *testing.T) { installsTheHub(t, c) })
	t.Run("names images by digest", func(t *testing.T) { namesImagesByDigest(t, c) })
	t.Run("on a terminal", func(t *testing.T) { showsProgress(t, c) })
	t.Run("bundle", func(t *testing.T) { bundles(t, c) })
	t.Run("refuses", func(t *testing.T) { installRefuses(t, c) })
}

func TestAgentctlInstallsSpokes(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	t.Run("a spoke", func(t *testing.T) { installsASpoke(t, c) })
	t.Run("upgrades", func(t *testing.T) { upgradesSpokes(t, c) })
	t.Run("beside Argo CD", func(t *testing.T) { installsBesideArgoCD(t, c) })
}

// An install that is killed after any of its writes is finished by another run, at once.
func TestAgentctlInstallIsKilled(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	t.Run("the hub", func(t *testing.T) { hubIsKilled(t, c, 1, 9) })
	t.Run("a spoke", func(t *testing.T) { spokeIsKilled(t, c, 4) })
}

// agentctl has Helm in it, and stays a program that one fetches.
func TestAgentctlIsLight(t *testing.T) {
	t.Parallel()
	file, err := os.Stat(agentctlBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	const most = 120_000_000
	if file.Size() > most {
		t.Errorf("agentctl has %d bytes, more than %d", file.Size(), most)
	}
}

func installsTheHub(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	ctx := t.Context()
	deployments := c.Resource(deployments, harness.ArgoCDNamespace)
	configMaps := c.Resource(env.ConfigMaps, harness.ArgoCDNamespace)

	if _, err := agentctl(t, c.Kubeconfig, "hub", "install"); err == nil || !strings.Contains(err.Error(), "--registry is missing") {
		t.Errorf("without a registry: %v", err)
	}
	if out := must(t, c.Kubeconfig, append(hubArgs, "--dry-run")...); !strings.Contains(out, "Deployment argomesh-principal created (server dry run)") {
		t.Errorf("the dry run prints\n%s", out)
	}
	if got := revisions(t, c); len(got) > 0 {
		t.Errorf("the dry run wrote %v", got)
	}
	out := must(t, c.Kubeconfig, hubArgs...)
	for _, want := range []string{"install, since it is not installed", "applied, revision 1", "1 of 1 pods are ready", "next: agentctl spoke install NAME"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	image := func() string {
		d, err := deployments.Get(ctx, charts.Principal, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		containers, _, err := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
		if err != nil {
			t.Fatal(err)
		}
		return containers[0].(map[string]any)["image"].(string)
	}
	if got := image(); !strings.HasPrefix(got, registry+"/principal") {
		t.Errorf("the image is %s", got)
	}

	// Again: nothing changes.
	before := revisions(t, c)
	out = must(t, c.Kubeconfig, hubArgs...)
	if diff := cmp.Diff(before, revisions(t, c)); diff != "" || strings.Contains(out, "applied") {
		t.Errorf("the second run changed (-before +after):\n%s\n%s", diff, out)
	}

	// What is missing comes back, and values stay.
	if err := configMaps.Delete(ctx, charts.Principal, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	out = must(t, c.Kubeconfig, "hub", "install", "--set", "config.log.level=debug", "--dry-run")
	for _, want := range []string{"ConfigMap argomesh-principal configured (server dry run)\n  @@ ", "\n  +", "level: debug\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("the dry run of a change does not print %q:\n%s", want, out)
		}
	}
	out = must(t, c.Kubeconfig, "hub", "install", "--set", "config.log.level=debug")
	if !strings.Contains(out, "applied, revision 2") {
		t.Errorf("it prints\n%s", out)
	}
	out = must(t, c.Kubeconfig, "hub", "install")
	if cm, err := configMaps.Get(ctx, charts.Principal, metav1.GetOptions{}); err != nil || !strings.Contains(fmt.Sprint(cm.Object["data"]), "debug") {
		t.Errorf("the ConfigMap is %v, %v", cm, err)
	}
	if got := image(); !strings.HasPrefix(got, registry+"/principal") || strings.Contains(out, "applied") {
		t.Errorf("values were not kept: the image is %s\n%s", got, out)
	}
	if err := configMaps.Delete(ctx, charts.Principal, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if out = must(t, c.Kubeconfig, "hub", "install"); !strings.Contains(out, "not as they should be, the first ConfigMap argomesh-principal") {
		t.Errorf("it prints\n%s", out)
	}

	// What someone else has changed since is theirs, until it is taken over.
	_, err := deployments.Patch(ctx, charts.Principal, types.MergePatchType, []byte(`{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":7}}}}`),
		metav1.PatchOptions{FieldManager: "someone-else"})
	if err != nil {
		t.Fatal(err)
	}
	before = revisions(t, c)
	_, err = agentctl(t, c.Kubeconfig, "hub", "install")
	if err == nil || !strings.Contains(err.Error(), `conflict with "someone-else"`) || !strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("with a field of someone else: %v", err)
	}
	if diff := cmp.Diff(before, revisions(t, c)); diff != "" {
		t.Errorf("a conflict changed (-before +after):\n%s", diff)
	}
	must(t, c.Kubeconfig, "hub", "install", "--force-conflicts")

	// helm goes on with it, and agentctl goes on with what helm did.
	if _, err := charts.Helm(t, "upgrade", charts.Principal, charts.Dir(t, charts.Principal), "--namespace", harness.ArgoCDNamespace,
		"--kubeconfig", c.Kubeconfig, "--reuse-values", "--set", "podLabels.by=helm"); err != nil {
		t.Fatal(err)
	}
	before = revisions(t, c)
	must(t, c.Kubeconfig, "hub", "install")
	if diff := cmp.Diff(before, revisions(t, c)); diff != "" {
		t.Errorf("after helm agentctl changed (-before +after):\n%s", diff)
	}
	must(t, c.Kubeconfig, "hub", "install", "--set", "podLabels.by=agentctl")
	if got, want := helmHistory(t, c, charts.Principal), []string{"superseded", "superseded", "superseded", "superseded", "superseded", "deployed"}; !slices.Equal(got, want) {
		t.Errorf("helm's history is %q, want %q", got, want)
	}

	if _, err := agentctl(t, c.Kubeconfig, "hub", "uninstall"); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("without --yes: %v", err)
	}
	out = must(t, c.Kubeconfig, "hub", "uninstall", "--yes")
	for _, want := range []string{
		"argomesh-principal 0.1.0 will be removed from namespace argocd:\n", "\n  Deployment argomesh-principal\n", "\n  Service argomesh-principal, argomesh-principal-stream\n",
		"these stay:\n  CustomResourceDefinition accessrequests.argomesh.io, agents.argomesh.io\n  Applications and their workloads", "what is registered with SPIRE",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("with --yes the uninstall does not say %q:\n%s", want, out)
		}
	}
	left := slices.Sorted(maps.Keys(revisions(t, c)))
	if want := []string{"customresourcedefinitions accessrequests.argomesh.io", "customresourcedefinitions agents.argomesh.io"}; !slices.Equal(left, want) {
		t.Errorf("%q are left, want %q\n%s", left, want, out)
	}
	if out = must(t, c.Kubeconfig, "hub", "uninstall", "--yes"); !strings.Contains(out, "is not installed") {
		t.Errorf("a second time it prints\n%s", out)
	}
	must(t, c.Kubeconfig, hubArgs...) // and the definition that stayed is taken over
	must(t, c.Kubeconfig, "hub", "uninstall", "--yes")
}

// A spoke gets its values from the Agent on the hub, which is the same cluster here.
func installsASpoke(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	ctx := t.Context()
	must(t, c.Kubeconfig, hubArgs...) // has the definition of Agents
	if out, err := agentctl(t, c.Kubeconfig, "spoke", "install", "edge-1", "--hub-context", c.Name); err == nil || !strings.Contains(err.Error(), "edge-1") {
		t.Fatalf("without an Agent: %v, %s", err, out)
	}
	env.Create(t, c.Resource(env.Agents, harness.ArgoCDNamespace), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argomesh.io/v1alpha1", "kind": "Agent", "metadata": map[string]any{"name": "edge-1"},
		"spec": map[string]any{
			"mode": "autonomous", "identity": map[string]any{"spiffeIDs": []any{env.SPIFFEID("edge-1")}}, "access": map[string]any{"enabled": true, "exec": true},
		},
	}})
	args := []string{"spoke", "install", "edge-1", "--hub-context", c.Name, "--registry", registry, "--timeout", "5s"}
	before := revisions(t, c)
	if _, err := agentctl(t, c.Kubeconfig, args...); err == nil || !strings.Contains(err.Error(), "has no application controller in namespace argocd") ||
		!strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("without a controller: %v", err)
	}
	hasController(t, c)
	if _, err := agentctl(t, c.Kubeconfig, args...); err == nil || !strings.Contains(err.Error(), "--principal and --principal-id are missing") {
		t.Errorf("without a principal: %v", err)
	}
	first := append(slices.Clone(args), "--principal", "hub.example:443", "--principal-id", env.PrincipalID)
	triesThePrincipal(t, c, first)
	if diff := cmp.Diff(before, revisions(t, c)); diff != "" {
		t.Errorf("what was refused wrote (-before +after):\n%s", diff)
	}
	// No program runs in these pods.
	out, err := agentctl(t, c.Kubeconfig, first...)
	if err == nil || !strings.Contains(err.Error(), `agent "edge-1" is installed, but not connected after 5s`) || !strings.Contains(out, "2 of 2 pods are ready") ||
		!strings.Contains(out, "principal hub.example:443 is reached, and shows a certificate of "+env.PrincipalID+"\n") {
		t.Errorf("it says %v, and prints\n%s", err, out)
	}
	out, err = agentctl(t, c.Kubeconfig, "status", "--wait", "--timeout", "3s")
	if err == nil || !strings.Contains(err.Error(), "1 things are not as they should be: agent edge-1: no principal has looked at it") ||
		!strings.Contains(out, "0 of 1 agents are as they should be") || !strings.Contains(out, "1 of 1 pods are ready") {
		t.Errorf("its status is %v\n%s", err, out)
	}
	cm, err := c.Resource(env.ConfigMaps, harness.ArgoCDNamespace).Get(ctx, charts.Agent, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, _, _ := unstructured.NestedString(cm.Object, "data", "agent.yaml")
	for _, want := range []string{"name: edge-1", "mode: autonomous", "address: hub.example:443", env.PrincipalID, "exec: true"} {
		if !strings.Contains(config, want) {
			t.Errorf("its configuration does not have %q:\n%s", want, config)
		}
	}
	before = revisions(t, c)
	if out := must(t, c.Kubeconfig, append(args, "--no-wait")...); strings.Contains(out, "a pod of the spoke") { // where the principal is, is kept
		t.Errorf("it tries again what the agent has:\n%s", out)
	}
	if diff := cmp.Diff(before, revisions(t, c)); diff != "" {
		t.Errorf("the second run changed (-before +after):\n%s", diff)
	}
	must(t, c.Kubeconfig, "spoke", "uninstall", "--yes")
	must(t, c.Kubeconfig, "hub", "uninstall", "--yes")
}

// Before an agent is told of a principal a pod of its cluster tries the way there, as the agent's pods would go. What
// it finds is the log that each container of the cluster has.
func triesThePrincipal(t *testing.T, c *harness.ControlPlane, install []string) {
	t.Helper()
	seen, err := c.Resource(jobs, harness.ArgoCDNamespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	podsSay(t, c, foundOnPath(t, "hub.example:443", "problem", "is not reached: i/o timeout", "open the firewall"))
	more := append(slices.Clone(install), "--set", "hostAliases[0].ip=192.0.2.1", "--set", "hostAliases[0].hostnames[0]=hub.example",
		"--set", "env[0].name=HTTPS_PROXY", "--set", "env[0].value=http://192.0.2.2:3128", "--set", "env[1].name=OTHER", "--set", "env[1].value=x")
	out, err := agentctl(t, c.Kubeconfig, more...)
	const want = "principal hub.example:443 is not reached: i/o timeout (PrincipalUnreachable); cure: open the firewall"
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "nothing was written; --pre-check=false") {
		t.Errorf("with a principal that is not reached: %v\n%s", err, out)
	}
	job := firstAdded(t, seen)
	pod, _, err := unstructured.NestedMap(job.Object, "spec", "template", "spec")
	if err != nil {
		t.Fatal(err)
	}
	container, _ := pod["containers"].([]any)[0].(map[string]any)
	if got := fmt.Sprint(container["image"]); got != registry+"/agentctl:0.1.0" {
		t.Errorf("the pod runs %s", got)
	}
	if got := fmt.Sprint(container["env"]); got != "[map[name:HTTPS_PROXY value:http://192.0.2.2:3128]]" {
		t.Errorf("the pod has the variables %s", got)
	}
	if got := fmt.Sprint(pod["hostAliases"]); got != "[map[hostnames:[hub.example] ip:192.0.2.1]]" {
		t.Errorf("the pod has the aliases %s", got)
	}
	labels, _, _ := unstructured.NestedStringMap(job.Object, "spec", "template", "metadata", "labels")
	if labels["app.kubernetes.io/name"] != charts.Agent || labels["sidecar.istio.io/inject"] != "false" {
		t.Errorf("the pod has the labels %v", labels)
	}
	podsSay(t, c, foundOnPath(t, "hub.example:443", "ok", "is reached, and shows a certificate of "+env.PrincipalID, ""))
}

// foundOnPath is what "agentctl check path -o json" prints of the way to a principal.
func foundOnPath(t *testing.T, address, level, says, cure string) string {
	t.Helper()
	f := finding{Level: level, Word: "PrincipalUnreachable", Side: "spoke", About: "principal " + address, Says: says, Cure: cure}
	raw, err := json.MarshalIndent(map[string]any{"findings": []finding{f}}, "", "    ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw) + "\n"
}

// firstAdded is the first object that a watch shows.
func firstAdded(t *testing.T, seen watch.Interface) *unstructured.Unstructured {
	t.Helper()
	select {
	case event := <-seen.ResultChan():
		o, is := event.Object.(*unstructured.Unstructured)
		if !is || event.Type != watch.Added {
			t.Fatalf("the watch says %+v", event)
		}
		return o
	case <-time.After(time.Minute):
		t.Fatal("nothing is added")
	}
	return nil
}

// What cannot be installed is refused before anything is written, all reasons at once.
func installRefuses(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	before := revisions(t, c)
	if _, err := agentctl(t, c.Kubeconfig, append(hubArgs, "-n", "nowhere")...); err == nil || !strings.Contains(err.Error(), "namespace nowhere does not exist") {
		t.Errorf("without the namespace: %v", err)
	}
	if _, err := agentctl(t, c.Kubeconfig, append(hubArgs, "--set", "enovy.enabled=true")...); err == nil || !strings.Contains(err.Error(), "enovy") {
		t.Errorf("an unknown value: %v", err)
	}
	if _, err := agentctl(t, c.Kubeconfig, append(hubArgs, "--context", "elsewhere")...); err == nil || !strings.Contains(err.Error(), `"elsewhere"`) {
		t.Errorf("with a context that is not there: %v", err)
	}
	if _, err := agentctl(t, nowhere(t, c), hubArgs...); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("with an API server that is away: %v", err)
	}
	none := strings.TrimPrefix(imageRegistry.URL, "http://") + "/none"
	if _, err := agentctl(t, c.Kubeconfig, append(hubArgs, "--registry", none)...); err == nil ||
		!strings.Contains(err.Error(), "these images are in no registry, and nothing was written: "+none+"/agentctl:0.1.0, "+none+"/principal:0.1.0") {
		t.Errorf("with images that are not there: %v", err)
	}
	// Someone who may write in the namespace, and no more.
	few := asUser(t, c, "few")
	allow(t, c, "few", harness.ArgoCDNamespace, "*", "*")
	var out string
	var err error
	env.Eventually(t, "the rights are in force", func() error {
		if out, err = agentctl(t, few, hubArgs...); err == nil || !strings.Contains(err.Error(), "nothing was written") {
			return fmt.Errorf("it says %w, and prints %s", err, out)
		}
		return nil
	})
	for _, want := range []string{"clusterroles", "customresourcedefinitions", "validatingadmissionpolicies"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not name %s: %v", want, err)
		}
	}
	// Someone with no right at all is told of each, also around the chart and on the other side, before anything else.
	no := asUser(t, c, "no")
	for _, install := range [][]string{
		append(slices.Clone(hubArgs), "--trust-domain", "hub.example"),
		{"spoke", "install", "edge-1", "--hub-context", c.Name, "--registry", registry, "--trust-domain", "edge.example"},
	} {
		_, err := agentctl(t, no, install...)
		wants := []string{"create secrets in namespace argocd", "create clusterspiffeids.spire.spiffe.io of the " + install[0], "nothing was written"}
		if install[0] == "spoke" {
			wants = append(wants, "create agents.argomesh.io in namespace argocd of the hub", "create clusterfederatedtrustdomains.spire.spiffe.io of the hub")
		} else {
			wants = append(wants, "patch deployments.apps in namespace argocd of the hub")
		}
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q without rights does not name %q: %v", install, want, err)
			}
		}
	}
	if diff := cmp.Diff(before, revisions(t, c)); diff != "" {
		t.Errorf("something was written (-before +after):\n%s", diff)
	}
	// An operation of helm that is under way is left to it.
	must(t, c.Kubeconfig, hubArgs...)
	secrets := c.Resource(env.Secrets, harness.ArgoCDNamespace)
	record := pending(t, c)
	if _, err := agentctl(t, c.Kubeconfig, "hub", "install", "--set", "podLabels.a=b"); err == nil || !strings.Contains(err.Error(), "another program has it pending-upgrade") {
		t.Errorf("while helm works: %v", err)
	}
	// Once that was begun long ago nothing works on it any more, and it is mended.
	age(t, secrets, record, 10*time.Minute)
	if out := must(t, c.Kubeconfig, "hub", "install", "--set", "podLabels.a=b"); !strings.Contains(out, "was ended in the middle (pending-upgrade)") {
		t.Errorf("of an operation of helm that was ended long ago it says\n%s", out)
	}
	if got := helmHistory(t, c, charts.Principal); got[len(got)-1] != "deployed" || slices.Contains(got, "pending-upgrade") {
		t.Errorf("after that helm's history is %q", got)
	}
	// An older chart is upgraded, and nothing is taken back to one.
	must(t, c.Kubeconfig, "hub", "uninstall", "--yes")
	helm(t, c.Kubeconfig, "install", charts.Principal, chartOfVersion(t, charts.Principal, "0.0.9"), "--set", "image.repository="+registry+"/principal",
		"--set", "podLabels.a=older", "--set", "envoy.image.repository="+registry+"/envoy", "--set", "envoy.bootstrapImage.repository="+registry+"/agentctl")
	out = must(t, c.Kubeconfig, "hub", "install")
	if got := chartOf(t, c, charts.Principal); got != charts.Principal+"-0.1.0" || !strings.Contains(out, "argomesh-principal 0.1.0 in namespace argocd: upgrade, since") {
		t.Errorf("of an older release there is chart %s, and it says\n%s", got, out)
	}
	if values, err := charts.Helm(t, "get", "values", charts.Principal, "--namespace", harness.ArgoCDNamespace, "--kubeconfig", c.Kubeconfig); err != nil || !strings.Contains(values, "a: older") {
		t.Errorf("the values of an older release are not kept: %v\n%s", err, values)
	}
	helm(t, c.Kubeconfig, "upgrade", charts.Principal, chartOfVersion(t, charts.Principal, "99.0.0"), "--reuse-values")
	before = revisions(t, c)
	if _, err := agentctl(t, c.Kubeconfig, "hub", "install"); err == nil || !strings.Contains(err.Error(), "it is of version 99.0.0, and this agentctl has 0.1.0") {
		t.Errorf("over a newer chart: %v", err)
	}
	if diff := cmp.Diff(before, revisions(t, c)); diff != "" {
		t.Errorf("something was written (-before +after):\n%s", diff)
	}
	must(t, c.Kubeconfig, "hub", "uninstall", "--yes")
}

// nowhere returns a kubeconfig whose context "nowhere", the current one, is of an API server that does not
// listen. The other contexts are those of the cluster.
func nowhere(t *testing.T, c *harness.ControlPlane) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters["nowhere"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.Contexts["nowhere"] = &clientcmdapi.Context{Cluster: "nowhere"}
	config.CurrentContext = "nowhere"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// chartOf is name and version of the chart of a release, as helm says it.
func chartOf(t *testing.T, c *harness.ControlPlane, release string) string {
	t.Helper()
	out, err := charts.Helm(t, "list", "--namespace", harness.ArgoCDNamespace, "--kubeconfig", c.Kubeconfig, "--output", "json")
	if err != nil {
		t.Fatal(err)
	}
	var releases []struct{ Name, Chart string }
	if err := json.Unmarshal([]byte(out), &releases); err != nil {
		t.Fatal(err)
	}
	for _, r := range releases {
		if r.Name == release {
			return r.Chart
		}
	}
	return ""
}

// age has a record of helm be of an operation that began earlier.
func age(t *testing.T, secrets dynamic.ResourceInterface, name string, by time.Duration) {
	t.Helper()
	o, err := secrets.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := unstructured.NestedString(o.Object, "data", "release")
	// Kubernetes encodes it, Helm did, and compressed it.
	for range 2 {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		text = string(raw)
	}
	unpacked, err := gzip.NewReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var release map[string]any
	if err := json.NewDecoder(unpacked).Decode(&release); err != nil {
		t.Fatal(err)
	}
	info, _ := release["info"].(map[string]any)
	if _, is := info["last_deployed"].(string); !is {
		t.Fatalf("record %s has %v", name, info)
	}
	info["last_deployed"] = time.Now().Add(-by).Format(time.RFC3339Nano)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if err := errors.Join(json.NewEncoder(w).Encode(release), w.Close()); err != nil {
		t.Fatal(err)
	}
	patch := map[string]any{"stringData": map[string]any{"release": base64.StdEncoding.EncodeToString(packed.Bytes())}}
	if err := env.MergePatch(t.Context(), secrets, name, patch); err != nil {
		t.Fatal(err)
	}
}

// chartOfVersion returns a chart as another release may have it.
func chartOfVersion(t *testing.T, chart, version string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), chart)
	if err := os.CopyFS(dir, os.DirFS(charts.Dir(t, chart))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "Chart.yaml")
	meta, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Replace(meta, []byte("\nversion: 0.1.0\n"), []byte("\nversion: "+version+"\n"), 1)
	if err := os.WriteFile(file, other, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// helm runs helm in the namespace of Argo CD.
func helm(t *testing.T, kubeconfig string, args ...string) {
	t.Helper()
	cmd := helmCommand(t, kubeconfig, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

func helmCommand(t *testing.T, kubeconfig string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := harnesstest.Tools(t).Path("helm")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, append(args, "--namespace", harness.ArgoCDNamespace, "--kubeconfig", kubeconfig)...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	return cmd
}

// pending has helm end in the middle of an upgrade, and returns the name of its record.
func pending(t *testing.T, c *harness.ControlPlane) string {
	t.Helper()
	kubeconfig, ended := endsAt(t, 2, c) // the record, and the first object
	cmd := helmCommand(t, kubeconfig, "upgrade", charts.Principal, charts.Dir(t, charts.Principal), "--reuse-values", "--set", "podLabels.x=y")
	if !killed(t, cmd, ended) {
		t.Fatal("helm was done before it was ended")
	}
	return "sh.helm.release.v1." + charts.Principal + ".v2"
}

// allow lets a user do all to resources of a group in a namespace.
func allow(t *testing.T, c *harness.ControlPlane, user, namespace, group, resource string) {
	t.Helper()
	const rbac = "rbac.authorization.k8s.io"
	object := func(kind string, more map[string]any) *unstructured.Unstructured {
		o := map[string]any{"apiVersion": rbac + "/v1", "kind": kind, "metadata": map[string]any{"name": user}}
		maps.Copy(o, more)
		return &unstructured.Unstructured{Object: o}
	}
	all := func(plural string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: rbac, Version: "v1", Resource: plural}
	}
	env.Create(t, c.Resource(all("roles"), namespace), object("Role", map[string]any{
		"rules": []any{map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": []any{"*"}}},
	}))
	env.Create(t, c.Resource(all("rolebindings"), namespace), object("RoleBinding", map[string]any{
		"roleRef":  map[string]any{"apiGroup": rbac, "kind": "Role", "name": user},
		"subjects": []any{map[string]any{"apiGroup": rbac, "kind": "User", "name": user}},
	}))
}

// asUser returns a kubeconfig by which the administrator is someone else.
func asUser(t *testing.T, c *harness.ControlPlane, user string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

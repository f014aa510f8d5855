//go:build linux

package install

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/mesh/istio"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// withMesh has a cluster have Istio's definitions, and the objects of an istiod and a gateway that are told what their
// charts say by default.
func withMesh(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	if err := c.ApplyFiles(t.Context(), env.IstioCRDs(t)); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"istio-system", "istio-ingress"} {
		if err := c.EnsureNamespace(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string]map[string]any{
		"istio":                  {"mesh": "rootNamespace: istio-system\ntrustDomain: cluster.local\n"},
		"istio-sidecar-injector": {"config": "templates:\n  sidecar: |\n    spec: {}\n  gateway: |\n    spec: {}\n"},
	} {
		env.Create(t, c.Resource(env.ConfigMaps, "istio-system"), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data,
		}})
	}
	env.Create(t, c.Resource(deployments, "istio-ingress"), workloadOf("istio-ingress", map[string]any{"istio": "ingress"},
		map[string]any{"inject.istio.io/templates": "gateway"}))
	// Its Redis is one that agentctl does not fill in.
	server := workloadOf("argocd-server", map[string]any{"app.kubernetes.io/component": "server", "app.kubernetes.io/name": "argocd-server"}, nil)
	containers, _, err := unstructured.NestedSlice(server.Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	containers[0].(map[string]any)["args"] = []any{"/usr/local/bin/argocd-server", "--sentinel=x"}
	if err := unstructured.SetNestedSlice(server.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	env.Create(t, c.Resource(deployments, harness.ArgoCDNamespace), server)
}

func workloadOf(name string, labels, annotations map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name, "labels": labels},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels, "annotations": annotations},
				"spec": map[string]any{"serviceAccountName": name,
					"containers": []any{map[string]any{"name": name, "image": "registry.example/" + name, "args": []any{"/usr/local/bin/" + name}}}},
			},
		},
	}}
}

// tell has istiod, and the gateway, be told what they need.
func tell(t *testing.T, c *harness.ControlPlane, td string) {
	t.Helper()
	patch := func(name, key, value string) {
		raw, err := json.Marshal(map[string]any{"data": map[string]any{key: value}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Resource(env.ConfigMaps, "istio-system").Patch(t.Context(), name, types.MergePatchType, raw, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch("istio", "mesh", "trustDomain: "+td+"\n")
	patch("istio-sidecar-injector", "config", "templates:\n  spire: |\n    spec: {volumes: [{csi: {driver: csi.spiffe.io}}]}\n")
	annotated(t, c, "istio-ingress", "istio-ingress", "gateway,spire", false)
}

// annotated has the pods of a Deployment be injected by templates.
func annotated(t *testing.T, c *harness.ControlPlane, namespace, name, templates string, labelled bool) {
	t.Helper()
	metadata := map[string]any{"annotations": map[string]any{"inject.istio.io/templates": templates}}
	if labelled {
		metadata["labels"] = map[string]any{"sidecar.istio.io/inject": "true"}
	}
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": metadata}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resource(deployments, namespace).Patch(t.Context(), name, types.MergePatchType, raw, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// meshed are the revisions of what a cluster has of Istio's objects and of SPIRE's, by kind and name.
func meshed(t *testing.T, c *harness.ControlPlane) map[string]string {
	t.Helper()
	kinds := maps.Clone(istio.Kinds())
	kinds[spire.ClusterSPIFFEIDKind] = spire.Resource(spire.ClusterSPIFFEIDKind)
	out := map[string]string{}
	for kind, resource := range kinds {
		list, err := c.Resource(resource, "").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			if strings.Contains(o.GetName(), "argomesh") || strings.Contains(o.GetName(), "argocd") {
				out[fmt.Sprintf("%s %s/%s", kind, o.GetNamespace(), o.GetName())] = o.GetResourceVersion()
			}
		}
	}
	return out
}

// Hub and spoke are in the Istio that is there, after the two commands and what they ask for.
func TestAgentctlInstallsIntoIstio(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	hub := append(slices.Clone(hubArgs), "--context", "hub", "--trust-domain", "hub.example", "--no-wait", "--check-images=false")
	meshHub := append(slices.Clone(hub), "--with", "istio", "--address", "argomesh.hub.example:443")
	if _, err := agentctl(t, p.kubeconfig, meshHub...); err == nil || !strings.Contains(err.Error(), "istiod is not there") {
		t.Errorf("without Istio it says %v", err)
	}
	withMesh(t, p.hub)
	withMesh(t, p.spoke)

	// What Istio is not told yet is said, all at once, as values of its chart; nothing is written.
	out, err := agentctl(t, p.kubeconfig, meshHub...)
	for _, want := range []string{
		"the trust domain of the mesh is cluster.local and not hub.example", "the injector has no template spire",
		"the gateway istio-ingress/istio-ingress has no identity of SPIRE", "give Istio what is printed above",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q: %v", want, err)
		}
	}
	for _, want := range []string{"trustDomain: hub.example", "driver: csi.spiffe.io"} {
		if !strings.Contains(out, want) {
			t.Errorf("of the values it does not print %q:\n%s", want, out)
		}
	}
	if there := meshed(t, p.hub); len(there) > 0 {
		t.Errorf("what was refused made %v", there)
	}
	tell(t, p.hub, "hub.example")
	tell(t, p.spoke, "edge.example")

	for want, args := range map[string][]string{
		"--address: it is missing":        append(slices.Clone(hub), "--with", "istio"),
		"192.0.2.1 is none":               append(slices.Clone(hub), "--with", "istio", "--address", "192.0.2.1:443"),
		"there is no such gateway":        append(slices.Clone(meshHub), "--istio-gateway", "istio-ingress/other"),
		"--with istio is missing":         append(slices.Clone(hub), "--istio-gateway", "istio-ingress/istio-ingress"),
		"istiod is not there (configmaps": append(slices.Clone(meshHub), "--istio-revision", "canary"),
	} {
		if _, err := agentctl(t, p.kubeconfig, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	out = must(t, p.kubeconfig, append(slices.Clone(meshHub), "--dry-run")...)
	for _, want := range []string{
		"+ Gateway istio-ingress/argomesh-principal", "+ ClusterSPIFFEID ", "deployment argocd-server has no proxy with an identity of SPIRE",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the dry run does not say %q:\n%s", want, out)
		}
	}
	if there := meshed(t, p.hub); len(there) > 0 {
		t.Errorf("the dry run made %v", there)
	}

	must(t, p.kubeconfig, meshHub...)
	if _, err := agentctl(t, p.kubeconfig, append(slices.Clone(hub), "--address", "other.hub.example:443")...); err == nil || !strings.Contains(err.Error(), "the principal is in Istio") {
		t.Errorf("another address than the gateway's: %v", err)
	}
	annotated(t, p.hub, harness.ArgoCDNamespace, "argocd-server", "sidecar,spire", true)
	config := filepath.Join(t.TempDir(), "principal.yaml")
	if err := os.WriteFile(config, []byte(fileOf(t, p.hub, "argomesh-principal", "principal.yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, product := range []string{"istio", "spire"} {
		if out := must(t, p.kubeconfig, "mesh", "verify", product, "--config", config, "--context", "hub"); !strings.Contains(out, "objects are as they should be") {
			t.Errorf("verify %s says\n%s", product, out)
		}
	}
	if id := identityNamed(t, p.hub, "argomesh-principal")["spiffeIDTemplate"]; id != "spiffe://hub.example/ns/argocd/sa/argomesh-principal" {
		t.Errorf("the principal is registered as %v", id)
	}

	// The spoke finds the principal by that name.
	spoke := []string{
		"spoke", "install", "edge-1", "--context", "spoke", "--hub-context", "hub", "--registry", registry, "--trust-domain", "edge.example",
		"--principal", "argomesh.hub.example:443", "--no-wait", "--check-images=false", "--federate=false",
	}
	meshSpoke := append(slices.Clone(spoke), "--with", "istio")
	must(t, p.kubeconfig, meshSpoke...)
	if got := fileOf(t, p.spoke, "argomesh-agent", "agent.yaml"); !strings.Contains(got, "spiffe://hub.example/ns/argocd/sa/argomesh-principal") {
		t.Errorf("the agent is told of\n%s", got)
	}
	if _, there := meshed(t, p.spoke)["ServiceEntry argocd/argomesh-agent-hub"]; !there {
		t.Errorf("the spoke has %v", meshed(t, p.spoke))
	}
	for _, at := range []struct {
		c    *harness.ControlPlane
		name string
	}{{p.hub, "argomesh-principal"}, {p.spoke, "argomesh-agent"}} {
		d, err := at.c.Resource(deployments, harness.ArgoCDNamespace).Get(t.Context(), at.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := unstructured.NestedString(d.Object, "spec", "template", "metadata", "annotations", "inject.istio.io/templates"); got != "sidecar,spire" {
			t.Errorf("%s is injected by %q", at.name, got)
		}
	}

	// Again, with and without --with: nothing is written. A hub that has an agent now lets it in, and knows nothing else
	// to do.
	must(t, p.kubeconfig, meshHub...)
	before := [4]map[string]string{revisions(t, p.hub), meshed(t, p.hub), revisions(t, p.spoke), meshed(t, p.spoke)}
	for _, args := range [][]string{meshHub, hub, append(slices.Clone(hub), "--with", "istio"), meshSpoke, spoke} {
		if out := must(t, p.kubeconfig, args...); strings.Contains(out, "applied") || strings.Contains(out, "has no proxy") {
			t.Errorf("%q says\n%s", args, out)
		}
	}
	after := [4]map[string]string{revisions(t, p.hub), meshed(t, p.hub), revisions(t, p.spoke), meshed(t, p.spoke)}
	for i := range before {
		if !maps.Equal(before[i], after[i]) {
			t.Errorf("again it changes\n%v\nto\n%v", before[i], after[i])
		}
	}

	// As files, Istio's objects are among them.
	folder := t.TempDir()
	must(t, p.kubeconfig, append(slices.Clone(meshHub), "--output-dir", folder)...)
	if raw, err := os.ReadFile(filepath.Join(folder, "hub", "mesh.yaml")); err != nil || !strings.Contains(string(raw), "kind: VirtualService") {
		t.Errorf("mesh.yaml: %v", err)
	}

	// An uninstall leaves nothing of Istio's objects, and what is registered with SPIRE: another one finds nothing to do
	// when the first was killed as Helm forgot the release.
	for _, side := range []struct {
		c     *harness.ControlPlane
		chart string
		args  []string
	}{
		{p.spoke, charts.Agent, []string{"spoke", "uninstall", "--yes"}},
		{p.hub, charts.Principal, []string{"hub", "uninstall", "--no-wait", "--yes"}},
	} {
		killedAtItsRecord(t, side.c, side.chart, side.args...)
		out := must(t, p.kubeconfig, append(side.args, "--context", side.c.Name)...)
		if !strings.Contains(out, side.chart+" is not installed in namespace argocd") {
			t.Errorf("after a kill at the end of an uninstall another one says\n%s", out)
		}
	}
	for _, c := range []*harness.ControlPlane{p.hub, p.spoke} {
		for name := range meshed(t, c) {
			if !strings.HasPrefix(name, spire.ClusterSPIFFEIDKind) {
				t.Errorf("%s has still %s", c.Name, name)
			}
		}
	}
}

// A principal that agents know by another SPIFFE ID is not given a second one.
func TestAgentctlDoesNotRenameAPrincipal(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	hub := append(slices.Clone(hubArgs), "--context", "hub", "--trust-domain", "hub.example", "--no-wait", "--check-images=false")
	must(t, p.kubeconfig, hub...)
	withMesh(t, p.hub)
	tell(t, p.hub, "hub.example")
	before := meshed(t, p.hub)
	_, err := agentctl(t, p.kubeconfig, append(slices.Clone(hub), "--with", "istio", "--address", "argomesh.hub.example:443")...)
	if err == nil || !strings.Contains(err.Error(), `"agentctl identity revoke principal" first`) {
		t.Errorf("it says %v", err)
	}
	if after := meshed(t, p.hub); !maps.Equal(before, after) {
		t.Errorf("what was refused changed\n%v\nto\n%v", before, after)
	}
}

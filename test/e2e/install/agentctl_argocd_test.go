//go:build linux

package install

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

var (
	deployments         = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	clusterRoles        = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	clusterRoleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
)

// stockArgoCD applies, of the manifests of Argo CD itself, what is in its namespace: kwok has its
// pods be ready, and nothing runs in them.
func stockArgoCD(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/argoproj/argo-cd/v3").Output()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "manifests", "namespace-install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	kinds := regexp.MustCompile(`(?m)^kind: (Deployment|StatefulSet|ConfigMap|Secret|Service|ServiceAccount|NetworkPolicy)$`)
	applied := 0
	for _, document := range strings.Split(string(content), "\n---\n") {
		if !kinds.MatchString(document) {
			continue
		}
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetNamespace(harness.ArgoCDNamespace)
		if err := c.Apply(t.Context(), &o); err != nil {
			t.Fatal(err)
		}
		applied++
	}
	if applied < 20 {
		t.Fatalf("the manifests of Argo CD have %d objects of these kinds", applied)
	}
}

// withSPIRE applies the definitions of spire-controller-manager, and a ClusterSPIFFEID as SPIRE's Helm
// chart makes one.
func withSPIRE(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	if err := c.ApplyFiles(t.Context(), filepath.Join("..", "testdata", "spire-crds.yaml")); err != nil {
		t.Fatal(err)
	}
	env.Create(t, c.Resource(spire.Resource(spire.ClusterSPIFFEIDKind), ""), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "spire.spiffe.io/v1alpha1", "kind": spire.ClusterSPIFFEIDKind, "metadata": map[string]any{"name": "spire-default"},
		"spec": map[string]any{"className": "spire-mgmt-spire", "spiffeIDTemplate": "spiffe://{{ .TrustDomain }}/ns/{{ .PodMeta.Namespace }}"},
	}})
}

// listsAll lets argocd-server list Applications of all namespaces, as the manifests of a whole cluster do.
func listsAll(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	env.Create(t, c.Resource(clusterRoles, ""), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "argocd-server"},
		"rules": []any{map[string]any{
			"apiGroups": []any{"argoproj.io"}, "resources": []any{"applications"}, "verbs": []any{"get", "list", "watch"},
		}},
	}})
	env.Create(t, c.Resource(clusterRoleBindings, ""), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "argocd-server"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "argocd-server"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "argocd-server", "namespace": harness.ArgoCDNamespace}},
	}})
	client, err := kubernetes.NewForConfig(c.REST())
	if err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "argocd-server may list Applications of all namespaces", func() error {
		answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + harness.ArgoCDNamespace + ":argocd-server",
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Group: "argoproj.io", Resource: "applications"},
			},
		}, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = errors.New("not yet")
		}
		return err
	})
}

// serverArgs are the arguments of argocd-server.
func serverArgs(t *testing.T, c *harness.ControlPlane) []string {
	t.Helper()
	d, err := c.Resource(deployments, harness.ArgoCDNamespace).Get(t.Context(), "argocd-server", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	containers, _, err := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	if err != nil {
		t.Fatal(err)
	}
	return args
}

// Two commands take a hub and a spoke, each with stock Argo CD and spire-controller-manager, to all
// that trees in the hub's Argo CD need. Hub and spoke are one cluster here, in two namespaces of
// the same Argo CD.
func installsBesideArgoCD(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	ctx := t.Context()
	stockArgoCD(t, c)
	withSPIRE(t, c)
	own := serverArgs(t, c)

	hub := append(slices.Clone(hubArgs), "--trust-domain", "hub.example", "--set", "service.type=LoadBalancer", "--terminal")
	if out := must(t, c.Kubeconfig, append(slices.Clone(hub), "--dry-run")...); !strings.Contains(out, "Deployment argocd-server configured (server dry run)") ||
		!strings.Contains(out, "NetworkPolicy argomesh-principal-redis created") || !strings.Contains(out, "+ clusterspiffeid.spire.spiffe.io/argomesh.principal") ||
		!strings.Contains(out, "ConfigMap argocd-cm configured (server dry run)") {
		t.Errorf("the dry run prints\n%s", out)
	}
	if got := serverArgs(t, c); !slices.Equal(got, own) {
		t.Errorf("the dry run changed argocd-server: %q", got)
	}
	offersTerminals(t, c, nil)
	const notShown = "argocd-server shows no Applications of other namespaces"
	if out := must(t, c.Kubeconfig, append(slices.Clone(hub), "--dry-run")...); !strings.Contains(out, notShown) {
		t.Errorf("of an argocd-server that may list its own namespace alone it prints\n%s", out)
	}
	listsAll(t, c)
	folder := writesHubFiles(t, c, hub)
	out := must(t, c.Kubeconfig, hub...)
	toldBefore(t, out, "Deployment argocd-server will get --redis=argomesh-principal:6379 --application-namespaces=*, and restart", "applied, revision 1")
	toldBefore(t, out, "clusterspiffeid.spire.spiffe.io/argomesh.principal.", "applied, revision 1")
	toldBefore(t, out, " will be created\n", "applied, revision 1")
	sameAsInstalled(t, c, charts.Principal, folder, "hub", charts.Principal+".yaml")
	offersTerminals(t, c, "true")
	if got, want := serverArgs(t, c), append(slices.Clone(own), "--redis=argomesh-principal:6379", "--application-namespaces=*"); !slices.Equal(got, want) {
		t.Errorf("argocd-server has %q, want %q\n%s", got, want, out)
	}
	if !strings.Contains(out, "argocd-server: 1 of 1 pods are ready") || strings.Contains(out, notShown) {
		t.Errorf("it does not wait for argocd-server:\n%s", out)
	}
	principal := identityNamed(t, c, "principal")
	if got := principal["spiffeIDTemplate"]; got != "spiffe://hub.example/argomesh/principal" || principal["className"] != "spire-mgmt-spire" {
		t.Errorf("the principal is registered as %v", principal)
	}
	config := fileOf(t, c, charts.Principal, "principal.yaml")
	for _, want := range []string{"address: argocd-redis:6379", "password_file: /run/argocd-redis/auth", "listen: unix:///run/argomesh/redis-proxy.sock", "redis_tls: none", "share_default: true"} {
		if !strings.Contains(config, want) {
			t.Errorf("the configuration does not have %q:\n%s", want, config)
		}
	}
	before := revisions(t, c)
	out = must(t, c.Kubeconfig, hubArgs...)
	if diff := cmp.Diff(before, revisions(t, c)); diff != "" || strings.Contains(out, "argocd-server") {
		t.Errorf("the second run changed (-before +after):\n%s\n%s", diff, out)
	}
	spokeBesideArgoCD(t, c, folder)

	// An upgrade of Argo CD by its manifests takes the argument away, and a second run gives it back.
	stockArgoCD(t, c)
	if _, err := c.Resource(deployments, harness.ArgoCDNamespace).Patch(ctx, "argocd-server", types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/args","value":["/usr/local/bin/argocd-server"]}]`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	must(t, c.Kubeconfig, hubArgs...)
	if got := serverArgs(t, c); !slices.Contains(got, "--redis=argomesh-principal:6379") {
		t.Errorf("after an upgrade of Argo CD argocd-server has %q", got)
	}

	// What another tool manages is not touched.
	out = must(t, c.Kubeconfig, "hub", "uninstall", "--yes", "--timeout", "0")
	toldBefore(t, out, "Deployment argocd-server will get back the arguments that it had, without --application-namespaces=* --redis=argomesh-principal:6379, and restart",
		"Deployment argocd-server has the arguments again that it had")
	if got := serverArgs(t, c); !slices.Equal(got, own) {
		t.Errorf("after the uninstall argocd-server has %q, want %q", got, own)
	}
	offersTerminals(t, c, nil)
	if _, err := c.Resource(deployments, harness.ArgoCDNamespace).Patch(ctx, "argocd-server", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"meta.helm.sh/release-name":"argocd"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	out = must(t, c.Kubeconfig, hubArgs...)
	if got := serverArgs(t, c); !slices.Equal(got, own) || !strings.Contains(out, "argocd-server is managed by helm") ||
		!strings.Contains(out, "--redis=argomesh-principal:6379") {
		t.Errorf("argocd-server has %q, and it says\n%s", got, out)
	}
	must(t, c.Kubeconfig, "hub", "uninstall", "--yes")
	if _, err := c.Resource(deployments, harness.ArgoCDNamespace).Patch(ctx, "argocd-server", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"meta.helm.sh/release-name":null}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// offersTerminals checks what Argo CD's own setting of terminals is; nil for none.
func offersTerminals(t *testing.T, c *harness.ControlPlane, want any) {
	t.Helper()
	cm, err := c.Resource(env.ConfigMaps, harness.ArgoCDNamespace).Get(t.Context(), "argocd-cm", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	data, _, err := unstructured.NestedMap(cm.Object, "data")
	if err != nil || data["exec.enabled"] != want {
		t.Errorf("Argo CD has %v, %v, want exec.enabled: %v", data, err, want)
	}
	if annotations := fmt.Sprint(cm.GetAnnotations()); strings.Contains(annotations, "argomesh.io/exec.enabled-before") != (want != nil) {
		t.Errorf("its annotations are %s", annotations)
	}
}

// toldBefore wants one text, and another one after it.
func toldBefore(t *testing.T, out, first, then string) {
	t.Helper()
	told := strings.Index(out, first)
	if told < 0 || !strings.Contains(out[told+len(first):], then) || strings.Index(out, then) < told {
		t.Errorf("it does not say %q before %q:\n%s", first, then, out)
	}
}

// spokeBesideArgoCD installs the spoke; folder has the files of the hub.
func spokeBesideArgoCD(t *testing.T, c *harness.ControlPlane, folder string) {
	t.Helper()
	spoke := []string{"spoke", "install", "edge-9", "--hub-context", c.Name, "--registry", registry, "--no-wait"}
	if _, err := agentctl(t, c.Kubeconfig, spoke...); err == nil || !strings.Contains(err.Error(), "--trust-domain is missing") {
		t.Errorf("without an Agent: %v", err)
	}
	spoke = append(spoke, "--trust-domain", "edge.example")
	if _, err := agentctl(t, c.Kubeconfig, spoke...); err == nil || !strings.Contains(err.Error(), "--principal and --principal-id are missing") {
		t.Errorf("without an address: %v", err)
	}
	agents := c.Resource(env.Agents, harness.ArgoCDNamespace)
	if _, err := agents.Get(t.Context(), "edge-9", metav1.GetOptions{}); err == nil {
		t.Error("the agent is registered although nothing was installed")
	}
	// As a load balancer gives an address.
	balance(t, c, "hub.example")
	out := must(t, c.Kubeconfig, spoke...)
	toldBefore(t, out, "agent edge-9 will be registered with the hub", "agent edge-9 is registered with the hub")
	toldBefore(t, out, " will be created\n", "agent edge-9 is registered with the hub")
	agent, err := agents.Get(t.Context(), "edge-9", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(agent.Object["spec"]); !strings.Contains(got, "mode:managed") || !strings.Contains(got, "spiffe://edge.example/argomesh/agent/edge-9") ||
		!strings.Contains(got, "enabled:true") {
		t.Errorf("its spec is %s", got)
	}
	config := fileOf(t, c, charts.Agent, "agent.yaml")
	for _, want := range []string{"address: hub.example:8443", "spiffe://hub.example/argomesh/principal", "address: argocd-redis:6379", "redis_proxy:", "appproject/default"} {
		if !strings.Contains(config, want) {
			t.Errorf("the configuration does not have %q:\n%s", want, config)
		}
	}
	registered := identityNamed(t, c, "edge-9")
	if got := fmt.Sprintf("%v %v %v", registered["spiffeIDTemplate"], registered["className"], registered["federatesWith"]); got !=
		"spiffe://edge.example/argomesh/agent/edge-9 spire-mgmt-spire [hub.example]" {
		t.Errorf("the agent is registered as %s: %v", got, registered)
	}
	before := revisions(t, c)
	must(t, c.Kubeconfig, spoke...)
	if diff := cmp.Diff(before, revisions(t, c)); diff != "" {
		t.Errorf("the second run changed (-before +after):\n%s", diff)
	}
	writesSpokeFiles(t, c, folder, spoke)
	if _, err := agentctl(t, c.Kubeconfig, append(spoke, "--mode", "autonomous")...); err == nil || !strings.Contains(err.Error(), "a mode cannot be changed") {
		t.Errorf("with another mode: %v", err)
	}
	must(t, c.Kubeconfig, "spoke", "uninstall", "--yes")

	// Who has one side alone gets from the hub's a file, and all is as before.
	file := filepath.Join(t.TempDir(), "edge-9.yaml")
	content := must(t, c.Kubeconfig, "agent", "create", "edge-9", "--mode", "managed", "--trust-domain", "edge.example", "-o", "install")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	out = must(t, c.Kubeconfig, "spoke", "install", "--from", file, "--registry", registry, "--no-wait")
	if got := fileOf(t, c, charts.Agent, "agent.yaml"); got != config {
		t.Errorf("from the file the configuration is\n%s\nnot\n%s\n%s", got, config, out)
	}
	if diff := cmp.Diff(registered, identityNamed(t, c, "edge-9")); diff != "" {
		t.Errorf("from the file it is registered otherwise (-before +after):\n%s", diff)
	}
	must(t, c.Kubeconfig, "spoke", "uninstall", "--yes")
	findsTheAddress(t, c, spoke)
	hasAProject(t, c, spoke)
}

// hasAProject installs a spoke whose hub does not share AppProject default: another one is printed, and made if that is
// asked for.
func hasAProject(t *testing.T, c *harness.ControlPlane, spoke []string) {
	t.Helper()
	env.Create(t, c.Resource(env.ConfigMaps, harness.ArgoCDNamespace), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argomesh-hub"},
		"data": map[string]any{"uid": "x", "mapping": "namespace", "default-project": "not-shared"},
	}})
	projects := c.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	out := must(t, c.Kubeconfig, spoke...)
	const begin = "--project NAME makes one there, such as this:\n"
	_, printed, found := strings.Cut(out, begin)
	printed, _, ends := strings.Cut(printed, "next: ")
	if !found || !ends || !strings.Contains(out, "AppProject default of the hub is not that of this spoke") {
		t.Fatalf("it does not print an AppProject:\n%s", out)
	}
	if out := must(t, c.Kubeconfig, spoke...); strings.Contains(out, begin) {
		t.Errorf("a second time it prints\n%s", out)
	}
	must(t, c.Kubeconfig, "spoke", "uninstall", "--yes")

	named := append(slices.Clone(spoke), "--project", "edge-9-apps")
	if out := must(t, c.Kubeconfig, append(slices.Clone(named), "--dry-run")...); !strings.Contains(out, "AppProject edge-9-apps created on the hub (server dry run)") {
		t.Errorf("the dry run prints\n%s", out)
	}
	toldBefore(t, must(t, c.Kubeconfig, named...), "AppProject edge-9-apps will be created on the hub", "AppProject edge-9-apps created on the hub")
	made, err := projects.Get(t.Context(), "edge-9-apps", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wants, _ := documents(t, printed)["AppProject edge-9"].(map[string]any)
	if diff := cmp.Diff(wants["spec"], made.Object["spec"]); wants == nil || diff != "" {
		t.Errorf("it makes another AppProject than it prints (-printed +made):\n%s\n%s", diff, printed)
	}
	if out := must(t, c.Kubeconfig, named...); strings.Contains(out, "edge-9-apps") {
		t.Errorf("a second time it says\n%s", out)
	}
	// One that is there and is another agent's stays as it is.
	env.Patch(t, projects, "edge-9-apps", map[string]any{"spec": map[string]any{"destinations": []any{map[string]any{"name": "edge-8", "namespace": "*"}}}})
	for want, args := range map[string][]string{
		"AppProject edge-9-apps is on the hub and lacks a destination with name edge-9": named,
		"--project default: whether that is shared":                                     append(slices.Clone(spoke), "--project", "default"),
		"--project: --hub-context is missing":                                           {"spoke", "install", "edge-9", "--project", "x"},
	} {
		if _, err := agentctl(t, c.Kubeconfig, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	must(t, c.Kubeconfig, "spoke", "uninstall", "--yes")
	for kind, name := range map[schema.GroupVersionResource]string{harness.AppProjects: "edge-9-apps", env.ConfigMaps: "argomesh-hub"} {
		if err := c.Resource(kind, harness.ArgoCDNamespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// findsTheAddress names an address of the hub, which spokes get in place of that of its load balancer.
func findsTheAddress(t *testing.T, c *harness.ControlPlane, spoke []string) {
	t.Helper()
	const address = "argomesh.hub.example:443"
	if _, err := agentctl(t, c.Kubeconfig, append(slices.Clone(hubArgs), "--address", "argomesh.hub.example")...); err == nil ||
		!strings.Contains(err.Error(), `--address "argomesh.hub.example": host:port is expected`) {
		t.Errorf("an address without a port: %v", err)
	}
	must(t, c.Kubeconfig, append(slices.Clone(hubArgs), "--address", address)...)
	must(t, c.Kubeconfig, hubArgs...) // which keeps it
	must(t, c.Kubeconfig, spoke...)
	if config := fileOf(t, c, charts.Agent, "agent.yaml"); !strings.Contains(config, "address: "+address) {
		t.Errorf("the agent is not told of %s:\n%s", address, config)
	}
	if file := must(t, c.Kubeconfig, "agent", "create", "edge-9", "--mode", "managed", "--trust-domain", "edge.example", "-o", "install"); !strings.Contains(file, "address: "+address) {
		t.Errorf("the file for a spoke does not have %s:\n%s", address, file)
	}
	must(t, c.Kubeconfig, "spoke", "uninstall", "--yes")
}

// identityNamed is the spec of the ClusterSPIFFEID of a registration.
func identityNamed(t *testing.T, c *harness.ControlPlane, name string) map[string]any {
	t.Helper()
	list, err := c.Resource(spire.Resource(spire.ClusterSPIFFEIDKind), "").List(t.Context(),
		metav1.ListOptions{LabelSelector: spire.RegistrationLabel + "=" + name})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("registration %s: %v, %v", name, list, err)
	}
	spec, _ := list.Items[0].Object["spec"].(map[string]any)
	return spec
}

// fileOf is what a ConfigMap has under a key.
func fileOf(t *testing.T, c *harness.ControlPlane, name, key string) string {
	t.Helper()
	cm, err := c.Resource(env.ConfigMaps, harness.ArgoCDNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := unstructured.NestedString(cm.Object, "data", key)
	return text
}

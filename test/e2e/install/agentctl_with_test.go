//go:build linux

package install

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// archives are what `make manifests` writes, in a folder.
func archives(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "run", "github.com/argomesh/argomesh/test/tools/manifests", folder).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return folder
}

// bringsAll are flags of an install on a bare cluster, by manifests in a folder. kwok has no volumes.
func bringsAll(t *testing.T, folder string) []string {
	t.Helper()
	noStorage := filepath.Join(t.TempDir(), "spire.yaml")
	if err := os.WriteFile(noStorage, []byte("server: {storage: {size: \"\"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--with", "spire,argocd", "--manifests", folder, "--spire-values", noStorage}
}

// A bare cluster gets SPIRE, Argo CD and the principal by one command.
func TestAgentctlBringsOthers(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "helm")
	c, err := harnesstest.New(t).StartControlPlane(t.Context(), harness.ControlPlaneConfig{Name: "bare", Workloads: true})
	if err != nil {
		t.Fatal(err)
	}
	folder := archives(t)
	plain := append(slices.Clone(hubArgs), "--trust-domain", "hub.example", "--check-images=false")
	all := append(slices.Clone(plain), bringsAll(t, folder)...)

	if _, err := agentctl(t, c.Kubeconfig, plain...); err == nil || !strings.Contains(err.Error(), "--with argocd") {
		t.Errorf("without Argo CD it says %v", err)
	}
	out := must(t, c.Kubeconfig, append(slices.Clone(all), "--dry-run")...)
	for _, want := range []string{"namespace spire-system created (server dry run)", "SPIRE would be installed there", "Argo CD v3.5.3 would be installed there"} {
		if !strings.Contains(out, want) {
			t.Errorf("the dry run does not say %q:\n%s", want, out)
		}
	}
	for _, name := range []string{"spire-system", harness.ArgoCDNamespace} {
		if _, err := c.Resource(namespaces, "").Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the dry run made namespace %s: %v", name, err)
		}
	}

	bringsNothing(t, c, folder)

	// Ended in the middle of SPIRE, and then in that of Argo CD: another run finishes both.
	for _, n := range []int64{8, 40} {
		if !killedOnceIn(t, n, []*harness.ControlPlane{c}, all...) {
			t.Errorf("it was done before write %d", n)
		}
	}

	out = must(t, c.Kubeconfig, all...)
	for _, want := range []string{"argomesh-spire-agent: 1 of 1 pods are ready", "argocd-server: 1 of 1 pods are ready", "argocd-server has --redis=argomesh-principal:6379, by which"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if got, want := serverArgs(t, c), []string{"--redis=argomesh-principal:6379"}; !slices.Equal(got, want) {
		t.Errorf("argocd-server has the arguments %q, want %q", got, want)
	}
	sets := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	if _, err := c.Resource(sets, harness.ArgoCDNamespace).Get(t.Context(), "argocd-application-controller", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the hub has an application controller: %v", err)
	}
	if got := identityNamed(t, c, "principal")["spiffeIDTemplate"]; got != "spiffe://hub.example/argomesh/principal" {
		t.Errorf("the principal is registered as %v", got)
	}

	// Again, with and without --with: nothing is written.
	before := revisions(t, c)
	for _, args := range [][]string{all, plain} {
		if out := must(t, c.Kubeconfig, args...); strings.Contains(out, "applied") {
			t.Errorf("%q applies again:\n%s", args, out)
		}
		if after := revisions(t, c); !maps.Equal(before, after) {
			t.Errorf("%q changes\n%v\nto\n%v", args, before, after)
		}
	}

	// A wrong context, or another trust domain: what is there is not turned into something else.
	if _, err := agentctl(t, c.Kubeconfig, append(slices.Clone(all), "--trust-domain", "other.example")...); err == nil ||
		!strings.Contains(err.Error(), "SPIRE is there with trustDomain hub.example, and is not changed to other.example") {
		t.Errorf("another trust domain: %v", err)
	}
	from := filepath.Join(t.TempDir(), "edge-1.yaml")
	if err := os.WriteFile(from, []byte(must(t, c.Kubeconfig, "agent", "create", "edge-1", "--mode", "managed", "--trust-domain", "hub.example",
		"--principal", "principal.hub.example:443", "--principal-id", "spiffe://hub.example/argomesh/principal", "-o", "install")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := agentctl(t, c.Kubeconfig, "spoke", "install", "--from", from, "--registry", registry, "--with", "argocd", "--manifests", folder); err == nil ||
		!strings.Contains(err.Error(), "is there with role hub, and is not changed to spoke: is it the right --context?") {
		t.Errorf("the hub as a spoke: %v", err)
	}
	if after := revisions(t, c); !maps.Equal(before, after) {
		t.Errorf("what was refused changed\n%v\nto\n%v", before, after)
	}

	// What someone else brought is left as it is: here, in the eyes of another namespace, that of the hub.
	out, err = agentctl(t, c.Kubeconfig, "hub", "install", "-n", "elsewhere", "--registry", registry, "--with", "argocd", "--manifests", folder, "--dry-run")
	if err == nil || !strings.Contains(out, "Argo CD v3.5.3 is there (its resource applications.argoproj.io): it is left as it is") {
		t.Errorf("of an Argo CD that is there it says %v\n%s", err, out)
	}

	findsItsClass(t, c, plain)
	must(t, c.Kubeconfig, "hub", "uninstall", "--yes")
	if got := serverArgs(t, c); len(got) > 0 {
		t.Errorf("argocd-server keeps the arguments %q", got)
	}
	if out, err := charts.Helm(t, "list", "--all-namespaces", "--short", "--kubeconfig", c.Kubeconfig); err != nil ||
		!strings.Contains(out, "argomesh-argocd") || !strings.Contains(out, "argomesh-spire") || strings.Contains(out, "argomesh-principal") {
		t.Errorf("helm lists %q, %v", out, err)
	}
}

// findsItsClass has agentctl check find a registration that the SPIRE of --with does not look after: nothing but the
// configuration of its spire-controller-manager says of which class that has to be. Install is what registered it.
func findsItsClass(t *testing.T, c *harness.ControlPlane, install []string) {
	t.Helper()
	ids := c.Resource(spire.Resource(spire.ClusterSPIFFEIDKind), "")
	breakage{
		word: "WrongClass", check: []string{"hub"},
		how: func(t *testing.T) {
			t.Helper()
			env.Patch(t, ids, nameOfRegistration(t, c, "principal"), map[string]any{"spec": map[string]any{"className": "other"}})
		},
		cure: by(func(t *testing.T) {
			t.Helper()
			must(t, c.Kubeconfig, append(slices.Clone(install), "--class-name", "argomesh-spire")...)
		}, "register it again with --class-name argomesh-spire"),
	}.happens(t, &c.Kubeconfig)
	// That of none, which the installs register without a flag, is looked after, too.
	must(t, c.Kubeconfig, install...)
	if class := identityNamed(t, c, "principal")["className"]; class != nil {
		t.Errorf("without a flag it is of class %v", class)
	}
	if found, _ := checked(t, c.Kubeconfig, "hub"); slices.ContainsFunc(found, func(f finding) bool { return f.Word == "WrongClass" }) {
		t.Errorf("of a registration of no class is found %+v", found)
	}
}

// bringsNothing has installs be refused for what would keep the principal from being installed after SPIRE and Argo CD:
// nothing of those is written before.
func bringsNothing(t *testing.T, c *harness.ControlPlane, folder string) {
	t.Helper()
	with := append([]string{"--trust-domain", "hub.example"}, bringsAll(t, folder)...)
	refused := func(kubeconfig string, args []string, wants ...string) error {
		_, err := agentctl(t, kubeconfig, args...)
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("%q says %w, want %q", args, err, want)
			}
		}
		for _, name := range []string{"spire-system", harness.ArgoCDNamespace} {
			if _, err := c.Resource(namespaces, "").Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Fatalf("%q was refused, and made namespace %s: %v", args, name, err)
			}
		}
		return nil
	}
	unasked := append(slices.Clone(hubArgs), "--check-images=false")
	spireAlone := append(slices.Clone(unasked), with...)
	spireAlone[slices.Index(spireAlone, "spire,argocd")] = "spire"
	no, few := asUser(t, c, "no"), asUser(t, c, "few")
	for _, try := range []error{
		// What --with does not bring is missing.
		refused(c.Kubeconfig, spireAlone, "Argo CD is not there", "NamespaceMissing", "nothing was written"),
		refused(c.Kubeconfig, append(slices.Clone(unasked), append(slices.Clone(with), "--set", "enovy.enabled=true")...), "enovy"),
		refused(c.Kubeconfig, append(slices.Clone(unasked), append(slices.Clone(with), "--with", "istio")...), "istiod is not there"),
		refused(no, append(slices.Clone(unasked), with...), "create namespaces of the hub", "create secrets in namespace spire-system of the hub",
			"create leases.coordination.k8s.io in namespace argocd of the hub"),
	} {
		if try != nil {
			t.Error(try)
		}
	}
	// The registries of others are not reached from here.
	t.Run("images", func(t *testing.T) {
		none := strings.TrimPrefix(imageRegistry.URL, "http://") + "/none"
		cmd := exec.CommandContext(t.Context(), agentctlBinary(t), append(append([]string{"--kubeconfig", c.Kubeconfig}, hubArgs...), append(with, "--registry", none)...)...)
		cmd.Env = append(os.Environ(), "HTTPS_PROXY=http://127.0.0.1:1")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "these images are in no registry, and nothing was written: "+none+"/agentctl:0.1.0") {
			t.Errorf("without images it says %v\n%s", err, out)
		}
		if err := refused(c.Kubeconfig, spireAlone); err != nil {
			t.Error(err)
		}
	})
	// Someone who may do all in namespaces, and make them, may not make what SPIRE has beside.
	const rbac = "rbac.authorization.k8s.io"
	env.Create(t, c.Resource(clusterRoles, ""), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": rbac + "/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "few"},
		"rules": []any{
			map[string]any{"apiGroups": []any{"", "apps", "coordination.k8s.io", "policy", "networking.k8s.io", "batch"}, "resources": []any{"*"}, "verbs": []any{"*"}},
			map[string]any{"apiGroups": []any{"spire.spiffe.io"}, "resources": []any{"*"}, "verbs": []any{"*"}},
		},
	}})
	env.Create(t, c.Resource(clusterRoleBindings, ""), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": rbac + "/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "few"},
		"roleRef":  map[string]any{"apiGroup": rbac, "kind": "ClusterRole", "name": "few"},
		"subjects": []any{map[string]any{"apiGroup": rbac, "kind": "User", "name": "few"}},
	}})
	env.Eventually(t, "the rights are in force, and those that are missing are told", func() error {
		return refused(few, append(slices.Clone(unasked), with...), "argomesh-spire", "clusterroles", "csidrivers", "nothing was written")
	})
}

func TestAgentctlWithRefuses(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--with kubernetes: it is spire, argocd or istio": {"--with", "kubernetes"},
		"--spire-values: --with spire is missing":         {"--with", "argocd", "--spire-values", "x.yaml"},
	} {
		if _, err := agentctl(t, os.DevNull, append([]string{"hub", "install"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// A bare cluster gets them as files, too: those of others first, and what needs them once they are there.
func TestAgentctlWritesOthersAsFiles(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "kubectl")
	c, err := harnesstest.New(t).StartControlPlane(t.Context(), harness.ControlPlaneConfig{Name: "bare"})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	args := append(slices.Clone(hubArgs), "--trust-domain", "hub.example", "--check-images=false", "--with", "spire,argocd",
		"--manifests", archives(t), "--output-dir", folder)
	out := must(t, c.Kubeconfig, args...)
	if !strings.Contains(out, "run this again then") {
		t.Errorf("it says\n%s", out)
	}
	for _, name := range []string{"spire-system", harness.ArgoCDNamespace} {
		if _, err := c.Resource(namespaces, "").Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("it made namespace %s: %v", name, err)
		}
	}
	for _, of := range []string{"spire", "argocd"} {
		kubectl(t, c, "apply", "--server-side", "-k", filepath.Join(folder, "hub", of))
	}
	kubectl(t, c, "wait", "--for=condition=established", "crd", "--all", "--timeout=60s")
	if out := kubectl(t, c, "get", "deployment", "-n", harness.ArgoCDNamespace, "-o", "name"); !strings.Contains(out, "argocd-server") {
		t.Errorf("namespace %s has\n%s", harness.ArgoCDNamespace, out)
	}
	out = must(t, c.Kubeconfig, args...)
	for _, want := range []string{"SPIRE is there", "Argo CD v3.5.3 is there", "next: kubectl apply --server-side -k " + filepath.Join(folder, "hub")} {
		if !strings.Contains(out, want) {
			t.Errorf("of what is there it does not say %q:\n%s", want, out)
		}
	}
	kubectl(t, c, "apply", "--server-side", "-k", filepath.Join(folder, "hub"))
	if id := identityNamed(t, c, "principal")["spiffeIDTemplate"]; id != "spiffe://hub.example/argomesh/principal" {
		t.Errorf("the principal is registered as %v", id)
	}
}

//go:build linux

package install

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

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

// A bare cluster gets SPIRE, Argo CD and the principal by one command.
func TestAgentctlBringsOthers(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "helm")
	c, err := harnesstest.New(t).StartControlPlane(t.Context(), harness.ControlPlaneConfig{Name: "bare", Workloads: true})
	if err != nil {
		t.Fatal(err)
	}
	folder := archives(t)
	noStorage := filepath.Join(t.TempDir(), "spire.yaml")
	if err := os.WriteFile(noStorage, []byte("server: {storage: {size: \"\"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	plain := append(slices.Clone(hubArgs), "--trust-domain", "hub.example", "--check-images=false")
	all := append(slices.Clone(plain), "--with", "spire,argocd", "--manifests", folder, "--spire-values", noStorage)

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
		if _, err := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "").Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the dry run made namespace %s: %v", name, err)
		}
	}

	// Ended in the middle of SPIRE, and then in that of Argo CD: another run finishes both.
	for _, n := range []int64{8, 40} {
		kubeconfig, reached := endsAt(t, c, n)
		cmd := exec.CommandContext(t.Context(), agentctlBinary(t), append([]string{"--kubeconfig", kubeconfig}, all...)...)
		if !killed(t, cmd, reached) {
			t.Errorf("it was done before write %d", n)
		}
	}

	out = must(t, c.Kubeconfig, all...)
	for _, want := range []string{"argomesh-spire-agent: 1 of 1 pods are ready", "argocd-server: 1 of 1 pods are ready", "uses the Redis proxy"} {
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

	must(t, c.Kubeconfig, "hub", "uninstall", "--yes")
	if got := serverArgs(t, c); len(got) > 0 {
		t.Errorf("argocd-server keeps the arguments %q", got)
	}
	if out, err := charts.Helm(t, "list", "--all-namespaces", "--short", "--kubeconfig", c.Kubeconfig); err != nil ||
		!strings.Contains(out, "argomesh-argocd") || !strings.Contains(out, "argomesh-spire") || strings.Contains(out, "argomesh-principal") {
		t.Errorf("helm lists %q, %v", out, err)
	}
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
		if _, err := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "").Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
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

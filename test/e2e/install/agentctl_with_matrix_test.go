//go:build linux && matrix

package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// SPIRE's own programs take what the chart has them read.
func TestChartOfSPIREIsValid(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm", "spire-server", "spire-agent")
	tools := harnesstest.New(t).Tools()
	checked := 0
	for _, o := range charts.Render(t, charts.SPIRE, "trustDomain: hub.example\nserver: {logLevel: debug}\nagent: {verifyKubelet: true}") {
		if o.GetKind() != "ConfigMap" {
			continue
		}
		data, _, err := unstructured.NestedStringMap(o.Object, "data")
		if err != nil {
			t.Fatal(err)
		}
		for file, program := range map[string]string{"server.conf": "spire-server", "agent.conf": "spire-agent"} {
			if data[file] == "" {
				continue
			}
			path := filepath.Join(t.TempDir(), file)
			if err := os.WriteFile(path, []byte(data[file]), 0o600); err != nil {
				t.Fatal(err)
			}
			binary, err := tools.Path(program)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), binary, "validate", "-config", path).CombinedOutput(); err != nil {
				t.Errorf("%s refuses %s: %v\n%s", program, file, err, out)
			}
			checked++
		}
	}
	if checked != 2 {
		t.Errorf("%d files were checked, want those of server and agent", checked)
	}
}

// An install on a bare cluster that is killed again and again, each time later, ends as one that was not; and so does the
// uninstall, which has argocd-server and its settings be again as they were.
func TestAgentctlWithIsKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
	c, err := harnesstest.New(t).StartControlPlane(t.Context(), harness.ControlPlaneConfig{Name: "bare", Workloads: true})
	if err != nil {
		t.Fatal(err)
	}
	all := []*harness.ControlPlane{c}
	args := append(slices.Clone(hubArgs), "--trust-domain", "hub.example", "--check-images=false", "--terminal")
	isKilledAgainAndAgain(t, all, append(args, bringsAll(t, archives(t))...)...)
	if got := serverArgs(t, c); !slices.Equal(got, []string{"--redis=argomesh-principal:6379"}) {
		t.Errorf("argocd-server has the arguments %q", got)
	}
	offersTerminals(t, c, "true")
	isKilledAgainAndAgain(t, all, "hub", "uninstall", "--yes")
	if got := serverArgs(t, c); len(got) > 0 {
		t.Errorf("argocd-server keeps the arguments %q", got)
	}
	offersTerminals(t, c, nil)
}

// So does an install of a spoke that has nothing, whose writes go to the spoke and to the hub. Principal, agent and Envoy
// run from what is installed.
func TestAgentctlSpokeWithIsKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	runSkipped(t)
	g := newGuide(t)
	t.Cleanup(g.pretends(t))
	brings := append([]string{"--registry", registry, "--with", "spire,argocd", "--timeout", "2m"}, g.brings...)
	must(t, g.kubeconfig, append([]string{"hub", "install", "--context", "hub", "--trust-domain", "hub.example", "--set", "service.type=LoadBalancer",
		"--set", "envoy.image.repository=" + registry + "/envoy"}, brings...)...)
	install := append([]string{"spoke", "install", "edge-1", "--context", "edge-1", "--hub-context", "hub", "--trust-domain", "edge-1.example"}, brings...)
	isKilledAgainAndAgain(t, []*harness.ControlPlane{g.spoke, g.hub}, install...)

	out := must(t, g.kubeconfig, install...)
	for _, want := range []string{"argomesh-spire-agent: 1 of 1 pods are ready", "argomesh-agent: 2 of 2 pods are ready", "agent edge-1 is connected to the hub"} {
		if !strings.Contains(out, want) {
			t.Errorf("after all that it does not say %q:\n%s", want, out)
		}
	}
	listed, err := charts.Helm(t, "list", "--all-namespaces", "--kubeconfig", g.spoke.Kubeconfig)
	if err != nil || strings.Count(listed, "deployed") != 3 {
		t.Errorf("helm lists\n%s\n%v", listed, err)
	}
	for _, c := range []*harness.ControlPlane{g.hub, g.spoke} {
		for _, kind := range []string{spire.ClusterFederatedTrustDomainKind, spire.ClusterSPIFFEIDKind} {
			list, err := c.Resource(spire.Resource(kind), "").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 {
				t.Errorf("%s has %d of %s, want one: %v", c.Name, len(list.Items), kind, err)
			}
		}
	}
	soon(t, "the spoke is as it should be", func() error {
		if found, _ := checked(t, g.kubeconfig, "spoke", "--context", "edge-1", "--hub-context", "hub"); len(bad(found)) > 0 {
			return fmt.Errorf("found are %+v", bad(found))
		}
		return nil
	})
}

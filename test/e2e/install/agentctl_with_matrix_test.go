//go:build linux && matrix

package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// An install on a bare cluster that is killed again and again, each time later, ends as one that was not.
func TestAgentctlWithIsKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
	c, err := harnesstest.New(t).StartControlPlane(t.Context(), harness.ControlPlaneConfig{Name: "bare", Workloads: true})
	if err != nil {
		t.Fatal(err)
	}
	args := append(slices.Clone(hubArgs), "--trust-domain", "hub.example", "--check-images=false")
	isKilledAgainAndAgain(t, []*harness.ControlPlane{c}, append(args, bringsAll(t, archives(t))...)...)
}

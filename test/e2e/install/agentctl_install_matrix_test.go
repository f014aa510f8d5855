//go:build linux && matrix

package install

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/harness"
)

// An install, an uninstall and an upgrade are killed after each of their writes, of the hub and of a spoke.
func TestAgentctlInstallIsKilledAnywhere(t *testing.T) {
	t.Parallel()
	hubIsKilled(t, cluster(t))
}

func TestAgentctlSpokeInstallIsKilledAnywhere(t *testing.T) {
	t.Parallel()
	spokeIsKilled(t, cluster(t))
}

// The agent of a file of the hub's side is installed by a command that is killed again and again.
func TestAgentctlSpokeInstallFromAFileIsKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	must(t, p.kubeconfig, append(slices.Clone(hubArgs), "--context", "hub", "--trust-domain", "hub.example", "--no-wait", "--check-images=false")...)
	file := filepath.Join(t.TempDir(), "edge-1.yaml")
	content := must(t, p.kubeconfig, "agent", "create", "edge-1", "--context", "hub", "--mode", "managed", "--trust-domain", "edge.example",
		"--principal", "hub.example:8443", "-o", "install")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	isKilledAgainAndAgain(t, []*harness.ControlPlane{p.spoke}, "spoke", "install", "--context", "spoke", "--from", file, "--registry", registry,
		"--no-wait", "--check-images=false")
}

// An upgrade of a spoke that is killed again and again brings the agent back with the release of agentctl. The agent,
// and the principal that says so, are those that run from what is installed.
func TestAgentctlSpokeUpgradeIsKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	p := newRunningPair(t)
	p.installsHub(t)
	must(t, p.kubeconfig, p.spokeArgs("--timeout", "2m")...)
	helm(t, p.spoke.Kubeconfig, "upgrade", charts.Agent, chartOfVersion(t, charts.Agent, "0.0.9"), "--reuse-values")
	isKilledAgainAndAgain(t, []*harness.ControlPlane{p.hub, p.spoke}, "spoke", "upgrade", "edge-1", "--hub-context", "hub", "--timeout", "2m")
	if got := chartOf(t, p.spoke, charts.Agent); got != charts.Agent+"-0.1.0" {
		t.Errorf("after the upgrade there is chart %s", got)
	}
}

func TestAgentctlCheckFindsAll(t *testing.T) {
	t.Parallel()
	findsWhatIsWrong(t, nil)
}

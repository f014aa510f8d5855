//go:build linux && matrix

package install

import (
	"slices"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/test/harness"
)

// Installs into the Istio that is there, and uninstalls, which are killed again and again, end as those that were not.
func TestAgentctlIstioInstallIsKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for c, trustDomain := range map[*harness.ControlPlane]string{p.hub: "hub.example", p.spoke: "edge.example"} {
		withMesh(t, c)
		tell(t, c, trustDomain)
	}
	both := []*harness.ControlPlane{p.hub, p.spoke}
	isKilledAgainAndAgain(t, both, append(slices.Clone(hubArgs), "--context", "hub", "--trust-domain", "hub.example", "--no-wait",
		"--check-images=false", "--with", "istio", "--address", "argomesh.hub.example:443")...)
	isKilledAgainAndAgain(t, both, "spoke", "install", "edge-1", "--context", "spoke", "--hub-context", "hub", "--registry", registry,
		"--trust-domain", "edge.example", "--principal", "argomesh.hub.example:443", "--no-wait", "--check-images=false", "--federate=false",
		"--with", "istio")
	isKilledAgainAndAgain(t, both, "spoke", "uninstall", "--context", "spoke", "--no-wait", "--yes")
	isKilledAgainAndAgain(t, both, "hub", "uninstall", "--context", "hub", "--no-wait", "--yes")
	for _, c := range both {
		for name := range meshed(t, c) {
			if !strings.HasPrefix(name, spire.ClusterSPIFFEIDKind) {
				t.Errorf("%s has still %s", c.Name, name)
			}
		}
	}
}

//go:build linux && matrix

package install

import "testing"

// An install, and an upgrade, are killed after each of their writes.
func TestAgentctlInstallIsKilledAnywhere(t *testing.T) {
	t.Parallel()
	installIsKilledAt(t, cluster(t))
}

func TestAgentctlCheckFindsAll(t *testing.T) {
	t.Parallel()
	says := newAdmin(t)
	findsWhatIsWrong(t, clusterThatSays(t, says), says, nil)
}

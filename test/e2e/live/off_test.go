//go:build linux

package live

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

// With live access off kubectl learns what the spoke is, and is told with its first call
// for an object who refuses it, and what to switch on. The words work as they stand.
func TestLiveAccessOff(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	on, off := map[string]any{"enabled": true}, map[string]any{"enabled": false}
	for name, tt := range map[string]struct {
		onHub, onSpoke map[string]any
		custom         bool // it shows kinds that are not Kubernetes' own
		says           string
	}{
		"off-both":  {off, off, false, `refused by the hub, rule "enabled": live access is disabled; set spec.access.enabled of the Agent`},
		"off-hub":   {off, on, true, `refused by the hub, rule "enabled": live access is disabled; set spec.access.enabled of the Agent`},
		"off-spoke": {on, off, false, `refused by the spoke, rule "enabled": live access is disabled; set access.enabled in the agent's configuration`},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.Agent(t, name, tt.onHub, tt.onSpoke)
			c := a.Caller(t)
			c.T = t
			if said := c.Run("", "version"); !strings.Contains(said, "Server Version: v1.") {
				t.Errorf("kubectl version says %s", said)
			}
			kinds := c.Run("", "api-resources", "--output=name")
			if !strings.Contains(kinds, "deployments.apps\n") || !strings.Contains(kinds, "pods\n") || strings.Contains(kinds, "applications.argoproj.io\n") != tt.custom {
				t.Errorf("the kinds are %s", kinds)
			}
			for _, args := range [][]string{{"get", "namespaces"}, {"get", "pod", env.LivePod}, {"get", "deployment", "x", "--namespace=default"}} {
				got := c.Try("", args...)
				if got.Code == 0 || !strings.Contains(got.Err, "Error from server (Forbidden)") || !strings.Contains(got.Err, tt.says) || strings.Contains(got.Err, "unknown") {
					t.Errorf("kubectl %v says %s%s", args, got.Out, got.Err)
				}
			}
			if tt.onSpoke["enabled"] != true {
				return
			}
			// As told.
			if err := a.Allow(t.Context(), on); err != nil {
				t.Fatal(err)
			}
			env.Eventually(t, "the cure works", func() error {
				if got := c.Try("", "get", "namespaces"); got.Code != 0 {
					return fmt.Errorf("%s", got.Err)
				}
				return nil
			})
		})
	}
}

//go:build linux

package live

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// An agent that the hub refuses looks refused, on both sides, with a cure that works when
// it is followed to the letter.
func TestRefusedAgents(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	ctx := t.Context()
	agentctl := func(t *testing.T, args ...string) string {
		t.Helper()
		out, err := w.Harness.Agentctl(ctx, w.Hub, append([]string{"agent"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	register := func(t *testing.T, name, mode, id string) {
		t.Helper()
		agentctl(t, "create", name, "--mode", mode, "--spiffe-id", id, "--wait")
		t.Cleanup(func() {
			if err := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	start := func(t *testing.T, name string) *harness.Agent {
		t.Helper()
		spoke := w.Spokes[env.Managed]
		if err := spoke.EnsureNamespace(ctx, name); err != nil {
			t.Fatal(err)
		}
		api, err := w.Identify(ctx, env.SPIFFEID(name))
		if err != nil {
			t.Fatal(err)
		}
		a, err := w.Harness.StartAgent(ctx, harness.AgentConfig{
			Name: name, Mode: "autonomous", ControlPlane: spoke, WorkloadAPI: api, PrincipalAddress: w.FrontDoor.Address, PrincipalIDs: []string{env.PrincipalID},
			Settings: harness.Settings{"namespace": name},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := a.Stop(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		})
		return a
	}
	// shows waits until the line of an agent in its table has all texts.
	shows := func(t *testing.T, name string, texts ...string) {
		t.Helper()
		env.Eventually(t, fmt.Sprintf("the line of %s has %q", name, texts), func() error {
			line := agentctl(t, "get", name, "--no-headers")
			for _, text := range texts {
				if !strings.Contains(line, text) {
					return fmt.Errorf("it is %s", line)
				}
			}
			return nil
		})
	}
	readyz := func(t *testing.T, a *harness.Agent, code int, texts ...string) {
		t.Helper()
		env.Eventually(t, fmt.Sprintf("/readyz of the agent says %q", texts), func() error {
			got, body, err := env.Fetch(ctx, "http://"+a.AdminAddress+"/readyz")
			if err != nil {
				return err
			}
			if got != code {
				return fmt.Errorf("it answers %d %s", got, body)
			}
			for _, text := range texts {
				if !strings.Contains(body, text) {
					return fmt.Errorf("it says %s", body)
				}
			}
			return nil
		})
	}

	t.Run("another mode", func(t *testing.T) {
		const name = "refused-mode"
		register(t, name, "managed", env.SPIFFEID(name))
		shows(t, name, "Never connected", "False")
		watching, stop := context.WithCancel(ctx)
		seen := make(chan string, 1)
		go func() {
			out, _ := w.Harness.Agentctl(watching, w.Hub, "agent", "get", name, "--watch") // it ends by being interrupted
			seen <- out
		}()
		a := start(t, name)
		shows(t, name, "Refused: mode", "False")
		env.Eventually(t, "condition Connected says why, and what to do", func() error {
			o, err := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			c := env.ConditionIn(o, "Connected")
			if c["reason"] != "RefusedMode" || !strings.Contains(fmt.Sprint(c["message"]), "refused since 20") ||
				!strings.Contains(fmt.Sprint(c["message"]), "set mode to managed in the agent's configuration, or delete this Agent and create it again as autonomous") {
				return fmt.Errorf("it is %v", c)
			}
			return nil
		})
		readyz(t, a, 503, "[-] principal: refused by the hub", "configured as autonomous, but registered as managed")
		// As told.
		agentctl(t, "delete", name, "--yes")
		agentctl(t, "create", name, "--mode", "autonomous", "--spiffe-id", env.SPIFFEID(name), "--wait")
		shows(t, name, "Connected", "True")
		readyz(t, a, 200, "[+] principal: ok\n")

		env.Patch(t, w.Hub.Resource(env.Agents, harness.ArgoCDNamespace), name, map[string]any{"spec": map[string]any{"suspended": true}})
		shows(t, name, "Suspended", "False")
		readyz(t, a, 200, "[+] principal: ok, but the hub has suspended this agent")
		stop()
		out := <-seen
		rest := out
		for _, text := range []string{"NAME", "Refused: mode", "Connected", "Suspended"} {
			_, after, found := strings.Cut(rest, text)
			if !found {
				t.Errorf("agentctl agent get --watch printed no %q in turn:\n%s", text, out)
			}
			rest = after
		}
	})
	t.Run("versions", func(t *testing.T) {
		out, err := w.Harness.Agentctl(ctx, w.Hub, "version", "--hub")
		if err != nil || !strings.Contains(out, "\nprincipal ") || !strings.Contains(out, "\nagents    ") {
			t.Errorf("agentctl version --hub: %v\n%s", err, out)
		}
	})
	t.Run("a SPIFFE ID that no Agent has", func(t *testing.T) {
		const name = "refused-id"
		register(t, name, "autonomous", env.SPIFFEID("somebody-else"))
		a := start(t, name)
		readyz(t, a, 503, "[-] principal: refused by the hub", "agentctl agent set "+name+" --spiffe-id ID")
		shows(t, name, "Refused: SPIFFE ID", "False")
		env.Eventually(t, "the hub shows who knocked", func() error {
			if out := agentctl(t, "list", "--unknown"); !strings.Contains(out, env.SPIFFEID(name)+" ") {
				return fmt.Errorf("it shows %s", out)
			}
			return nil
		})
		env.Patch(t, w.Hub.Resource(env.Agents, harness.ArgoCDNamespace), name, map[string]any{"spec": map[string]any{"identity": map[string]any{"spiffeIDs": []any{env.SPIFFEID(name)}}}})
		shows(t, name, "Connected", "True")
		if out := agentctl(t, "list", "--unknown"); strings.Contains(out, env.SPIFFEID(name)+" ") {
			t.Errorf("the hub still shows %s", out)
		}
		// One that was there is not just away.
		agentctl(t, "set", name, "--spiffe-id", env.SPIFFEID("somebody-else"))
		shows(t, name, "Refused: SPIFFE ID")
		if out := agentctl(t, "get", name); !strings.Contains(out, "RefusedSPIFFEID: refused since 20") ||
			!strings.Contains(out, "agentctl agent set "+name+" --spiffe-id "+env.SPIFFEID(name)) {
			t.Errorf("agentctl agent get says %s", out)
		}
		agentctl(t, "set", name, "--spiffe-id", env.SPIFFEID(name)) // as told
		shows(t, name, "Connected", "True")
		out, _ := w.Harness.Agentctl(ctx, w.Hub, "status", "-o", "wide") // those of other tests may be away
		for _, row := range []string{
			`(?m)^argocd +\S+ +v1\.`, `(?m)^refused-id +autonomous +Connected +\S+ +v1\.`,
		} {
			if !regexp.MustCompile(row).MatchString(out) {
				t.Errorf("agentctl status has no %s:\n%s", row, out)
			}
		}
	})
}

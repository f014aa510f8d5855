//go:build linux

package mistakes

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/e2e/internal/mistake"
	"github.com/argomesh/argomesh/test/harness"
)

// TestMistakesOfAccess are those that people make with live access: kubectl through the hub
// tells of each.
func TestMistakesOfAccess(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	const name = "closed-1"
	a := w.Agent(t, name, map[string]any{"enabled": false}, map[string]any{"enabled": false})
	env.Create(t, w.Spokes[env.Managed].Resource(corev1.SchemeGroupVersion.WithResource("secrets"), name), env.Object("v1", "Secret", name, "db", map[string]any{
		"stringData": map[string]any{"password": env.MaskedPassword},
	}))
	accessMistakes(a).Happen(t)
}

func accessMistakes(a *env.LiveAgent) mistake.List {
	registry := func() dynamic.ResourceInterface { return a.Env.Hub.Resource(env.Agents, harness.ArgoCDNamespace) }
	get := func(s *mistake.Scene, args ...string) env.LogSays {
		return a.Caller(s.T).Try("", append([]string{"get"}, args...)...)
	}
	asks := func(args ...string) func(*mistake.Scene) {
		return func(s *mistake.Scene) {
			got := get(s, args...)
			var err error
			if got.Code != 0 {
				err = errors.New(got.Err)
			}
			s.Answer(got.Out, err)
		}
	}
	return mistake.List{
		{
			Person: "`kubectl` through the hub, where the Agent has live access off",
			Does:   asks("namespaces"),
			On:     "`kubectl`", Told: mistake.Printed,
			Says: `refused by the hub, rule "enabled": live access is disabled; set spec.access.enabled of the Agent`,
			Cure: func(s *mistake.Scene) {
				env.Patch(s.T, registry(), a.Name, mistake.Merged(s.Find(`; set (\S+) of the Agent`), true))
			},
			Cured: func(s *mistake.Scene) error {
				if got := get(s, "namespaces"); strings.Contains(got.Err, "refused by the hub") { // the spoke has it off, too
					return errors.New(got.Err)
				}
				return nil
			},
		},
		{
			Person: "`kubectl` through the hub, where the agent has live access off",
			Does:   asks("namespaces"),
			On:     "`kubectl`", Told: mistake.Printed,
			Says: `refused by the spoke, rule "enabled": live access is disabled; set access.enabled in the agent's configuration`,
			Cure: func(s *mistake.Scene) {
				reconfigure(s, a.Process, a.ConfigFile, s.Find(`; set (\S+) in the agent's configuration`), true)
			},
			Cured: func(s *mistake.Scene) error { return fails(get(s, "namespaces")) },
		},
		{
			Person: "`kubectl get secret` through the hub",
			Does:   asks("secret", "db", "--namespace", "closed-1"),
			On:     "`kubectl`", Told: mistake.Printed,
			Says: `refused by the hub, rule "secrets": access to Secrets is disabled; spec.access.secrets: masked of the Agent shows them without their values, if the spoke's owner allows that, too`,
			Cure: func(s *mistake.Scene) {
				env.Patch(s.T, registry(), a.Name, mistake.Merged(s.Find(`; (\S+): \S+ of the Agent shows them`), s.Find(`: (\S+) of the Agent shows them`)))
			},
			Cured: func(s *mistake.Scene) error {
				if got := get(s, "secret", "db", "--namespace", "closed-1"); strings.Contains(got.Err, "refused by the hub") { // the spoke's owner does not allow it
					return errors.New(got.Err)
				}
				return nil
			},
		},
		{
			Person: "`kubectl get secret` through the hub, where the spoke's owner shows none",
			Does:   asks("secret", "db", "--namespace", "closed-1"),
			On:     "`kubectl`", Told: mistake.Printed,
			Says: `refused by the spoke, rule "secrets": access to Secrets is disabled; the spoke's owner shows them without their values by access.secrets: masked in the agent's configuration`,
			Cure: func(s *mistake.Scene) {
				reconfigure(s, a.Process, a.ConfigFile, s.Find(`by (\S+): \S+ in the agent's configuration`), s.Find(`: (\S+) in the agent's configuration`))
			},
			Cured: func(s *mistake.Scene) error {
				got := get(s, "secret", "db", "--namespace", "closed-1", "--output", "yaml")
				env.RevealsPassword(s.T, "a masked Secret", got.Out)
				return fails(got)
			},
		},
	}
}

// fails is what kubectl complains of, nil when it does not.
func fails(got env.LogSays) error {
	if got.Code != 0 {
		return errors.New(got.Err)
	}
	return nil
}

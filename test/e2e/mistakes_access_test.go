//go:build linux

package e2e

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/harness"
)

// TestMistakesOfAccess are those that people make with live access: kubectl through the hub
// tells of each.
func TestMistakesOfAccess(t *testing.T) {
	t.Parallel()
	w := theLiveWorld(t)
	const name = "closed-1"
	a := w.agent(t, name, map[string]any{"enabled": false}, map[string]any{"enabled": false})
	create(t, w.spokes[managed].Resource(corev1.SchemeGroupVersion.WithResource("secrets"), name), object("v1", "Secret", name, "db", map[string]any{
		"stringData": map[string]any{"password": maskedPassword},
	}))
	accessMistakes(a).happen(t)
}

func accessMistakes(a *liveAgent) mistakes {
	registry := func() dynamic.ResourceInterface { return a.w.hub.Resource(agents, harness.ArgoCDNamespace) }
	get := func(s *scene, args ...string) said { return a.caller(s.T).try("", append([]string{"get"}, args...)...) }
	asks := func(args ...string) func(*scene) {
		return func(s *scene) {
			got := get(s, args...)
			var err error
			if got.Code != 0 {
				err = errors.New(got.Err)
			}
			s.answer(got.Out, err)
		}
	}
	return mistakes{
		{
			person: "`kubectl` through the hub, where the Agent has live access off",
			does:   asks("namespaces"),
			on:     "`kubectl`", told: printed,
			says: `refused by the hub, rule "enabled": live access is disabled; set spec.access.enabled of the Agent`,
			cure: func(s *scene) {
				patch(s.T, registry(), a.name, merged(s.find(`; set (\S+) of the Agent`), true))
			},
			cured: func(s *scene) error {
				if got := get(s, "namespaces"); strings.Contains(got.Err, "refused by the hub") { // the spoke has it off, too
					return errors.New(got.Err)
				}
				return nil
			},
		},
		{
			person: "`kubectl` through the hub, where the agent has live access off",
			does:   asks("namespaces"),
			on:     "`kubectl`", told: printed,
			says: `refused by the spoke, rule "enabled": live access is disabled; set access.enabled in the agent's configuration`,
			cure: func(s *scene) {
				s.reconfigure(a.Process, a.ConfigFile, s.find(`; set (\S+) in the agent's configuration`), true)
			},
			cured: func(s *scene) error { return fails(get(s, "namespaces")) },
		},
		{
			person: "`kubectl get secret` through the hub",
			does:   asks("secret", "db", "--namespace", "closed-1"),
			on:     "`kubectl`", told: printed,
			says: `refused by the hub, rule "secrets": access to Secrets is disabled; spec.access.secrets: masked of the Agent shows them without their values, if the spoke's owner allows that, too`,
			cure: func(s *scene) {
				patch(s.T, registry(), a.name, merged(s.find(`; (\S+): \S+ of the Agent shows them`), s.find(`: (\S+) of the Agent shows them`)))
			},
			cured: func(s *scene) error {
				if got := get(s, "secret", "db", "--namespace", "closed-1"); strings.Contains(got.Err, "refused by the hub") { // the spoke's owner does not allow it
					return errors.New(got.Err)
				}
				return nil
			},
		},
		{
			person: "`kubectl get secret` through the hub, where the spoke's owner shows none",
			does:   asks("secret", "db", "--namespace", "closed-1"),
			on:     "`kubectl`", told: printed,
			says: `refused by the spoke, rule "secrets": access to Secrets is disabled; the spoke's owner shows them without their values by access.secrets: masked in the agent's configuration`,
			cure: func(s *scene) {
				s.reconfigure(a.Process, a.ConfigFile, s.find(`by (\S+): \S+ in the agent's configuration`), s.find(`: (\S+) in the agent's configuration`))
			},
			cured: func(s *scene) error {
				got := get(s, "secret", "db", "--namespace", "closed-1", "--output", "yaml")
				tells(s.T, "a masked Secret", got.Out)
				return fails(got)
			},
		},
	}
}

// fails is what kubectl complains of, nil when it does not.
func fails(got said) error {
	if got.Code != 0 {
		return errors.New(got.Err)
	}
	return nil
}

//go:build linux

package sync

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// TestProjectNames registers an agent that has a project whose name on the hub another
// agent's project has already. The new one goes first, and it is told on both; when it
// leaves, the name is the other's again.
func TestProjectNames(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	hub, registry := w.HubProjects(), w.Hub.Resource(env.Agents, harness.ArgoCDNamespace)
	const mirror = "sea-lion-web" // of sea's lion-web, or of sea-lion's web
	shows := func(agent *env.BareAgent, description string) func() error {
		return func() error {
			return errors.Join(
				env.FieldIs(ctx, hub, mirror, description, "spec", "description"),
				env.FieldIs(ctx, hub, mirror, []any{agent.Name}, "spec", "sourceNamespaces"),
				env.FieldIs(ctx, hub, mirror, []any{map[string]any{"name": agent.Name, "namespace": "*"}}, "spec", "destinations"),
			)
		}
	}
	describe := func(agent *env.BareAgent, name, description string) {
		t.Helper()
		env.Patch(t, agent.Projects(), name, map[string]any{"spec": map[string]any{"description": description}})
	}
	described := func(name, description string) *unstructured.Unstructured {
		o := env.ProjectNamed(name)
		o.Object["spec"].(map[string]any)["description"] = description
		return o
	}
	told := func(name, text string) func() error {
		return func() error { return env.ConditionSays(ctx, registry, name, "ProjectNames", text) }
	}

	sea := w.Connect(t, "sea", "autonomous")
	env.Create(t, sea.Projects(), described("lion-web", "of sea"))
	env.Create(t, sea.Projects(), described("web", "of sea"))
	env.Eventually(t, "the mirror is of the only agent that there is", shows(sea, "of sea"))

	lion := w.Register(t, "sea-lion", "autonomous") // nothing keeps it from being registered
	env.Create(t, lion.Projects(), described("web", "of sea-lion"))
	env.Eventually(t, "the other's mirror leaves before the agent has connected", func() error { return env.Gone(ctx, hub, mirror) })
	lion.Start(t)
	env.Eventually(t, "the mirror is of the agent with the longer name", shows(lion, "of sea-lion"))
	env.Eventually(t, "the other's project is parked", func() error {
		return sea.Parked(ctx, "lion-web", mirror+", is that of a project of agent sea-lion")
	})
	env.Eventually(t, "the Agent with the shorter name says so", told("sea", "called lion-… are not shown: on the hub their names are those of Agent sea-lion"))
	env.Eventually(t, "the Agent with the longer name says so", told("sea-lion", "called sea-lion-… are this Agent's, and not shown for Agent sea"))

	describe(sea, "lion-web", "of sea again")
	describe(sea, "web", "later")
	env.Eventually(t, "what came later is shown", func() error { return env.FieldIs(ctx, hub, "sea-web", "later", "spec", "description") })
	describe(lion, "web", "later")
	env.Eventually(t, "the mirror follows its agent alone", shows(lion, "later"))

	if err := registry.Delete(ctx, "sea-lion", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "when it has left, the name is the other's again", shows(sea, "of sea again"))
	env.Eventually(t, "and nothing is parked or told", func() error {
		a, err := registry.Get(ctx, sea.Name, metav1.GetOptions{})
		if err == nil && env.ConditionIn(a, "ProjectNames") != nil {
			err = errors.New("the condition is there")
		}
		return errors.Join(err, env.FieldIs(ctx, registry, sea.Name, nil, "status", "parked"))
	})
}

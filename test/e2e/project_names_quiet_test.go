//go:build linux

package e2e

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/harness"
)

// TestProjectNames registers an agent that has a project whose name on the hub another
// agent's project has already. The new one goes first, and it is told on both; when it
// leaves, the name is the other's again.
func TestProjectNames(t *testing.T) {
	t.Parallel()
	w, ctx := theQuietWorld(t), t.Context()
	hub, registry := w.hubProjects(), w.hub.Resource(agents, harness.ArgoCDNamespace)
	const mirror = "sea-lion-web" // of sea's lion-web, or of sea-lion's web
	shows := func(agent *remote, description string) func() error {
		return func() error {
			return errors.Join(
				field(ctx, hub, mirror, description, "spec", "description"),
				field(ctx, hub, mirror, []any{agent.name}, "spec", "sourceNamespaces"),
				field(ctx, hub, mirror, []any{map[string]any{"name": agent.name, "namespace": "*"}}, "spec", "destinations"),
			)
		}
	}
	describe := func(agent *remote, name, description string) {
		t.Helper()
		patch(t, agent.projects(), name, map[string]any{"spec": map[string]any{"description": description}})
	}
	described := func(name, description string) *unstructured.Unstructured {
		o := projectNamed(name)
		o.Object["spec"].(map[string]any)["description"] = description
		return o
	}
	told := func(name, text string) func() error {
		return func() error { return conditionSays(ctx, registry, name, "ProjectNames", text) }
	}

	sea := w.connect(t, "sea", "autonomous")
	create(t, sea.projects(), described("lion-web", "of sea"))
	create(t, sea.projects(), described("web", "of sea"))
	eventually(t, "the mirror is of the only agent that there is", shows(sea, "of sea"))

	lion := w.register(t, "sea-lion", "autonomous") // nothing keeps it from being registered
	create(t, lion.projects(), described("web", "of sea-lion"))
	eventually(t, "the other's mirror leaves before the agent has connected", func() error { return gone(ctx, hub, mirror) })
	lion.start(t)
	eventually(t, "the mirror is of the agent with the longer name", shows(lion, "of sea-lion"))
	eventually(t, "the other's project is parked", func() error {
		return sea.parked(ctx, "lion-web", mirror+", is that of a project of agent sea-lion")
	})
	eventually(t, "the Agent with the shorter name says so", told("sea", "called lion-… are not shown: on the hub their names are those of Agent sea-lion"))
	eventually(t, "the Agent with the longer name says so", told("sea-lion", "called sea-lion-… are this Agent's, and not shown for Agent sea"))

	describe(sea, "lion-web", "of sea again")
	describe(sea, "web", "later")
	eventually(t, "what came later is shown", func() error { return field(ctx, hub, "sea-web", "later", "spec", "description") })
	describe(lion, "web", "later")
	eventually(t, "the mirror follows its agent alone", shows(lion, "later"))

	if err := registry.Delete(ctx, "sea-lion", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "when it has left, the name is the other's again", shows(sea, "of sea again"))
	eventually(t, "and nothing is parked or told", func() error {
		a, err := registry.Get(ctx, sea.name, metav1.GetOptions{})
		if err == nil && conditionIn(a, "ProjectNames") != nil {
			err = errors.New("the condition is there")
		}
		return errors.Join(err, field(ctx, registry, sea.name, nil, "status", "parked"))
	})
}

//go:build linux

package sync

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// TestSeamTwoAgentsOfACluster runs two agents of one hub on one Kubernetes cluster, each
// beside an Argo CD of its own, both with Applications in the same further namespace. What
// one has made the other neither writes nor removes, and says whose it is.
func TestSeamTwoAgentsOfACluster(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	const hub, team, first, second = "both-hub", "both-team", "both-1", "both-2"
	if err := errors.Join(w.Hub.EnsureNamespace(ctx, hub), w.Hub.EnsureNamespace(ctx, team)); err != nil {
		t.Fatal(err)
	}
	principal := w.MappedPrincipal(t, hub, harness.Settings{"mapping.by": "destination", "mapping.namespaces": []string{team}})
	running := map[string]*harness.Agent{}
	for _, name := range []string{first, second} {
		running[name] = w.MappedAgent(t, hub, name, principal, harness.Settings{"mapping.namespaces": []string{team}, "mapping.create_namespaces": true})
	}
	onHub, onSpoke := w.Hub.Resource(harness.Applications, team), w.Spoke.Resource(harness.Applications, team)
	for _, agent := range []string{first, second} {
		env.Create(t, onHub, (&env.BareAgent{Env: w, Name: agent}).Application("of-"+agent))
	}
	isOf := func(name, agent string) func() error {
		return func() error {
			o, err := onSpoke.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if record := o.GetAnnotations()["argomesh.io/source"]; !strings.Contains(record, `"agent":"`+agent+`"`) {
				return fmt.Errorf("the record of %s is %s", name, record)
			}
			return nil
		}
	}
	for _, agent := range []string{first, second} {
		env.Eventually(t, "the copy of "+agent+" names it", isOf("of-"+agent, agent))
	}

	// Each starts over beside the other's copy, which its hub does not want it to have.
	before := map[string]string{}
	for _, agent := range []string{first, second} {
		before["of-"+agent] = env.Get(t, onSpoke, "of-"+agent).GetResourceVersion()
	}
	for _, agent := range running {
		if err := agent.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, agent := range []string{first, second} {
		env.Create(t, onHub, (&env.BareAgent{Env: w, Name: agent}).Application("later-"+agent))
		env.Eventually(t, "what is made later arrives", isOf("later-"+agent, agent))
	}
	for name, version := range before {
		if now := env.Get(t, onSpoke, name).GetResourceVersion(); now != version {
			t.Errorf("%s was written", name)
		}
	}

	// The first one is away while its Application becomes the second one's.
	if err := running[first].Stop(ctx); err != nil {
		t.Fatal(err)
	}
	copied := env.Get(t, onSpoke, "of-"+first)
	env.Patch(t, onHub, "of-"+first, map[string]any{"spec": map[string]any{"destination": map[string]any{"name": second}}})
	registry := w.Hub.Resource(env.Agents, hub)
	env.Eventually(t, "the second one is refused, and told whose it is", func() error {
		const told = "the Application of that name on the spoke is a copy of agent " + first
		status := fmt.Sprint(env.Get(t, registry, second).Object["status"])
		if !strings.Contains(status, told) || !strings.Contains(status, "reason:NotOwned") {
			return fmt.Errorf("the Agent's status is %s", status)
		}
		return env.ConditionSays(ctx, onHub, "of-"+first, "ArgomeshError", told)
	})
	if now := env.Get(t, onSpoke, "of-"+first); now.GetResourceVersion() != copied.GetResourceVersion() {
		t.Error("the second one has written it")
	}
	if err := running[first].Start(ctx); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the first one lets it go, and the second one has one of its own", isOf("of-"+first, second))
	if env.Get(t, onSpoke, "of-"+first).GetUID() == copied.GetUID() {
		t.Error("it is the first one's copy")
	}
}

// TestSeamDefaultProject has a new hub share the AppProject default, which admits every
// Application that names no other. It comes only where the owner of a spoke says so too. When
// the sharing ends it is given up and not deleted, and what was found comes back.
func TestSeamDefaultProject(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	const hub, adopting, empty, unwilling = "share-hub", "share-own", "share-none", "share-never"
	if err := w.Hub.EnsureNamespace(ctx, hub); err != nil {
		t.Fatal(err)
	}
	shared := w.Hub.Resource(harness.AppProjects, hub)
	env.Create(t, shared, openProject("default", "of the hub"))
	principal := w.MappedPrincipal(t, hub, harness.Settings{"projects.share_default": true})
	spokes := map[string]dynamic.ResourceInterface{}
	for name, settings := range map[string]harness.Settings{
		adopting:  {"policy.adopt": []string{"appproject/default"}},
		empty:     {"policy.adopt": []string{"appproject/default"}},
		unwilling: {},
	} {
		spokes[name] = w.Spoke.Resource(harness.AppProjects, name)
		if err := w.Spoke.EnsureNamespace(ctx, name); err != nil {
			t.Fatal(err)
		}
		if name != empty {
			env.Create(t, spokes[name], openProject("default", "of the spoke"))
		}
		w.MappedAgent(t, hub, name, principal, settings)
	}
	unwritten := env.Get(t, spokes[unwilling], "default").GetResourceVersion()
	shows := func(name, text string, copied bool) error {
		o, err := spokes[name].Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return err
		}
		description, _, _ := unstructured.NestedString(o.Object, "spec", "description")
		if marked := o.GetAnnotations()[env.SourceUID] != ""; description != text || marked != copied {
			return fmt.Errorf("default of %s has description %q, a copy: %v, want %q, %v", name, description, marked, text, copied)
		}
		return nil
	}
	both := func(text string) func() error {
		return func() error { return errors.Join(shows(adopting, text, true), shows(empty, text, true)) }
	}
	env.Eventually(t, "it comes where both say so", both("of the hub"))
	env.Patch(t, shared, "default", map[string]any{"spec": map[string]any{"description": "second"}})
	env.Eventually(t, "a change comes", both("second"))
	env.Eventually(t, "the hub is told where it may not come", func() error {
		status := fmt.Sprint(env.Get(t, w.Hub.Resource(env.Agents, hub), unwilling).Object["status"])
		if !strings.Contains(status, "policy.adopt of the spoke does not name appproject/default") {
			return fmt.Errorf("the Agent's status is %s", status)
		}
		return nil
	})

	uid := map[string]string{}
	for name, at := range spokes {
		uid[name] = string(env.Get(t, at, "default").GetUID())
	}
	Reconfigure(t, principal, "projects", map[string]any{"share_default": false})
	env.Eventually(t, "when sharing ends, what was found comes back", func() error { return shows(adopting, "of the spoke", false) })
	env.Eventually(t, "what was not there before stays", func() error { return shows(empty, "second", false) })
	for name, at := range spokes {
		if string(env.Get(t, at, "default").GetUID()) != uid[name] {
			t.Errorf("default of %s was made anew", name)
		}
	}
	if env.Get(t, spokes[unwilling], "default").GetResourceVersion() != unwritten {
		t.Error("default of the spoke that does not allow it was written")
	}
}

//go:build linux

package sync

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

// again is a check that an object is there, and another one than it was.
func anew(ctx context.Context, where dynamic.ResourceInterface, name string, was metav1.Object) error {
	o, err := where.Get(ctx, name, metav1.GetOptions{})
	if err == nil && o.GetUID() == was.GetUID() {
		err = errors.New("it is the same one still")
	}
	return err
}

// TestKindsProjects follows AppProjects, from the hub to a managed agent and from an
// autonomous one to the hub, and what people do to the copies on either side.
func TestKindsProjects(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	mine, theirs := w.Connect(t, "kinds-4", "managed"), w.Connect(t, "kinds-5", "autonomous")
	hub := w.HubProjects()
	t.Cleanup(func() {
		for _, name := range []string{"kinds-4-web", "kinds-4-own", "kinds-5-taken"} {
			_ = hub.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) // it may have gone
		}
	})
	says := func(where dynamic.ResourceInterface, name, description string) func() error {
		return func() error { return env.FieldIs(ctx, where, name, description, "spec", "description") }
	}
	describe := func(where dynamic.ResourceInterface, name, description string) {
		t.Helper()
		env.Patch(t, where, name, map[string]any{"spec": map[string]any{"description": description}})
	}

	t.Run("managed", func(t *testing.T) {
		const name = "kinds-4-web"
		onSpoke := mine.Projects()
		own := env.ProjectNamed("kinds-4-own")
		own.SetFinalizers([]string{env.Cascade})
		own.SetAnnotations(map[string]string{"argocd.argoproj.io/adoption-policy": "always"})
		env.Create(t, onSpoke, own)
		env.Create(t, hub, projectFor("kinds-4-own", mine.Name))
		env.Eventually(t, "one that the spoke had is adopted", func() error {
			o, err := onSpoke.Get(ctx, "kinds-4-own", metav1.GetOptions{})
			if err == nil && (o.GetAnnotations()[env.SourceUID] == "" || len(o.GetFinalizers()) > 0) {
				err = errors.New("it is as it was")
			}
			return err
		})

		server := "https://argomesh-principal:9090/agents/"
		web := projectFor(name, mine.Name)
		spec := web.Object["spec"].(map[string]any)
		to := func(name, server, namespace string) map[string]any {
			return map[string]any{"name": name, "server": server, "namespace": namespace}
		}
		destinations := []any{to(mine.Name, "", "web"), to("kinds-[0-9]", "", "web-*"), to("other", "", "*"), to("", server+mine.Name, "by-server"), to("", server+"other", "*"), to("", "!"+server+mine.Name, "kube-*")}
		spec["description"], spec["destinations"] = "first", destinations
		spec["roles"] = []any{map[string]any{"name": "people", "policies": []any{"p, proj:" + name + ":people, applications, get, " + name + "/*, allow"}}}
		env.Create(t, hub, web)
		env.Eventually(t, "it arrives", says(onSpoke, name, "first"))
		copied := env.Get(t, onSpoke, name)
		local := "https://kubernetes.default.svc"
		if err := env.FieldIs(ctx, onSpoke, name, []any{
			to("in-cluster", local, "web"), to("in-cluster", local, "web-*"), to("in-cluster", local, "by-server"), map[string]any{"server": "!" + local, "namespace": "kube-*"},
		}, "spec", "destinations"); err != nil {
			t.Error(err)
		}
		if spec := copied.Object["spec"].(map[string]any); spec["roles"] != nil || spec["sourceNamespaces"] != nil {
			t.Errorf("the copy has roles %v and source namespaces %v", spec["roles"], spec["sourceNamespaces"])
		}
		if err := env.Gone(ctx, theirs.Projects(), name); err != nil {
			t.Errorf("the autonomous agent has it: %v", err)
		}

		describe(hub, name, "second")
		env.Eventually(t, "a change arrives", says(onSpoke, name, "second"))
		describe(onSpoke, name, "local")
		env.Eventually(t, "a local edit is undone", says(onSpoke, name, "second"))
		if err := onSpoke.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "a local delete is undone", func() error { return anew(ctx, onSpoke, name, copied) })

		ignore := func(value any) {
			env.Patch(t, hub, name, map[string]any{"metadata": map[string]any{"labels": map[string]any{"argocd-agent.argoproj-labs.io/ignore-sync": value}}})
		}
		ignore("true")
		env.Eventually(t, "with ignore-sync it leaves", func() error { return env.Gone(ctx, onSpoke, name) })
		ignore(nil)
		env.Eventually(t, "without it it is back", says(onSpoke, name, "second"))
		env.Patch(t, hub, name, map[string]any{"spec": map[string]any{"destinations": []any{to("other", "", "*")}}})
		env.Eventually(t, "without a destination that is the agent it leaves", func() error { return env.Gone(ctx, onSpoke, name) })
		env.Patch(t, hub, name, map[string]any{"spec": map[string]any{"destinations": append(destinations, to("!"+mine.Name, "", "*"))}})
		env.Patch(t, hub, "kinds-4-own", map[string]any{"spec": map[string]any{"description": "after that"}})
		env.Eventually(t, "what came later arrives", says(onSpoke, "kinds-4-own", "after that"))
		if err := env.Gone(ctx, onSpoke, name); err != nil {
			t.Errorf("with a destination that denies the agent: %v", err)
		}
		env.Patch(t, hub, name, map[string]any{"spec": map[string]any{"destinations": destinations}})
		env.Eventually(t, "with one it is back again", says(onSpoke, name, "second"))

		mine.Network.Cut()
		if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		describe(hub, "kinds-4-own", "meanwhile")
		mine.Network.Mend()
		env.Eventually(t, "what was changed meanwhile arrives", says(onSpoke, "kinds-4-own", "meanwhile"))
		env.Eventually(t, "what was deleted meanwhile goes", func() error { return env.Gone(ctx, onSpoke, name) })
	})

	t.Run("autonomous", func(t *testing.T) {
		const mirror = "kinds-5-team"
		onSpoke := theirs.Projects()
		// A project and an Application of the hub's own, where the mirrors of others would be.
		taken := env.Create(t, hub, env.ProjectNamed("kinds-5-taken"))
		env.Create(t, onSpoke, env.ProjectNamed("taken"))
		own := env.Create(t, theirs.Hub, theirs.Application("own"))
		env.Create(t, theirs.Spoke, theirs.Application("own"))

		team := env.ProjectNamed("team")
		team.Object["spec"].(map[string]any)["description"] = "first"
		team.Object["spec"].(map[string]any)["roles"] = []any{map[string]any{"name": "people", "policies": []any{"p, proj:team:people, applications, get, team/*, allow"}}}
		env.Create(t, onSpoke, team)
		env.Eventually(t, "its mirror has the agent's prefix", says(hub, mirror, "first"))
		shown := env.Get(t, hub, mirror)
		spec := shown.Object["spec"].(map[string]any)
		if spec["roles"] != nil {
			t.Errorf("the mirror has roles %v", spec["roles"])
		}
		for name, want := range map[string][]any{
			"sourceNamespaces": {theirs.Name}, "destinations": {map[string]any{"name": theirs.Name, "namespace": "*"}},
		} {
			if err := env.FieldIs(ctx, hub, mirror, want, "spec", name); err != nil {
				t.Error(err)
			}
		}
		describe(onSpoke, "team", "second")
		env.Eventually(t, "a change is shown", says(hub, mirror, "second"))
		describe(hub, mirror, "of the hub")
		env.Eventually(t, "an edit of the mirror is undone", says(hub, mirror, "second"))
		if err := hub.Delete(ctx, mirror, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "a mirror that was deleted is made anew", func() error { return anew(ctx, hub, mirror, shown) })
		if err := says(onSpoke, "team", "second")(); err != nil {
			t.Error(err)
		}
		label := func(value any) {
			env.Patch(t, onSpoke, "team", map[string]any{"metadata": map[string]any{"labels": map[string]any{"argocd-agent.argoproj-labs.io/ignore-sync": value}}})
		}
		label("true")
		env.Eventually(t, "with ignore-sync it is not shown", func() error { return env.Gone(ctx, hub, mirror) })
		label(nil)
		env.Eventually(t, "without it it is", says(hub, mirror, "second"))
		theirs.Network.Cut()
		if err := onSpoke.Delete(ctx, "team", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		theirs.Network.Mend()
		env.Eventually(t, "what was deleted meanwhile is shown no more", func() error { return env.Gone(ctx, hub, mirror) })

		env.Eventually(t, "mirrors that the hub has no place for are parked", func() error {
			return errors.Join(theirs.Parked(ctx, "taken", "is its owner's"), theirs.Parked(ctx, "own", "is its owner's"))
		})
		if now := env.Get(t, hub, "kinds-5-taken"); now.GetResourceVersion() != taken.GetResourceVersion() {
			t.Error("the hub's own project was written")
		}
		if now := env.Get(t, theirs.Hub, "own"); now.GetResourceVersion() != own.GetResourceVersion() {
			t.Error("the hub's own Application was written")
		}
	})
}

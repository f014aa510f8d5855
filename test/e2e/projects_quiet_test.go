//go:build linux

package e2e

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

// anew is a check that an object is there, and another one than it was.
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
	w, ctx := theQuietWorld(t), t.Context()
	mine, theirs := w.connect(t, "kinds-4", "managed"), w.connect(t, "kinds-5", "autonomous")
	hub := w.hubProjects()
	t.Cleanup(func() {
		for _, name := range []string{"kinds-4-web", "kinds-4-own", "kinds-5-taken"} {
			_ = hub.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) // it may have gone
		}
	})
	says := func(where dynamic.ResourceInterface, name, description string) func() error {
		return func() error { return field(ctx, where, name, description, "spec", "description") }
	}
	describe := func(where dynamic.ResourceInterface, name, description string) {
		t.Helper()
		patch(t, where, name, map[string]any{"spec": map[string]any{"description": description}})
	}

	t.Run("managed", func(t *testing.T) {
		const name = "kinds-4-web"
		onSpoke := mine.projects()
		own := projectNamed("kinds-4-own")
		own.SetFinalizers([]string{cascade})
		own.SetAnnotations(map[string]string{"argocd.argoproj.io/adoption-policy": "always"})
		create(t, onSpoke, own)
		create(t, hub, projectFor("kinds-4-own", mine.name))
		eventually(t, "one that the spoke had is adopted", func() error {
			o, err := onSpoke.Get(ctx, "kinds-4-own", metav1.GetOptions{})
			if err == nil && (o.GetAnnotations()[sourceUID] == "" || len(o.GetFinalizers()) > 0) {
				err = errors.New("it is as it was")
			}
			return err
		})

		server := "https://argomesh-principal:9090/agents/"
		web := projectFor(name, mine.name)
		spec := web.Object["spec"].(map[string]any)
		to := func(name, server, namespace string) map[string]any {
			return map[string]any{"name": name, "server": server, "namespace": namespace}
		}
		destinations := []any{to(mine.name, "", "web"), to("kinds-[0-9]", "", "web-*"), to("other", "", "*"), to("", server+mine.name, "by-server"), to("", server+"other", "*"), to("", "!"+server+mine.name, "kube-*")}
		spec["description"], spec["destinations"] = "first", destinations
		spec["roles"] = []any{map[string]any{"name": "people", "policies": []any{"p, proj:" + name + ":people, applications, get, " + name + "/*, allow"}}}
		create(t, hub, web)
		eventually(t, "it arrives", says(onSpoke, name, "first"))
		copied := get(t, onSpoke, name)
		local := "https://kubernetes.default.svc"
		if err := field(ctx, onSpoke, name, []any{
			to("in-cluster", local, "web"), to("in-cluster", local, "web-*"), to("in-cluster", local, "by-server"), map[string]any{"server": "!" + local, "namespace": "kube-*"},
		}, "spec", "destinations"); err != nil {
			t.Error(err)
		}
		if spec := copied.Object["spec"].(map[string]any); spec["roles"] != nil || spec["sourceNamespaces"] != nil {
			t.Errorf("the copy has roles %v and source namespaces %v", spec["roles"], spec["sourceNamespaces"])
		}
		if err := gone(ctx, theirs.projects(), name); err != nil {
			t.Errorf("the autonomous agent has it: %v", err)
		}

		describe(hub, name, "second")
		eventually(t, "a change arrives", says(onSpoke, name, "second"))
		describe(onSpoke, name, "local")
		eventually(t, "a local edit is undone", says(onSpoke, name, "second"))
		if err := onSpoke.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a local delete is undone", func() error { return anew(ctx, onSpoke, name, copied) })

		ignore := func(value any) {
			patch(t, hub, name, map[string]any{"metadata": map[string]any{"labels": map[string]any{"argocd-agent.argoproj-labs.io/ignore-sync": value}}})
		}
		ignore("true")
		eventually(t, "with ignore-sync it leaves", func() error { return gone(ctx, onSpoke, name) })
		ignore(nil)
		eventually(t, "without it it is back", says(onSpoke, name, "second"))
		patch(t, hub, name, map[string]any{"spec": map[string]any{"destinations": []any{to("other", "", "*")}}})
		eventually(t, "without a destination that is the agent it leaves", func() error { return gone(ctx, onSpoke, name) })
		patch(t, hub, name, map[string]any{"spec": map[string]any{"destinations": append(destinations, to("!"+mine.name, "", "*"))}})
		patch(t, hub, "kinds-4-own", map[string]any{"spec": map[string]any{"description": "after that"}})
		eventually(t, "what came later arrives", says(onSpoke, "kinds-4-own", "after that"))
		if err := gone(ctx, onSpoke, name); err != nil {
			t.Errorf("with a destination that denies the agent: %v", err)
		}
		patch(t, hub, name, map[string]any{"spec": map[string]any{"destinations": destinations}})
		eventually(t, "with one it is back again", says(onSpoke, name, "second"))

		mine.network.Cut()
		if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		describe(hub, "kinds-4-own", "meanwhile")
		mine.network.Mend()
		eventually(t, "what was changed meanwhile arrives", says(onSpoke, "kinds-4-own", "meanwhile"))
		eventually(t, "what was deleted meanwhile goes", func() error { return gone(ctx, onSpoke, name) })
	})

	t.Run("autonomous", func(t *testing.T) {
		const mirror = "kinds-5-team"
		onSpoke := theirs.projects()
		// A project and an Application of the hub's own, where the mirrors of others would be.
		taken := create(t, hub, projectNamed("kinds-5-taken"))
		create(t, onSpoke, projectNamed("taken"))
		own := create(t, theirs.hub, theirs.application("own"))
		create(t, theirs.spoke, theirs.application("own"))

		team := projectNamed("team")
		team.Object["spec"].(map[string]any)["description"] = "first"
		team.Object["spec"].(map[string]any)["roles"] = []any{map[string]any{"name": "people", "policies": []any{"p, proj:team:people, applications, get, team/*, allow"}}}
		create(t, onSpoke, team)
		eventually(t, "its mirror has the agent's prefix", says(hub, mirror, "first"))
		shown := get(t, hub, mirror)
		spec := shown.Object["spec"].(map[string]any)
		if spec["roles"] != nil {
			t.Errorf("the mirror has roles %v", spec["roles"])
		}
		for name, want := range map[string][]any{
			"sourceNamespaces": {theirs.name}, "destinations": {map[string]any{"name": theirs.name, "namespace": "*"}},
		} {
			if err := field(ctx, hub, mirror, want, "spec", name); err != nil {
				t.Error(err)
			}
		}
		describe(onSpoke, "team", "second")
		eventually(t, "a change is shown", says(hub, mirror, "second"))
		describe(hub, mirror, "of the hub")
		eventually(t, "an edit of the mirror is undone", says(hub, mirror, "second"))
		if err := hub.Delete(ctx, mirror, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a mirror that was deleted is made anew", func() error { return anew(ctx, hub, mirror, shown) })
		if err := says(onSpoke, "team", "second")(); err != nil {
			t.Error(err)
		}
		label := func(value any) {
			patch(t, onSpoke, "team", map[string]any{"metadata": map[string]any{"labels": map[string]any{"argocd-agent.argoproj-labs.io/ignore-sync": value}}})
		}
		label("true")
		eventually(t, "with ignore-sync it is not shown", func() error { return gone(ctx, hub, mirror) })
		label(nil)
		eventually(t, "without it it is", says(hub, mirror, "second"))
		theirs.network.Cut()
		if err := onSpoke.Delete(ctx, "team", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		theirs.network.Mend()
		eventually(t, "what was deleted meanwhile is shown no more", func() error { return gone(ctx, hub, mirror) })

		eventually(t, "mirrors that the hub has no place for are parked", func() error {
			return errors.Join(theirs.parked(ctx, "taken", "is its owner's"), theirs.parked(ctx, "own", "is its owner's"))
		})
		if now := get(t, hub, "kinds-5-taken"); now.GetResourceVersion() != taken.GetResourceVersion() {
			t.Error("the hub's own project was written")
		}
		if now := get(t, theirs.hub, "own"); now.GetResourceVersion() != own.GetResourceVersion() {
			t.Error("the hub's own Application was written")
		}
	})
}

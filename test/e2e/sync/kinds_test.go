//go:build linux

package sync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// repositorySecret is a repository's, of a project if that is not empty.
func repositorySecret(name, project string) *unstructured.Unstructured {
	data := map[string]any{"url": env.Base64("https://git.example.com/" + name + ".git"), "password": env.Base64(env.Password)}
	if project != "" {
		data["project"] = env.Base64(project)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"argocd.argoproj.io/secret-type": "repository"}},
		"data":     data,
	}}
}

// projectFor is an AppProject of the hub for some agents.
func projectFor(name string, agents ...string) *unstructured.Unstructured {
	var namespaces, destinations []any
	for _, agent := range agents {
		namespaces = append(namespaces, agent)
		destinations = append(destinations, map[string]any{"name": agent, "namespace": "*"})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"sourceRepos": []any{"*"}, "sourceNamespaces": namespaces, "destinations": destinations},
	}}
}

// TestKindsRepositories follows the Secrets of repositories from the hub to the one of
// two agents that gets their project, and looks for their values in every log.
func TestKindsRepositories(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnBare(t), t.Context()
	mine, other := w.Connect(t, "kinds-1", "managed"), w.Connect(t, "kinds-2", "managed")
	hub := w.Hub.Resource(env.Secrets, harness.ArgoCDNamespace)
	on := func(r *env.BareAgent) dynamic.ResourceInterface { return w.Spoke.Resource(env.Secrets, r.Namespace) }
	forget := func(where dynamic.ResourceInterface, names ...string) {
		t.Cleanup(func() {
			for _, name := range names {
				_ = where.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) // it may have gone
			}
		})
	}
	forget(hub, "repo-a", "repo-b", "repo-own", "repo-kept", "plain", "lone", "barrier")
	forget(w.HubProjects(), "kinds-mine", "kinds-both")

	// What the spoke's owner has already.
	own := repositorySecret("repo-own", "")
	own.Object["data"] = map[string]any{"password": env.Base64("before")}
	kept := repositorySecret("repo-kept", "")
	kept.Object["data"] = own.Object["data"]
	env.Create(t, on(mine), kept)
	own.SetAnnotations(map[string]string{"argocd.argoproj.io/adoption-policy": "always"})
	env.Create(t, on(mine), own)
	env.Create(t, on(mine), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "plain"}, "data": map[string]any{"admin": env.Base64("theirs")},
	}})

	env.Create(t, hub, repositorySecret("repo-a", "kinds-mine")) // before its project
	env.Create(t, w.HubProjects(), projectFor("kinds-mine", mine.Name))
	env.Create(t, w.HubProjects(), projectFor("kinds-both", mine.Name, other.Name))
	for _, name := range []string{"repo-b", "repo-own", "repo-kept", "plain"} {
		env.Create(t, hub, repositorySecret(name, "kinds-mine"))
	}
	env.Create(t, hub, repositorySecret("lone", ""))
	holds := func(r *env.BareAgent, name, value string) func() error {
		return func() error { return env.FieldIs(ctx, on(r), name, env.Base64(value), "data", "password") }
	}
	for _, name := range []string{"repo-a", "repo-b", "repo-own"} {
		env.Eventually(t, name+" arrives", holds(mine, name, env.Password))
	}
	if env.Get(t, on(mine), "repo-own").GetAnnotations()[env.SourceUID] == "" {
		t.Error("the spoke's own repository was not adopted")
	}

	// A change, a local edit, a local delete.
	env.Patch(t, hub, "repo-a", map[string]any{"data": map[string]any{"password": env.Base64(env.Password + "-2")}})
	env.Eventually(t, "a change arrives", holds(mine, "repo-a", env.Password+"-2"))
	env.Patch(t, on(mine), "repo-a", map[string]any{"data": map[string]any{"password": env.Base64("local")}})
	env.Eventually(t, "a local edit is undone", holds(mine, "repo-a", env.Password+"-2"))
	env.Patch(t, on(mine), "repo-a", map[string]any{"metadata": map[string]any{"labels": map[string]any{"argocd.argoproj.io/secret-type": nil}}})
	env.Eventually(t, "the label is put back", func() error {
		return env.FieldIs(ctx, on(mine), "repo-a", "repository", "metadata", "labels", "argocd.argoproj.io/secret-type")
	})
	copied := env.Get(t, on(mine), "repo-a").GetUID()
	if err := on(mine).Delete(ctx, "repo-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "a local delete is undone", func() error {
		o, err := on(mine).Get(ctx, "repo-a", metav1.GetOptions{})
		if err == nil && o.GetUID() == copied {
			return errors.New("the deleted one is still there")
		}
		return err
	})

	// ignore-sync, there and back.
	ignore := func(value any) {
		env.Patch(t, hub, "repo-b", map[string]any{"metadata": map[string]any{"labels": map[string]any{"argocd-agent.argoproj-labs.io/ignore-sync": value}}})
	}
	ignore("true")
	env.Eventually(t, "with ignore-sync it leaves", func() error { return env.Gone(ctx, on(mine), "repo-b") })
	ignore(nil)
	env.Eventually(t, "without it it is back", holds(mine, "repo-b", env.Password))

	// Deleted while the agent is away.
	mine.Network.Cut()
	if err := hub.Delete(ctx, "repo-b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	mine.Network.Mend()
	env.Eventually(t, "what was deleted meanwhile goes", func() error { return env.Gone(ctx, on(mine), "repo-b") })

	// A Secret of the spoke that is no repository is not written over, and that is told.
	env.Eventually(t, "the hub names the Secrets that are in the way", func() error {
		a, err := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, mine.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		parked, _, _ := unstructured.NestedSlice(a.Object, "status", "parked")
		named := 0
		for _, p := range parked {
			if o, _ := p.(map[string]any); o["kind"] == "Secret" && (o["name"] == "plain" || o["name"] == "repo-kept") && o["reason"] == "NotOwned" {
				named++
			}
		}
		if named != 2 {
			return fmt.Errorf("parked are %v", parked)
		}
		return nil
	})
	if err := holds(mine, "repo-kept", "before")(); err != nil {
		t.Errorf("a repository of the spoke that nobody let be adopted: %v", err)
	}
	if plain := env.Get(t, on(mine), "plain"); plain.GetAnnotations()[env.SourceUID] != "" || fmt.Sprint(plain.Object["data"]) != fmt.Sprint(map[string]any{"admin": env.Base64("theirs")}) {
		t.Error("a Secret of the spoke was written over")
	}

	// A project that ceases to admit the agent takes its Secrets along.
	env.Patch(t, w.HubProjects(), "kinds-mine", map[string]any{"spec": map[string]any{"sourceNamespaces": []any{"nobody"}}})
	env.Eventually(t, "the Secrets of a lost project leave", func() error {
		return env.Gone(ctx, on(mine), "repo-a")
	})
	env.Eventually(t, "the spoke's own is what it was", holds(mine, "repo-own", "before"))
	if own := env.Get(t, on(mine), "repo-own"); own.GetAnnotations()[env.SourceUID] != "" || own.GetLabels()["argocd.argoproj.io/secret-type"] != "repository" {
		t.Errorf("given back, it has %v and %v", own.GetLabels(), own.GetAnnotations())
	}

	// Whatever the other agent would have got it has by now.
	env.Create(t, hub, repositorySecret("barrier", "kinds-both"))
	env.Eventually(t, "the other agent gets what is for both", holds(other, "barrier", env.Password))
	list, err := on(other).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if name := list.Items[i].GetName(); name != "barrier" {
			t.Errorf("the other agent has Secret %s", name)
		}
	}
	if err := env.Gone(ctx, on(mine), "lone"); err != nil {
		t.Errorf("a Secret without a project: %v", err)
	}
	logs, err := filepath.Glob(w.Harness.Path("logs", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs: %v", err)
	}
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{env.Password, env.Base64(env.Password)[:20]} {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s tells a password", filepath.Base(name))
			}
		}
	}
}

// TestKindsTrust follows keys, certificates and known hosts, of which both sides have
// some.
func TestKindsTrust(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnBare(t), t.Context()
	r := w.Register(t, "kinds-3", "managed")
	hub, spoke := w.Hub.Resource(env.ConfigMaps, harness.ArgoCDNamespace), w.Spoke.Resource(env.ConfigMaps, r.Namespace)
	const keys, hosts, certificates = "argocd-gpg-keys-cm", "argocd-ssh-known-hosts-cm", "argocd-tls-certs-cm"
	configMap := func(name string, data map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data,
		}}
	}
	env.Create(t, spoke, configMap(keys, map[string]any{"OWN": "o"}))
	env.Create(t, hub, configMap(keys, map[string]any{"ABCD": "1"}))
	env.Create(t, hub, configMap(hosts, map[string]any{"ssh_known_hosts": "git.test ssh-rsa AAA\n"}))
	env.Create(t, spoke, configMap(certificates, map[string]any{"git.own": "own", "git.same": "same", "git.other": "before"}))
	env.Create(t, hub, configMap(certificates, map[string]any{"git.hub": "hub", "git.same": "same", "git.other": "after"}))
	t.Cleanup(func() {
		for _, name := range []string{keys, hosts, certificates} {
			_ = hub.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) // it may have gone
		}
	})
	r.Start(t)
	data := func(name string, want map[string]any) func() error {
		return func() error { return env.FieldIs(ctx, spoke, name, want, "data") }
	}
	env.Eventually(t, "the key arrives beside the spoke's own", data(keys, map[string]any{"ABCD": "1", "OWN": "o"}))
	env.Eventually(t, "the known hosts arrive", data(hosts, map[string]any{"ssh_known_hosts": "git.test ssh-rsa AAA\n"}))
	env.Eventually(t, "certificates arrive beside the spoke's own, and in place of others for the same host",
		data(certificates, map[string]any{"git.own": "own", "git.same": "same", "git.other": "after", "git.hub": "hub"}))

	env.Patch(t, spoke, keys, map[string]any{"data": map[string]any{"ABCD": "local", "NEW": "n"}})
	env.Eventually(t, "a local edit of the hub's key is undone, a new one stays", data(keys, map[string]any{"ABCD": "1", "NEW": "n", "OWN": "o"}))
	env.Patch(t, hub, keys, map[string]any{"data": map[string]any{"ABCD": nil, "EF01": "2"}})
	env.Eventually(t, "a key goes and another comes", data(keys, map[string]any{"EF01": "2", "NEW": "n", "OWN": "o"}))
	if err := spoke.Delete(ctx, hosts, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "a ConfigMap that was deleted is made anew", data(hosts, map[string]any{"ssh_known_hosts": "git.test ssh-rsa AAA\n"}))

	// A certificate that is renewed, and one that the hub no longer has, but the spoke had.
	env.Patch(t, hub, certificates, map[string]any{"data": map[string]any{"git.hub": "renewed", "git.same": nil}})
	env.Eventually(t, "a certificate is renewed, and one that was the spoke's before stays",
		data(certificates, map[string]any{"git.own": "own", "git.same": "same", "git.other": "after", "git.hub": "renewed"}))
	env.Patch(t, spoke, certificates, map[string]any{"data": map[string]any{"git.hub": nil, "git.other": "local"}})
	env.Eventually(t, "local edits of the hub's are undone",
		data(certificates, map[string]any{"git.own": "own", "git.same": "same", "git.other": "after", "git.hub": "renewed"}))

	// Lines of known hosts.
	env.Patch(t, spoke, hosts, map[string]any{"data": map[string]any{"ssh_known_hosts": "# ours\nown.test ssh-rsa OOO\n"}})
	env.Eventually(t, "a line of the hub's that was taken out is put back, beside the spoke's own",
		data(hosts, map[string]any{"ssh_known_hosts": "# ours\nown.test ssh-rsa OOO\ngit.test ssh-rsa AAA\n"}))
	env.Patch(t, hub, hosts, map[string]any{"data": map[string]any{"ssh_known_hosts": "# theirs\ngit.test ssh-rsa BBB\n"}})
	env.Eventually(t, "a line is another, and no comment travels",
		data(hosts, map[string]any{"ssh_known_hosts": "# ours\nown.test ssh-rsa OOO\ngit.test ssh-rsa BBB\n"}))

	r.Network.Cut()
	for _, name := range []string{keys, certificates} {
		if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.Network.Mend()
	env.Eventually(t, "what the hub put there goes, the rest stays", data(keys, map[string]any{"NEW": "n", "OWN": "o"}))
	env.Eventually(t, "the hub's certificates go, the spoke's own stay", data(certificates, map[string]any{"git.own": "own", "git.same": "same"}))
	env.Patch(t, hub, hosts, map[string]any{"metadata": map[string]any{"labels": map[string]any{"argocd-agent.argoproj-labs.io/ignore-sync": "true"}}})
	env.Eventually(t, "with ignore-sync the hub's lines leave", data(hosts, map[string]any{"ssh_known_hosts": "# ours\nown.test ssh-rsa OOO\n"}))
}

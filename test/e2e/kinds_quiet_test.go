//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/harness"
)

// password is what must never be in a log.
const password = "correct-horse-battery"

// repositorySecret is a repository's, of a project if that is not empty.
func repositorySecret(name, project string) *unstructured.Unstructured {
	data := map[string]any{"url": encoded("https://git.example.com/" + name + ".git"), "password": encoded(password)}
	if project != "" {
		data["project"] = encoded(project)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"argocd.argoproj.io/secret-type": "repository"}},
		"data":     data,
	}}
}

func encoded(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

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
	w, ctx := theQuietWorldAlone(t), t.Context()
	mine, other := w.connect(t, "kinds-1", "managed"), w.connect(t, "kinds-2", "managed")
	hub := w.hub.Resource(secrets, harness.ArgoCDNamespace)
	on := func(r *remote) dynamic.ResourceInterface { return w.spoke.Resource(secrets, r.namespace) }
	forget := func(where dynamic.ResourceInterface, names ...string) {
		t.Cleanup(func() {
			for _, name := range names {
				_ = where.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) // it may have gone
			}
		})
	}
	forget(hub, "repo-a", "repo-b", "repo-own", "repo-kept", "plain", "lone", "barrier")
	forget(w.hubProjects(), "kinds-mine", "kinds-both")

	// What the spoke's owner has already.
	own := repositorySecret("repo-own", "")
	own.Object["data"] = map[string]any{"password": encoded("before")}
	kept := repositorySecret("repo-kept", "")
	kept.Object["data"] = own.Object["data"]
	create(t, on(mine), kept)
	own.SetAnnotations(map[string]string{"argocd.argoproj.io/adoption-policy": "always"})
	create(t, on(mine), own)
	create(t, on(mine), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "plain"}, "data": map[string]any{"admin": encoded("theirs")},
	}})

	create(t, hub, repositorySecret("repo-a", "kinds-mine")) // before its project
	create(t, w.hubProjects(), projectFor("kinds-mine", mine.name))
	create(t, w.hubProjects(), projectFor("kinds-both", mine.name, other.name))
	for _, name := range []string{"repo-b", "repo-own", "repo-kept", "plain"} {
		create(t, hub, repositorySecret(name, "kinds-mine"))
	}
	create(t, hub, repositorySecret("lone", ""))
	holds := func(r *remote, name, value string) func() error {
		return func() error { return field(ctx, on(r), name, encoded(value), "data", "password") }
	}
	for _, name := range []string{"repo-a", "repo-b", "repo-own"} {
		eventually(t, name+" arrives", holds(mine, name, password))
	}
	if get(t, on(mine), "repo-own").GetAnnotations()[sourceUID] == "" {
		t.Error("the spoke's own repository was not adopted")
	}

	// A change, a local edit, a local delete.
	patch(t, hub, "repo-a", map[string]any{"data": map[string]any{"password": encoded(password + "-2")}})
	eventually(t, "a change arrives", holds(mine, "repo-a", password+"-2"))
	patch(t, on(mine), "repo-a", map[string]any{"data": map[string]any{"password": encoded("local")}})
	eventually(t, "a local edit is undone", holds(mine, "repo-a", password+"-2"))
	patch(t, on(mine), "repo-a", map[string]any{"metadata": map[string]any{"labels": map[string]any{"argocd.argoproj.io/secret-type": nil}}})
	eventually(t, "the label is put back", func() error {
		return field(ctx, on(mine), "repo-a", "repository", "metadata", "labels", "argocd.argoproj.io/secret-type")
	})
	copied := get(t, on(mine), "repo-a").GetUID()
	if err := on(mine).Delete(ctx, "repo-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a local delete is undone", func() error {
		o, err := on(mine).Get(ctx, "repo-a", metav1.GetOptions{})
		if err == nil && o.GetUID() == copied {
			return errors.New("the deleted one is still there")
		}
		return err
	})

	// ignore-sync, there and back.
	ignore := func(value any) {
		patch(t, hub, "repo-b", map[string]any{"metadata": map[string]any{"labels": map[string]any{"argocd-agent.argoproj-labs.io/ignore-sync": value}}})
	}
	ignore("true")
	eventually(t, "with ignore-sync it leaves", func() error { return gone(ctx, on(mine), "repo-b") })
	ignore(nil)
	eventually(t, "without it it is back", holds(mine, "repo-b", password))

	// Deleted while the agent is away.
	mine.network.Cut()
	if err := hub.Delete(ctx, "repo-b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	mine.network.Mend()
	eventually(t, "what was deleted meanwhile goes", func() error { return gone(ctx, on(mine), "repo-b") })

	// A Secret of the spoke that is no repository is not written over, and that is told.
	eventually(t, "the hub names the Secrets that are in the way", func() error {
		a, err := w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, mine.name, metav1.GetOptions{})
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
	if plain := get(t, on(mine), "plain"); plain.GetAnnotations()[sourceUID] != "" || fmt.Sprint(plain.Object["data"]) != fmt.Sprint(map[string]any{"admin": encoded("theirs")}) {
		t.Error("a Secret of the spoke was written over")
	}

	// A project that ceases to admit the agent takes its Secrets along.
	patch(t, w.hubProjects(), "kinds-mine", map[string]any{"spec": map[string]any{"sourceNamespaces": []any{"nobody"}}})
	eventually(t, "the Secrets of a lost project leave", func() error {
		return gone(ctx, on(mine), "repo-a")
	})
	eventually(t, "the spoke's own is what it was", holds(mine, "repo-own", "before"))
	if own := get(t, on(mine), "repo-own"); own.GetAnnotations()[sourceUID] != "" || own.GetLabels()["argocd.argoproj.io/secret-type"] != "repository" {
		t.Errorf("given back, it has %v and %v", own.GetLabels(), own.GetAnnotations())
	}

	// Whatever the other agent would have got it has by now.
	create(t, hub, repositorySecret("barrier", "kinds-both"))
	eventually(t, "the other agent gets what is for both", holds(other, "barrier", password))
	list, err := on(other).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if name := list.Items[i].GetName(); name != "barrier" {
			t.Errorf("the other agent has Secret %s", name)
		}
	}
	if err := gone(ctx, on(mine), "lone"); err != nil {
		t.Errorf("a Secret without a project: %v", err)
	}
	logs, err := filepath.Glob(w.h.Path("logs", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs: %v", err)
	}
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{password, encoded(password)[:20]} {
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
	w, ctx := theQuietWorldAlone(t), t.Context()
	r := w.register(t, "kinds-3", "managed")
	hub, spoke := w.hub.Resource(configMaps, harness.ArgoCDNamespace), w.spoke.Resource(configMaps, r.namespace)
	const keys, hosts, certificates = "argocd-gpg-keys-cm", "argocd-ssh-known-hosts-cm", "argocd-tls-certs-cm"
	configMap := func(name string, data map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data,
		}}
	}
	create(t, spoke, configMap(keys, map[string]any{"OWN": "o"}))
	create(t, hub, configMap(keys, map[string]any{"ABCD": "1"}))
	create(t, hub, configMap(hosts, map[string]any{"ssh_known_hosts": "git.test ssh-rsa AAA\n"}))
	create(t, spoke, configMap(certificates, map[string]any{"git.own": "own", "git.same": "same", "git.other": "before"}))
	create(t, hub, configMap(certificates, map[string]any{"git.hub": "hub", "git.same": "same", "git.other": "after"}))
	t.Cleanup(func() {
		for _, name := range []string{keys, hosts, certificates} {
			_ = hub.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) // it may have gone
		}
	})
	r.start(t)
	data := func(name string, want map[string]any) func() error {
		return func() error { return field(ctx, spoke, name, want, "data") }
	}
	eventually(t, "the key arrives beside the spoke's own", data(keys, map[string]any{"ABCD": "1", "OWN": "o"}))
	eventually(t, "the known hosts arrive", data(hosts, map[string]any{"ssh_known_hosts": "git.test ssh-rsa AAA\n"}))
	eventually(t, "certificates arrive beside the spoke's own, and in place of others for the same host",
		data(certificates, map[string]any{"git.own": "own", "git.same": "same", "git.other": "after", "git.hub": "hub"}))

	patch(t, spoke, keys, map[string]any{"data": map[string]any{"ABCD": "local", "NEW": "n"}})
	eventually(t, "a local edit of the hub's key is undone, a new one stays", data(keys, map[string]any{"ABCD": "1", "NEW": "n", "OWN": "o"}))
	patch(t, hub, keys, map[string]any{"data": map[string]any{"ABCD": nil, "EF01": "2"}})
	eventually(t, "a key goes and another comes", data(keys, map[string]any{"EF01": "2", "NEW": "n", "OWN": "o"}))
	if err := spoke.Delete(ctx, hosts, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a ConfigMap that was deleted is made anew", data(hosts, map[string]any{"ssh_known_hosts": "git.test ssh-rsa AAA\n"}))

	// A certificate that is renewed, and one that the hub no longer has, but the spoke had.
	patch(t, hub, certificates, map[string]any{"data": map[string]any{"git.hub": "renewed", "git.same": nil}})
	eventually(t, "a certificate is renewed, and one that was the spoke's before stays",
		data(certificates, map[string]any{"git.own": "own", "git.same": "same", "git.other": "after", "git.hub": "renewed"}))
	patch(t, spoke, certificates, map[string]any{"data": map[string]any{"git.hub": nil, "git.other": "local"}})
	eventually(t, "local edits of the hub's are undone",
		data(certificates, map[string]any{"git.own": "own", "git.same": "same", "git.other": "after", "git.hub": "renewed"}))

	// Lines of known hosts.
	patch(t, spoke, hosts, map[string]any{"data": map[string]any{"ssh_known_hosts": "# ours\nown.test ssh-rsa OOO\n"}})
	eventually(t, "a line of the hub's that was taken out is put back, beside the spoke's own",
		data(hosts, map[string]any{"ssh_known_hosts": "# ours\nown.test ssh-rsa OOO\ngit.test ssh-rsa AAA\n"}))
	patch(t, hub, hosts, map[string]any{"data": map[string]any{"ssh_known_hosts": "# theirs\ngit.test ssh-rsa BBB\n"}})
	eventually(t, "a line is another, and no comment travels",
		data(hosts, map[string]any{"ssh_known_hosts": "# ours\nown.test ssh-rsa OOO\ngit.test ssh-rsa BBB\n"}))

	r.network.Cut()
	for _, name := range []string{keys, certificates} {
		if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.network.Mend()
	eventually(t, "what the hub put there goes, the rest stays", data(keys, map[string]any{"NEW": "n", "OWN": "o"}))
	eventually(t, "the hub's certificates go, the spoke's own stay", data(certificates, map[string]any{"git.own": "own", "git.same": "same"}))
	patch(t, hub, hosts, map[string]any{"metadata": map[string]any{"labels": map[string]any{"argocd-agent.argoproj-labs.io/ignore-sync": "true"}}})
	eventually(t, "with ignore-sync the hub's lines leave", data(hosts, map[string]any{"ssh_known_hosts": "# ours\nown.test ssh-rsa OOO\n"}))
}

//go:build linux

package sync

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// mappedNamespace is that of a second Argo CD on the quiet hub, whose principal maps by
// destination.
const mappedNamespace = "mapped"

// TestMappingByDestination is a hub whose Applications go where their destination says,
// from Argo CD's own namespace and from others, beside Applications that are not for
// agents at all. It has control planes of its own: a hub that starts beside this one takes
// back, once, what the conditions of its Applications say.
func TestMappingByDestination(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w, err := env.StartBareControlPlanes(ctx, harnesstest.AtOnce(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{mappedNamespace, "mapped-team-1", "mapped-team-2", "mapped-out"} {
		if err := w.Hub.EnsureNamespace(ctx, namespace); err != nil {
			t.Fatal(err)
		}
	}
	principal := w.MappedPrincipal(t, mappedNamespace, harness.Settings{
		"log.level":  "debug",
		"mapping.by": "destination", "mapping.namespaces": []string{"mapped-team-*"}, "mapping.selector": "!by-hub",
		"repositories.share_unscoped": true,
	})
	w.MappedAgent(t, mappedNamespace, "map-1", principal, harness.Settings{"mapping.namespaces": []string{"mapped-team-1"}, "mapping.create_namespaces": true})
	w.MappedAgent(t, mappedNamespace, "map-2", principal, harness.Settings{"mapping.namespaces": []string{"/^mapped-team-2$/"}, "mapping.create_namespaces": true})

	hub := func(namespace string) dynamic.ResourceInterface {
		return w.Hub.Resource(harness.Applications, namespace)
	}
	spoke := func(namespace string) dynamic.ResourceInterface {
		return w.Spoke.Resource(harness.Applications, namespace)
	}
	application := func(name, destination string) *unstructured.Unstructured {
		key := "name"
		if strings.Contains(destination, "/") {
			key = "server"
		}
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"project": "default", "destination": map[string]any{key: destination, "namespace": "default"},
				"source": map[string]any{"repoURL": "https://git.example.com/r.git", "path": ".", "targetRevision": "1"},
			},
		}}
	}
	shows := func(where dynamic.ResourceInterface, name string) func() error {
		return func() error { return env.Exists(ctx, where, name) }
	}

	// What is not for agents: another cluster, another label, another namespace.
	untouched := map[string]*unstructured.Unstructured{}
	leave := func(namespace string, app *unstructured.Unstructured) {
		untouched[namespace+"/"+app.GetName()] = env.Create(t, hub(namespace), app)
	}
	leave(mappedNamespace, application("left-pushed", "in-cluster"))
	labelled := application("left-unlabelled", "map-1")
	labelled.SetLabels(map[string]string{"by-hub": ""})
	leave("mapped-team-1", labelled)
	// And where no agent's may be: it says so, which is all that is written.
	const outside = "left-outside"
	env.Create(t, hub("mapped-out"), application(outside, "map-1"))
	env.Eventually(t, "that no agent takes it", func() error {
		return env.ConditionSays(ctx, hub("mapped-out"), outside, "ArgomeshError",
			"no agent takes it: its destination is agent map-1, and namespace mapped-out is none where Applications of agents may be")
	})

	// The spoke's own, which has no source on a hub.
	local := env.Create(t, spoke("map-1"), application("left-local", "in-cluster"))

	// Secrets without a project: which agent has them follows from the repositories that
	// its Applications use.
	unscoped := func(name, kind, url string) {
		t.Helper()
		secret := repositorySecret(name, "")
		secret.SetLabels(map[string]string{"argocd.argoproj.io/secret-type": kind})
		secret.Object["data"].(map[string]any)["url"] = env.Base64(url)
		env.Create(t, w.Hub.Resource(env.Secrets, mappedNamespace), secret)
	}
	credentials := func(agent string) dynamic.ResourceInterface { return w.Spoke.Resource(env.Secrets, agent) }
	unscoped("unused", "repository", "https://git.example.com/other.git")
	unscoped("alike", "repo-creds", "https://git.example") // of a host whose name begins alike
	unscoped("used", "repository", "https://git.example.com/r")
	unscoped("template", "repo-creds", "https://git.example.com/")

	// From Argo CD's own namespace, which on the spoke is its Argo CD's; from another,
	// which is made there; by name and by server.
	env.Create(t, hub(mappedNamespace), application("own", "map-1"))
	env.Create(t, hub("mapped-team-2"), env.WithSecret(application("team", "https://argomesh-principal:9090/agents/map-2/"))) // Argo CD ignores the slash
	env.Eventually(t, "the Application of Argo CD's namespace", shows(spoke("map-1"), "own"))
	env.Eventually(t, "the Application of another", shows(spoke("mapped-team-2"), "team"))
	for _, agent := range []string{"map-1", "map-2"} {
		for _, name := range []string{"used", "template"} {
			env.Eventually(t, agent+" gets "+name, func() error {
				return env.FieldIs(ctx, credentials(agent), name, env.Base64(env.Password), "data", "password")
			})
		}
	}
	env.Patch(t, spoke("mapped-team-2"), "team", map[string]any{"status": map[string]any{"sync": map[string]any{"status": "Synced"}}})
	env.Eventually(t, "its status on the hub", func() error {
		return env.FieldIs(ctx, hub("mapped-team-2"), "team", "Synced", "status", "sync", "status")
	})

	// The spoke's owner does not let this hub use that namespace.
	env.Create(t, hub("mapped-team-1"), application("refused", "map-2"))
	env.Eventually(t, "the hub says why", func() error {
		text := fmt.Sprint(env.Get(t, hub("mapped-team-1"), "refused").Object["status"])
		if !strings.Contains(text, "mapping.namespaces of the spoke does not allow Applications in its namespace mapped-team-1") {
			return fmt.Errorf("the status is %s", text)
		}
		return nil
	})
	env.Eventually(t, "the Agent names it, and where it is", func() error {
		text := fmt.Sprint(env.Get(t, w.Hub.Resource(env.Agents, mappedNamespace), "map-2").Object["status"])
		if !strings.Contains(text, "name:refused namespace:mapped-team-1") {
			return fmt.Errorf("the status is %s", text)
		}
		return nil
	})

	// Another destination: released here, made there, and from then on that one's.
	uid := env.Get(t, spoke("map-1"), "own").GetUID()
	env.Patch(t, hub(mappedNamespace), "own", map[string]any{"spec": map[string]any{"destination": map[string]any{"name": "map-2"}}})
	env.Eventually(t, "the other agent has it", shows(spoke("map-2"), "own"))
	env.Eventually(t, "the first one has let it go", func() error { return env.Gone(ctx, spoke("map-1"), "own") })
	if env.Get(t, spoke("map-2"), "own").GetUID() == uid {
		t.Error("it is the same object")
	}
	env.Patch(t, spoke("map-2"), "own", map[string]any{"status": map[string]any{"sync": map[string]any{"status": "Synced"}}})
	env.Eventually(t, "the status of the second", func() error {
		return env.FieldIs(ctx, hub(mappedNamespace), "own", "Synced", "status", "sync", "status")
	})

	for _, name := range []string{"used", "template"} {
		env.Eventually(t, name+" leaves with the last Application that uses it", func() error { return env.Gone(ctx, credentials("map-1"), name) })
		if err := env.Exists(ctx, credentials("map-2"), name); err != nil {
			t.Error(err)
		}
	}
	for _, agent := range []string{"map-1", "map-2"} {
		if err := errors.Join(env.Gone(ctx, credentials(agent), "unused"), env.Gone(ctx, credentials(agent), "alike")); err != nil {
			t.Errorf("%s has what it does not need: %v", agent, err)
		}
	}

	// What is not for agents is as it was, on no spoke, and in no log.
	log, err := os.ReadFile(principal.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	if env.Get(t, spoke("map-1"), "left-local").GetResourceVersion() != local.GetResourceVersion() {
		t.Error("the spoke's own Application was written")
	}
	if err := env.Gone(ctx, hub(mappedNamespace), "left-local"); err != nil {
		t.Error(err)
	}
	for _, on := range []string{"map-1", "map-2", "mapped-out"} {
		if err := env.Gone(ctx, spoke(on), outside); err != nil {
			t.Error(err)
		}
	}
	for name, app := range untouched {
		namespace, name, _ := strings.Cut(name, "/")
		if now := env.Get(t, hub(namespace), name); now.GetResourceVersion() != app.GetResourceVersion() {
			t.Errorf("%s/%s was written", namespace, name)
		}
		if bytes.Contains(log, []byte(name)) {
			t.Errorf("the principal's log tells of %s", name)
		}
		for _, on := range []string{"map-1", "map-2", namespace} {
			if err := env.Gone(ctx, spoke(on), name); err != nil {
				t.Error(err)
			}
		}
	}
	if err := env.Gone(ctx, w.Hub.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"), ""), "map-1"); err != nil {
		t.Errorf("a namespace was made for an agent that needs none: %v", err)
	}
	t.Run("a hostile agent", func(t *testing.T) { hostileByDestination(t, w, principal) })
}

// hostileByDestination has a registered agent name Applications of others, and of no one,
// where all agents have theirs in the same namespaces. It changes nothing, and is told
// nothing.
func hostileByDestination(t *testing.T, w *env.Bare, principal *harness.Principal) {
	const name = "map-mal"
	ctx := t.Context()
	if _, err := w.Harness.Agentctl(ctx, w.Hub, "agent", "create", name, "--mode", "managed", "--spiffe-id", env.SPIFFEID(name), "--wait", "--namespace", mappedNamespace); err != nil {
		t.Fatal(err)
	}
	others := func(o unstructured.Unstructured) bool { // of other tests, and its own
		return !strings.HasPrefix(o.GetNamespace(), mappedNamespace) || strings.HasSuffix(o.GetName(), name)
	}
	before := env.ResourceVersions(t, w.Hub, others)
	agent, err := identity.ParseAgentName(name)
	if err != nil {
		t.Fatal(err)
	}
	cc, err := grpc.NewClient(principal.Address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{env.HostileLeaf(t, w, env.SPIFFEID(name))}, InsecureSkipVerify: true, // it is the attacker
	})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	connect := func() *env.Attacker {
		t.Helper()
		f, err := streampb.NewStreamClient(cc).Connect(ctx)
		if err == nil {
			err = f.Send(stream.HelloFrame(stream.Hello{Protocol: stream.Protocol, Agent: agent, Mode: stream.Managed, ClusterUID: "none"}))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Recv(); err != nil {
			t.Fatal(err)
		}
		return env.Listen(f)
	}
	for _, victim := range []struct{ where, wire, name string }{
		{mappedNamespace, "", "own"}, {"mapped-team-2", "mapped-team-2", "team"}, {mappedNamespace, "", "left-pushed"}, {"mapped-out", "mapped-out", "left-outside"},
		{mappedNamespace, mappedNamespace, "own"}, // which the wire never calls so
	} {
		uid := string(env.Get(t, w.Hub.Resource(harness.Applications, victim.where), victim.name).GetUID())
		for _, c := range stream.Collections() {
			for _, verb := range []stream.Verb{stream.Apply, stream.Delete} {
				a := connect()
				if err := a.Send(env.BatchOf(env.HostileEvent(c, verb, victim.wire, victim.name, uid))); err != nil {
					t.Fatal(err)
				}
				r, err := a.Answer(t, "x.1")
				switch {
				case c.Source(stream.Managed) != stream.Spoke:
					if status.Code(err) != codes.InvalidArgument {
						t.Errorf("%s of %q %s/%s ends with %v", verb, c, victim.wire, victim.name, err)
					}
				case err != nil || r.GetHeld() != nil:
					t.Errorf("%s of %q %s/%s is answered by %v, %v, want nothing held", verb, c, victim.wire, victim.name, r, err)
				}
				a.Leaks(t)
			}
		}
	}
	env.Unchanged(t, before, env.ResourceVersions(t, w.Hub, others))
}

// TestMappingNamespaces shows the Applications of an autonomous agent in the hub's
// namespaces that its Agent names.
func TestMappingNamespaces(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	r := w.Register(t, "map-3", "autonomous")
	registry := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace)
	if err := w.Spoke.EnsureNamespace(ctx, "map-3-team"); err != nil {
		t.Fatal(err)
	}
	mapping := func(agent string, pairs ...string) {
		t.Helper()
		var namespaces []any
		for i := 0; i < len(pairs); i += 2 {
			namespaces = append(namespaces, map[string]any{"spoke": pairs[i], "hub": pairs[i+1]})
		}
		env.Patch(t, registry, agent, map[string]any{"spec": map[string]any{"mapping": map[string]any{"namespaces": namespaces}}})
	}
	mapping(r.Name, "", "map-3-own", "map-3-team", "map-3-theirs")
	r.Settings = harness.Settings{"mapping.namespaces": []string{"map-3-team"}}
	r.Start(t)
	team := w.Spoke.Resource(harness.Applications, "map-3-team")
	env.Create(t, r.Spoke, r.Application("a"))
	env.Create(t, team, r.Application("a"))
	on := func(namespace string) func() error {
		return func() error {
			return env.FieldIs(ctx, w.Hub.Resource(harness.Applications, namespace), "a", r.Name+"-default", "spec", "project")
		}
	}
	env.Eventually(t, "the mirror of the one in its own namespace", on("map-3-own"))
	env.Eventually(t, "the mirror of the other", on("map-3-theirs"))

	// A person on the hub cannot take one away.
	if err := w.Hub.Resource(harness.Applications, "map-3-theirs").Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "a deleted mirror is made anew", on("map-3-theirs"))

	// Another namespace: what was in the first leaves it.
	mapping(r.Name, "", "map-3-new", "map-3-team", "map-3-theirs")
	env.Eventually(t, "the mirror in the new namespace", on("map-3-new"))
	env.Eventually(t, "none is left in the old one", func() error {
		return env.Gone(ctx, w.Hub.Resource(harness.Applications, "map-3-own"), "a")
	})
	if err := errors.Join(env.Exists(ctx, r.Spoke, "a"), env.Exists(ctx, team, "a")); err != nil {
		t.Errorf("the spoke's own: %v", err)
	}

	// One that another has stays with that one, and the newer says so.
	other := w.Register(t, "map-4", "autonomous")
	mapping(other.Name, "", "map-3-new")
	env.Eventually(t, "the conflict is told", func() error {
		return env.ConditionIs(ctx, registry, other.Name, "Conflict", "NamespaceConflict", "namespace map-3-new belongs to the older Agent map-3")
	})
	other.Start(t)
	env.Create(t, other.Spoke, other.Application("b"))
	env.Eventually(t, "what cannot be shown is parked", func() error {
		text := fmt.Sprint(env.Get(t, registry, other.Name).Object["status"])
		if !strings.Contains(text, "no namespace of the agent's for Applications of its Argo CD's namespace") || !strings.Contains(text, "name:b") {
			return fmt.Errorf("the status is %s", text)
		}
		return nil
	})
	if err := errors.Join(on("map-3-new")(), env.Gone(ctx, w.Hub.Resource(harness.Applications, "map-3-new"), "b")); err != nil {
		t.Error(err)
	}
	mapping(other.Name, "", "map-4")
	env.Eventually(t, "with a namespace of its own it is shown", func() error { return env.Exists(ctx, w.Hub.Resource(harness.Applications, "map-4"), "b") })
}

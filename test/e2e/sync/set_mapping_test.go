//go:build linux

package sync

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// TestSetMapping changes the mapping of a hub that maps by namespace: not while something
// would be lost, and then with one command, which both of its principals follow by themselves:
// the one that has the agent and the one that stands by.
func TestSetMapping(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	const in, agent = "setmap", "setmap-1"
	for _, namespace := range []string{in, "setmap-team", "setmap-left"} {
		if err := w.Hub.EnsureNamespace(ctx, namespace); err != nil {
			t.Fatal(err)
		}
	}
	hub := func(namespace string) dynamic.ResourceInterface {
		return w.Hub.Resource(harness.Applications, namespace)
	}
	spoke := func(namespace string) dynamic.ResourceInterface {
		return w.Spoke.Resource(harness.Applications, namespace)
	}
	// As a hub is that was there before there was a choice.
	before := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argomesh-hub"}, "data": map[string]any{"uid": "the-hub-of-setmap", "default-project": "shared"},
	}}
	if _, err := w.Hub.Resource(env.ConfigMaps, in).Create(ctx, before, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	inForce := func() string {
		mapping, _, _ := unstructured.NestedString(env.Get(t, w.Hub.Resource(env.ConfigMaps, in), "argomesh-hub").Object, "data", "mapping")
		return mapping
	}
	settings := harness.Settings{"mapping.by": "", "mapping.namespaces": []string{"setmap-team"}}
	principal := w.MappedPrincipal(t, in, settings)
	standby := w.MappedPrincipalNamed(t, "principal-standby-"+in, in, maps.Clone(settings))
	follows := func(p *harness.Principal, mapping string) error {
		log, err := os.ReadFile(p.LogFile())
		if err != nil {
			return err
		}
		last := ""
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, `"the identity of the hub is known"`) {
				last = line
			}
		}
		if !strings.Contains(last, fmt.Sprintf(`"mapping":%q`, mapping)) {
			return fmt.Errorf("it does not map by %s: %s", mapping, last)
		}
		return nil
	}
	both := func(mapping string) func() error {
		return func() error { return errors.Join(follows(principal, mapping), follows(standby, mapping)) }
	}
	env.Eventually(t, "both principals map by namespace", both("namespace"))
	w.MappedAgent(t, in, agent, principal, harness.Settings{"mapping.namespaces": []string{"setmap-*"}, "mapping.create_namespaces": true})
	registry := w.Hub.Resource(env.Agents, in)
	env.Patch(t, registry, agent, map[string]any{"spec": map[string]any{"mapping": map[string]any{"namespaces": []any{
		map[string]any{"hub": "setmap-team"}, map[string]any{"spoke": "setmap-left", "hub": "setmap-left"},
	}}}})
	application := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"project": "default", "destination": map[string]any{"name": agent, "namespace": "default"},
				"source": map[string]any{"repoURL": "https://git.example.com/r.git", "path": ".", "targetRevision": "1"},
			},
		}}
	}
	env.Create(t, hub("setmap-team"), application("web"))
	env.Create(t, hub("setmap-left"), application("left"))
	env.Eventually(t, "both are on the spoke", func() error {
		return errors.Join(env.Exists(ctx, spoke(agent), "web"), env.Exists(ctx, spoke("setmap-left"), "left"))
	})

	file := filepath.Join(t.TempDir(), "principal.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("namespace: %s\nmapping: {namespaces: [setmap-team]}\n", in)), 0o600); err != nil {
		t.Fatal(err)
	}
	set := func(args ...string) (string, error) {
		return w.Harness.Agentctl(ctx, w.Hub, append([]string{"--namespace", in, "hub", "set-mapping", "destination", "--principal-config", file}, args...)...)
	}
	refused := func(says []string, args ...string) {
		t.Helper()
		out, err := set(args...)
		if err == nil {
			t.Fatalf("agentctl hub set-mapping %q does not fail: %s", args, out)
		}
		for _, text := range says {
			if !strings.Contains(out+err.Error(), text) {
				t.Errorf("agentctl hub set-mapping %q: %s%v, want %q", args, out, err, text)
			}
		}
		if got := inForce(); got != "namespace" {
			t.Fatalf("the hub maps by %s", got)
		}
	}
	refused([]string{
		"setmap-left/left", "no agent takes it: its destination is agent setmap-1, and namespace setmap-left is none where Applications of agents may be",
		"map by destination: 1 Application would be lost to its agent",
	}, "--yes")

	// The cure, to the letter: it is created where one may be.
	if err := hub("setmap-left").Delete(ctx, "left", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Create(t, hub(in), application("left"))
	env.Eventually(t, "the first left is gone", func() error {
		return errors.Join(env.Gone(ctx, hub("setmap-left"), "left"), env.Gone(ctx, spoke("setmap-left"), "left"))
	})
	refused([]string{"there is no terminal to ask on: say --yes"})
	out, err := set("--dry-run")
	if err != nil || inForce() != "namespace" {
		t.Fatalf("a dry run: %v, by %s", err, inForce())
	}
	for _, text := range []string{
		"setmap-team/web", "agent setmap-1, namespace of Argo CD", "agent setmap-1, namespace setmap-team", "the agent gets it and deploys it",
		"By destination 2 Applications of managed agents would move, and 0 would stay where they are.",
		"Agent setmap-1 has to admit them on its spoke: mapping.namespaces with setmap-team",
	} {
		if !strings.Contains(out, text) {
			t.Errorf("a dry run says %s, want %q", out, text)
		}
	}
	if out, err := set("--yes"); err != nil || inForce() != "destination" {
		t.Fatalf("%v, by %s: %s", err, inForce(), out)
	}
	env.Eventually(t, "both principals map by destination", both("destination"))
	env.Eventually(t, "each is where its destination says", func() error {
		return errors.Join(env.Exists(ctx, spoke("setmap-team"), "web"), env.Exists(ctx, spoke(agent), "left"), env.Gone(ctx, spoke(agent), "web"))
	})
	env.Eventually(t, "what nobody reads any more is told", func() error {
		return env.ConditionIs(ctx, registry, agent, "MappingIgnored", "NamespacesUnread", "spec.mapping.namespaces is not read")
	})
	if out, err := set("--yes"); err != nil {
		t.Errorf("once more: %v, %s", err, out)
	}
}

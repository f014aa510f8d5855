//go:build linux

package sync

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// agentctl runs the program against the hub. An exit code of 1 is an error.
func agentctl(t *testing.T, w *env.Argo, args ...string) (string, error) {
	t.Helper()
	path, err := w.Harness.Binary("agentctl")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig", w.Hub.Kubeconfig}, args...)...).CombinedOutput()
	return string(out), err
}

// writtenForArgoCDAgent is an Application as the documentation of argocd-agent has it.
func writtenForArgoCDAgent(w *env.Argo, name, server string) *unstructured.Unstructured {
	app := w.Idle(name, env.Managed, env.Managed)
	app.Object["spec"].(map[string]any)["destination"] = map[string]any{"server": server, "namespace": name}
	return app
}

// TestWrittenForArgoCDAgent: what was written for argocd-agent is told with the patch that
// mends it, and agentctl writes it.
func TestWrittenForArgoCDAgent(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedArgo(t), t.Context()
	const hubs = "https://kubernetes.default.svc"
	query := "https://argocd-agent-resource-proxy:9090?agentName=" + env.Managed
	for name, server := range map[string]string{"by-patch": query, "by-command": query, "in-hub": hubs} {
		env.Create(t, w.OnHub(env.Managed), writtenForArgoCDAgent(w, name, server))
	}
	set := env.Create(t, w.Hub.Resource(applicationSets, env.Managed), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": map[string]any{"name": "nobody", "namespace": env.Managed},
		"spec": map[string]any{"generators": []any{}, "template": map[string]any{
			"metadata": map[string]any{"name": "none"}, "spec": writtenForArgoCDAgent(w, "none", query).Object["spec"],
		}},
	}})
	made := writtenForArgoCDAgent(w, "by-set", query)
	made.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "argoproj.io/v1alpha1", Kind: "ApplicationSet", Name: set.GetName(), UID: set.GetUID()}})
	env.Create(t, w.OnHub(env.Managed), made)

	// The patch of the condition is what a person would paste.
	var patched map[string]any
	env.Eventually(t, "the condition has the patch", func() error {
		o, err := w.OnHub(env.Managed).Get(ctx, "by-patch", metav1.GetOptions{})
		if err != nil {
			return err
		}
		text := fmt.Sprint(o.Object["status"])
		command := regexp.MustCompile(`kubectl -n (\S+) patch applications.argoproj.io (\S+) --type merge -p '([^']*)'`).FindStringSubmatch(text)
		if len(command) != 4 || command[1] != env.Managed || command[2] != "by-patch" {
			return fmt.Errorf("status is %s", text)
		}
		return json.Unmarshal([]byte(command[3]), &patched)
	})
	env.Patch(t, w.OnHub(env.Managed), "by-patch", patched)
	arrived := func(name string) func() error {
		return func() error {
			return env.FieldIs(ctx, w.OnSpoke(env.Managed), name, "in-cluster", "spec", "destination", "name")
		}
	}
	env.Eventually(t, "it is sent", arrived("by-patch"))
	env.Eventually(t, "the condition is gone", func() error {
		if ReportedIs(t, w, "by-patch", "") == nil {
			return fmt.Errorf("it is still there")
		}
		return nil
	})

	for _, name := range []string{"by-command", "in-hub", "by-set"} {
		env.Eventually(t, "it is told", func() error { return ReportedIs(t, w, name, "agentctl agent rewrite-destinations "+env.Managed) })
	}
	out, err := agentctl(t, w, "agent", "rewrite-destinations", env.Managed, "--dry-run")
	if err != nil || !strings.Contains(out, "by-command") || !strings.Contains(out, "would be rewritten") {
		t.Errorf("a dry run says %s, %v", out, err)
	}
	if err := env.FieldIs(ctx, w.OnHub(env.Managed), "by-command", query, "spec", "destination", "server"); err != nil {
		t.Errorf("after a dry run: %v", err)
	}
	out, err = agentctl(t, w, "agent", "rewrite-destinations", env.Managed, "--yes")
	if err == nil || !strings.Contains(out, "say --hub-has-no-controller") || !strings.Contains(out, "ApplicationSet nobody makes it") {
		t.Errorf("what is left is no error: %s, %v", out, err)
	}
	env.Eventually(t, "what was rewritten is sent", arrived("by-command"))
	for name, server := range map[string]string{"in-hub": hubs, "by-set": query} {
		if err := env.FieldIs(ctx, w.OnHub(env.Managed), name, server, "spec", "destination", "server"); err != nil {
			t.Errorf("what is to be left was written: %v", err)
		}
		if err := env.Gone(ctx, w.OnSpoke(env.Managed), name); err != nil {
			t.Error(err)
		}
	}
	if out, err = agentctl(t, w, "agent", "rewrite-destinations", env.Managed, "--yes", "--hub-has-no-controller"); err == nil {
		t.Errorf("the one of the ApplicationSet is left, and it says %s", out)
	}
	env.Eventually(t, "a hub without a controller lets go of it", arrived("in-hub"))
}

// TestProjectRoles: the roles of a spoke's AppProject are on its mirror while the Agent
// says so, and what cannot be is named.
func TestProjectRoles(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnArgo(t), t.Context()
	projects := harness.AppProjects
	onSpoke, onHub := w.Edge2.Resource(projects, harness.ArgoCDNamespace), w.Hub.Resource(projects, harness.ArgoCDNamespace)
	agents := w.Hub.Resource(schema.GroupVersionResource{Group: "argomesh.io", Version: "v1alpha1", Resource: "agents"}, harness.ArgoCDNamespace)
	mirror := env.Autonomous + "-roles"
	env.Create(t, onSpoke, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": "roles", "namespace": harness.ArgoCDNamespace},
		"spec": map[string]any{
			"sourceRepos": []any{"*"}, "destinations": []any{map[string]any{"server": "*", "namespace": "*"}},
			"roles": []any{
				map[string]any{"name": "dev", "policies": []any{"p, proj:roles:dev, applications, sync, roles/*, allow"}, "groups": []any{"devs"}, "jwtTokens": []any{map[string]any{"iat": int64(1)}}},
				map[string]any{"name": "ops", "policies": []any{"p, proj:roles:ops, clusters, get, roles/*, allow"}},
			},
		},
	}})
	roles := func(want string) func() error {
		return func() error {
			o, err := onHub.Get(ctx, mirror, metav1.GetOptions{})
			if err != nil {
				return err
			}
			list, _, _ := unstructured.NestedSlice(o.Object, "spec", "roles")
			raw, err := json.Marshal(list)
			if err != nil {
				return err
			}
			if string(raw) != want {
				return fmt.Errorf("roles are %s, want %s", raw, want)
			}
			return nil
		}
	}
	parked := func() error {
		a, err := agents.Get(ctx, env.Autonomous, metav1.GetOptions{})
		if err != nil {
			return err
		}
		list, _, _ := unstructured.NestedSlice(a.Object, "status", "parked")
		if text := fmt.Sprint(list); !strings.Contains(text, "its mirror "+mirror+" is without role") {
			return fmt.Errorf("parked is %s", text)
		}
		return nil
	}
	mapped := fmt.Sprintf(`[{"groups":["devs"],"name":"dev","policies":["p, proj:%[1]s:dev, applications, sync, %[1]s/%[2]s/*, allow"]}]`, mirror, env.Autonomous)
	env.Eventually(t, "the mirror comes, without roles", roles("null"))
	env.Patch(t, agents, env.Autonomous, map[string]any{"spec": map[string]any{"projectRoles": "mirror"}})
	env.Eventually(t, "it has those that it may", roles(mapped))
	env.Eventually(t, "the other is named", parked)
	env.Patch(t, onHub, mirror, map[string]any{"spec": map[string]any{"roles": []any{map[string]any{"name": "hub"}}}})
	env.Eventually(t, "what somebody writes on the hub is undone", roles(mapped))
	env.Patch(t, agents, env.Autonomous, map[string]any{"spec": map[string]any{"projectRoles": "ignore"}})
	env.Eventually(t, "they go with the permission", roles("null"))
	env.Eventually(t, "nothing is named any more", func() error {
		if parked() == nil {
			return fmt.Errorf("it is still named")
		}
		return nil
	})
}

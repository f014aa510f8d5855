//go:build linux

package sync

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// TestPolicyBecomesNarrower: a project that admits cluster-scoped kinds and other
// namespaces is on the spoke when its owner bounds namespaces. It keeps what the policy
// admits, although the hub changes nothing, and the hub says what it lacks; another one
// like it is refused. When the policy is wide again it is whole again.
func TestPolicyBecomesNarrower(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	r := w.Register(t, "narrowing", "managed")
	r.Settings = harness.Settings{"policy.destination_namespaces": []string{"*"}}
	r.Start(t)
	hubProjects := w.HubProjects()
	t.Cleanup(func() {
		for _, name := range []string{"narrow-there", "narrow-new"} {
			_ = hubProjects.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) // it may have gone
		}
	})
	put := func(name string) {
		project := projectFor(name, r.Name)
		spec := project.Object["spec"].(map[string]any)
		spec["destinations"] = []any{map[string]any{"name": r.Name, "namespace": "web"}, map[string]any{"name": r.Name, "namespace": "kube-system"}}
		spec["clusterResourceWhitelist"] = []any{map[string]any{"group": "*", "kind": "*"}}
		env.Create(t, hubProjects, project)
	}
	put("narrow-there")
	env.Eventually(t, "the project arrives", func() error { return env.Exists(ctx, r.Projects(), "narrow-there") })
	whole := env.Get(t, r.Projects(), "narrow-there").Object["spec"]
	restart := func(from, to string) {
		t.Helper()
		content, err := os.ReadFile(r.Agent.ConfigFile)
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(content), from, to, 1)
		if changed == string(content) {
			t.Fatalf("the configuration has no %q:\n%s", from, content)
		}
		if err := errors.Join(r.Agent.Stop(ctx), os.WriteFile(r.Agent.ConfigFile, []byte(changed), 0o600), r.Agent.Start(ctx)); err != nil {
			t.Fatal(err)
		}
	}

	content, err := os.ReadFile(r.Agent.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	planned := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(planned, []byte(strings.Replace(string(content), "- '*'\n", "- web\n", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	// It has no identity to look at here, and says so.
	out, _ := w.Harness.Agentctl(ctx, w.Spoke, "identity", "doctor", "--agent-config", planned, "--socket", "unix://"+filepath.Join(t.TempDir(), "none.sock"), "--timeout", "1s")
	if want := "AppProject " + r.Namespace + "/narrow-there is left without spec.clusterResourceWhitelist[0], spec.destinations[1]: policy.cluster_resources"; !strings.Contains(out, want) {
		t.Errorf("doctor does not say what will be cut:\n%s", out)
	}

	r.Network.Sever() // the hub has no part in it
	restart("- '*'\n", "- web\n")
	env.Eventually(t, "it keeps what the policy admits", func() error {
		return errors.Join(
			env.FieldIs(ctx, r.Projects(), "narrow-there", nil, "spec", "clusterResourceWhitelist"),
			env.FieldIs(ctx, r.Projects(), "narrow-there", []any{map[string]any{"name": "in-cluster", "server": "https://kubernetes.default.svc", "namespace": "web"}}, "spec", "destinations"),
		)
	})
	r.Network.Mend()
	env.Eventually(t, "the Agent names what it lacks", func() error {
		return env.FieldIs(ctx, w.Hub.Resource(env.Agents, harness.ArgoCDNamespace), r.Name, []any{map[string]any{
			"kind": "AppProject", "namespace": harness.ArgoCDNamespace, "name": "narrow-there",
			"paths": []any{"spec.clusterResourceWhitelist[0]", "spec.destinations[1]"},
		}}, "status", "shortened")
	})
	put("narrow-new")
	env.Eventually(t, "a new one is refused", func() error {
		return r.Parked(ctx, "narrow-new", `policy.cluster_resources of the spoke does not allow cluster resource "*/*" of the project`)
	})
	if err := env.Gone(ctx, r.Projects(), "narrow-new"); err != nil {
		t.Error(err)
	}

	restart("- web\n", "- '*'\n")
	env.Eventually(t, "under the wide policy it is whole", func() error { return env.FieldIs(ctx, r.Projects(), "narrow-there", whole, "spec") })
	env.Eventually(t, "the Agent names nothing", func() error {
		return env.FieldIs(ctx, w.Hub.Resource(env.Agents, harness.ArgoCDNamespace), r.Name, nil, "status", "shortened")
	})
}

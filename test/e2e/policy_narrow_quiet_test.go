//go:build linux

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/test/harness"
)

// TestPolicyBecomesNarrower: a project that admits cluster-scoped kinds and other
// namespaces is on the spoke when its owner bounds namespaces. It keeps what the policy
// admits, although the hub changes nothing, and the hub says what it lacks; another one
// like it is refused. When the policy is wide again it is whole again.
func TestPolicyBecomesNarrower(t *testing.T) {
	t.Parallel()
	w, ctx := theQuietWorld(t), t.Context()
	r := w.register(t, "narrowing", "managed")
	r.settings = harness.Settings{"policy.destination_namespaces": []string{"*"}}
	r.start(t)
	hubProjects := w.hubProjects()
	t.Cleanup(func() {
		for _, name := range []string{"narrow-there", "narrow-new"} {
			_ = hubProjects.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) // it may have gone
		}
	})
	put := func(name string) {
		project := projectFor(name, r.name)
		spec := project.Object["spec"].(map[string]any)
		spec["destinations"] = []any{map[string]any{"name": r.name, "namespace": "web"}, map[string]any{"name": r.name, "namespace": "kube-system"}}
		spec["clusterResourceWhitelist"] = []any{map[string]any{"group": "*", "kind": "*"}}
		create(t, hubProjects, project)
	}
	put("narrow-there")
	eventually(t, "the project arrives", func() error { return there(ctx, r.projects(), "narrow-there") })
	whole := get(t, r.projects(), "narrow-there").Object["spec"]
	restart := func(from, to string) {
		t.Helper()
		content, err := os.ReadFile(r.agent.ConfigFile)
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(content), from, to, 1)
		if changed == string(content) {
			t.Fatalf("the configuration has no %q:\n%s", from, content)
		}
		if err := errors.Join(r.agent.Stop(ctx), os.WriteFile(r.agent.ConfigFile, []byte(changed), 0o600), r.agent.Start(ctx)); err != nil {
			t.Fatal(err)
		}
	}

	content, err := os.ReadFile(r.agent.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	planned := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(planned, []byte(strings.Replace(string(content), "- '*'\n", "- web\n", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	// It has no identity to look at here, and says so.
	out, _ := w.h.Agentctl(ctx, w.spoke, "identity", "doctor", "--agent-config", planned, "--socket", "unix://"+filepath.Join(t.TempDir(), "none.sock"), "--timeout", "1s")
	if want := "AppProject " + r.namespace + "/narrow-there is left without spec.clusterResourceWhitelist[0], spec.destinations[1]: policy.cluster_resources"; !strings.Contains(out, want) {
		t.Errorf("doctor does not say what will be cut:\n%s", out)
	}

	r.network.Sever() // the hub has no part in it
	restart("- '*'\n", "- web\n")
	eventually(t, "it keeps what the policy admits", func() error {
		return errors.Join(
			field(ctx, r.projects(), "narrow-there", nil, "spec", "clusterResourceWhitelist"),
			field(ctx, r.projects(), "narrow-there", []any{map[string]any{"name": "in-cluster", "server": "https://kubernetes.default.svc", "namespace": "web"}}, "spec", "destinations"),
		)
	})
	r.network.Mend()
	eventually(t, "the Agent names what it lacks", func() error {
		return field(ctx, w.hub.Resource(agents, harness.ArgoCDNamespace), r.name, []any{map[string]any{
			"kind": "AppProject", "namespace": harness.ArgoCDNamespace, "name": "narrow-there",
			"paths": []any{"spec.clusterResourceWhitelist[0]", "spec.destinations[1]"},
		}}, "status", "shortened")
	})
	put("narrow-new")
	eventually(t, "a new one is refused", func() error {
		return r.parked(ctx, "narrow-new", `policy.cluster_resources of the spoke does not allow cluster resource "*/*" of the project`)
	})
	if err := gone(ctx, r.projects(), "narrow-new"); err != nil {
		t.Error(err)
	}

	restart("- web\n", "- '*'\n")
	eventually(t, "under the wide policy it is whole", func() error { return field(ctx, r.projects(), "narrow-there", whole, "spec") })
	eventually(t, "the Agent names nothing", func() error {
		return field(ctx, w.hub.Resource(agents, harness.ArgoCDNamespace), r.name, nil, "status", "shortened")
	})
}

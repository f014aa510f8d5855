//go:build linux

package sync

import (
	"errors"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// TestOperationsFromBefore upgrades a managed agent whose owner wrote his list of
// operations before there was override: it goes on counting as with it, until he changes
// the list.
func TestOperationsFromBefore(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	r := w.Register(t, "before-override", "managed")
	r.Settings = harness.Settings{"policy.operations": []string{"sync"}}
	memory := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argomesh-agent"}, "data": map[string]any{"former": "[]"},
	}}
	if _, err := w.Spoke.Resource(env.ConfigMaps, r.Namespace).Create(ctx, memory, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.Start(t)
	env.Create(t, r.Hub, r.Application("shop"))
	env.Eventually(t, "the Application arrives", func() error { return env.Exists(ctx, r.Spoke, "shop") })
	brings := map[string]any{"operation": map[string]any{"sync": map[string]any{"manifests": []any{"{}"}}}}
	env.Patch(t, r.Hub, "shop", brings)
	env.Eventually(t, "an operation with manifests arrives", func() error {
		return env.FieldIs(ctx, r.Spoke, "shop", []any{"{}"}, "operation", "sync", "manifests")
	})

	if err := r.Agent.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(r.Agent.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(content), "- sync\n", "- sync\n  - refresh\n", 1)
	if err := errors.Join(os.WriteFile(r.Agent.ConfigFile, []byte(changed), 0o600), r.Agent.Start(ctx)); err != nil {
		t.Fatal(err)
	}
	env.Create(t, r.Hub, r.Application("cart"))
	env.Eventually(t, "another Application arrives", func() error { return env.Exists(ctx, r.Spoke, "cart") })
	env.Patch(t, r.Hub, "cart", brings)
	env.Eventually(t, "an operation with manifests is refused", func() error {
		return errors.Join(
			env.FieldIs(ctx, r.Hub, "cart", "not run by agent "+r.Name+": policy.operations of the spoke does not allow override, and the operation has manifests of its own",
				"status", "operationState", "message"),
			env.FieldIs(ctx, r.Spoke, "cart", nil, "operation"),
		)
	})
}

//go:build linux

package e2e

import (
	"errors"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/harness"
)

// TestOperationsFromBefore upgrades a managed agent whose owner wrote his list of
// operations before there was override: it goes on counting as with it, until he changes
// the list.
func TestOperationsFromBefore(t *testing.T) {
	t.Parallel()
	w, ctx := theQuietWorld(t), t.Context()
	r := w.register(t, "before-override", "managed")
	r.settings = harness.Settings{"policy.operations": []string{"sync"}}
	memory := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argomesh-agent"}, "data": map[string]any{"former": "[]"},
	}}
	if _, err := w.spoke.Resource(configMaps, r.namespace).Create(ctx, memory, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.start(t)
	create(t, r.hub, r.application("shop"))
	eventually(t, "the Application arrives", func() error { return there(ctx, r.spoke, "shop") })
	brings := map[string]any{"operation": map[string]any{"sync": map[string]any{"manifests": []any{"{}"}}}}
	patch(t, r.hub, "shop", brings)
	eventually(t, "an operation with manifests arrives", func() error {
		return field(ctx, r.spoke, "shop", []any{"{}"}, "operation", "sync", "manifests")
	})

	if err := r.agent.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(r.agent.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(content), "- sync\n", "- sync\n  - refresh\n", 1)
	if err := errors.Join(os.WriteFile(r.agent.ConfigFile, []byte(changed), 0o600), r.agent.Start(ctx)); err != nil {
		t.Fatal(err)
	}
	create(t, r.hub, r.application("cart"))
	eventually(t, "another Application arrives", func() error { return there(ctx, r.spoke, "cart") })
	patch(t, r.hub, "cart", brings)
	eventually(t, "an operation with manifests is refused", func() error {
		return errors.Join(
			field(ctx, r.hub, "cart", "not run by agent "+r.name+": policy.operations of the spoke does not allow override, and the operation has manifests of its own",
				"status", "operationState", "message"),
			field(ctx, r.spoke, "cart", nil, "operation"),
		)
	})
}

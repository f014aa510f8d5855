//go:build linux

package harness_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// A control plane that begins with what another made of the same definitions serves them, and is
// another cluster.
func TestSeeds(t *testing.T) {
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver")
	h := harnesstest.New(t)
	ctx := t.Context()
	// A definition that no other test has, so that the first control plane makes the seed.
	group := strings.ToLower(rand.Text()) + ".example.com"
	definition := filepath.Join(t.TempDir(), "crd.yaml")
	if err := os.WriteFile(definition, []byte(`kind: CustomResourceDefinition
apiVersion: apiextensions.k8s.io/v1
metadata: {name: seeds.`+group+`}
spec:
  group: `+group+`
  names: {kind: Seed, plural: seeds}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(h *harness.Harness, name string, etcd *harness.Etcd) *harness.ControlPlane {
		c, err := h.StartControlPlane(ctx, harness.ControlPlaneConfig{Name: name, Etcd: etcd, Manifests: []string{definition}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	uid := func(c *harness.ControlPlane, of schema.GroupVersionResource, name string) types.UID {
		o, err := c.Resource(of, "").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return o.GetUID()
	}
	first, second := start(h, "first", nil), start(h, "second", nil)
	if a, b := uid(first, definitions, "seeds."+group), uid(second, definitions, "seeds."+group); a != b {
		t.Errorf("the definition was made again: %s and %s", a, b)
	}
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if a, b := uid(first, namespaces, "kube-system"), uid(second, namespaces, "kube-system"); a == b {
		t.Errorf("both clusters have the UID %s", a)
	}
	seeds := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "seeds"}
	for _, c := range []*harness.ControlPlane{first, second} {
		if _, err := c.Resource(seeds, "default").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v1", "kind": "Seed", "metadata": map[string]any{"name": "one"},
		}}, metav1.CreateOptions{}); err != nil {
			t.Errorf("%s does not serve the definition: %v", c.Name, err)
		}
	}
	// The data of a control plane that has some is left alone.
	if err := second.Resource(definitions, "").Delete(ctx, "seeds."+group, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := second.Server.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	again := start(harnesstest.New(t), "second", second.Etcd)
	if before, after := uid(first, definitions, "seeds."+group), uid(again, definitions, "seeds."+group); before == after {
		t.Error("what was deleted came back as it was")
	}
	// Nor does it become the seed of others.
	if first, third := uid(first, definitions, "seeds."+group), uid(start(h, "third", nil), definitions, "seeds."+group); first != third {
		t.Error("a control plane that had data of its own gave its definitions to another")
	}
}

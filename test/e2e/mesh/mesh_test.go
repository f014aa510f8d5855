//go:build linux

package mesh

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/argomesh/argomesh/mesh/istio"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// A real API server with Istio's own definitions takes everything that the golden files
// of mesh/istio show, without an unknown field, and refuses what has one.
func TestMeshObjectsAreTakenByTheAPI(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver")
	h := harnesstest.New(t)
	hub, err := h.StartControlPlane(t.Context(), harness.ControlPlaneConfig{Name: "hub", Manifests: []string{env.IstioCRDs(t)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"argocd", "istio-ingress"} {
		if err := hub.EnsureNamespace(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
	}
	dryRun := func(object *unstructured.Unstructured) error {
		_, err := hub.Resource(istio.Kinds()[object.GetKind()], object.GetNamespace()).Create(t.Context(), object, metav1.CreateOptions{
			DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
		})
		return err
	}
	kinds := map[string]bool{}
	for _, file := range meshGolden(t) {
		for _, object := range objectsOf(t, file) {
			kinds[object.GetKind()] = true
			if err := dryRun(object); err != nil {
				t.Errorf("%s: %s %s: %v", filepath.Base(file), object.GetKind(), object.GetName(), err)
			}
			if err := unstructured.SetNestedField(object.Object, "x", "spec", "unknown"); err != nil {
				t.Fatal(err)
			}
			if err := dryRun(object); err == nil || !strings.Contains(err.Error(), "unknown") {
				t.Errorf("%s: %s %s with an unknown field: %v", filepath.Base(file), object.GetKind(), object.GetName(), err)
			}
		}
	}
	for kind := range istio.Kinds() {
		if !kinds[kind] {
			t.Errorf("no golden file has a %s", kind)
		}
	}
}

// meshGoldenDir has what mesh/istio renders.
var meshGoldenDir = filepath.Join("..", "..", "..", "mesh", "istio", "testdata")

func meshGolden(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(meshGoldenDir, "*.out.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	return files
}

// objectsOf returns the objects of a file.
func objectsOf(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(object.Object) > 0 {
			out = append(out, object)
		}
	}
}

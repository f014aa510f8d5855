//go:build linux && cluster

package cluster

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// spireNamespace is where "--with spire" brings SPIRE.
const spireNamespace = "spire-system"

// spirePrograms are those of SPIRE's pods, by the names of their images, with the line with which each begins.
func spirePrograms() map[string][]string {
	return map[string][]string{
		"spire-server":             {"/opt/spire/bin/spire-server", "run"},
		"spire-agent":              {"/opt/spire/bin/spire-agent", "run"},
		"spire-controller-manager": {"/spire-controller-manager"},
		"spiffe-csi-driver":        {"/spiffe-csi-driver"},
		"registrar":                {"/csi-node-driver-registrar"}, // ours, in place of Kubernetes CSI's
	}
}

// makeSPIREImages makes images of programs of this machine that have the entry points of the published ones.
func (w *clusterEnv) makeSPIREImages(t *testing.T) {
	t.Helper()
	for name, line := range spirePrograms() {
		path := w.h.Path(name)
		if name != "registrar" {
			var err error
			if path, err = w.h.Tools().Path(name); err != nil {
				t.Fatal(err)
			}
		}
		c := newContent()
		c.add(t, path, line[0])
		w.push(t, registry+"/"+name+":1", c.image(t, "", line...))
	}
}

// spireValues writes values of the chart argomesh-spire for a node. There is no storage that outlives a pod.
func (n *node) spireValues(t *testing.T, bundleEndpoint map[string]any) string {
	t.Helper()
	image := func(name string) map[string]any {
		return map[string]any{"repository": registry + "/" + name, "tag": "1"}
	}
	return n.write(t, "argomesh-spire.yaml", map[string]any{
		"kubeletPath": filepath.Clean(n.root()),
		"server": map[string]any{
			"image": image("spire-server"), "storage": map[string]any{"size": ""}, "bundleEndpoint": bundleEndpoint,
		},
		"controllerManager": map[string]any{"image": image("spire-controller-manager")},
		"agent":             map[string]any{"image": image("spire-agent")},
		"csiDriver":         map[string]any{"image": image("spiffe-csi-driver"), "registrarImage": image("registrar")},
	})
}

// testDrivers waits until kubelet says that the CSI driver is registered.
func (w *clusterEnv) testDrivers(t *testing.T) {
	for _, n := range []*node{w.hub, w.spoke} {
		harnesstest.Eventually(t, patience, "the CSI driver of "+n.name, func() error {
			is, err := n.client.StorageV1().CSINodes().Get(t.Context(), n.name, metav1.GetOptions{})
			if err == nil && !slices.ContainsFunc(is.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == "csi.spiffe.io" }) {
				err = fmt.Errorf("kubelet knows %v", is.Spec.Drivers)
			}
			return err
		})
	}
}

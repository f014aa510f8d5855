//go:build linux

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// bindings are those of admission policies.
var bindings = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"}

// When helm uninstalls the chart, mirrors are anybody's to delete before the principal loses its
// account or its rights: an uninstall that stops half-way leaves no mirrors that no one can delete.
// helm alone knows of this step, so that what renders the chart elsewhere, such as Argo CD, has
// each object once.
func TestUninstallFreesMirrorsFirst(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm", "etcd", "kube-apiserver")
	h := harnesstest.New(t)
	ctx := t.Context()
	hub, err := env.StartBareControlPlane(ctx, h, "hub", nil)
	if err != nil {
		t.Fatal(err)
	}
	const name = charts.Principal + "-mirrors." + harness.ArgoCDNamespace
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte("crds: {install: false}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := charts.Helm(t, append(args, "--namespace", harness.ArgoCDNamespace, "--kubeconfig", hub.Kubeconfig)...); err != nil {
			t.Fatalf("helm %s: %v %s", args[0], err, out)
		}
	}
	run("install", "argomesh", charts.Dir(t, charts.Principal), "--values", values)
	run("upgrade", "argomesh", charts.Dir(t, charts.Principal), "--values", values)
	binding := env.Get(t, hub.Resource(bindings, ""), name)
	if err := env.FieldIs(ctx, hub.Resource(bindings, ""), name, "argomesh-hub", "spec", "paramRef", "name"); err != nil {
		t.Errorf("the binding that is installed: %v", err)
	}

	others := map[string]schema.GroupVersionResource{
		"the Deployment":  appsv1.SchemeGroupVersion.WithResource("deployments"),
		"the ClusterRole": rbacv1.SchemeGroupVersion.WithResource("clusterroles"),
		"the policy":      {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	}
	ends := map[string]func() (string, error){"the binding": deletion(t, hub, bindings, "", name, binding.GetResourceVersion())}
	for what, resource := range others {
		namespace, of := "", name
		if what == "the Deployment" {
			namespace, of = harness.ArgoCDNamespace, charts.Principal
		}
		if what == "the ClusterRole" {
			of = charts.FindKind(t, charts.Render(t, charts.Principal, ""), "ClusterRole").GetName()
		}
		ends[what] = deletion(t, hub, resource, namespace, of, env.Get(t, hub.Resource(resource, namespace), of).GetResourceVersion())
	}
	run("uninstall", "argomesh")
	when := map[string]int64{}
	for what, end := range ends {
		version, err := end()
		if err == nil {
			when[what], err = strconv.ParseInt(version, 10, 64) // all are in one etcd
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for what := range others {
		if when["the binding"] >= when[what] {
			t.Errorf("the binding ends at %d, after %s, at %d", when["the binding"], what, when[what])
		}
	}
	if err := env.Gone(ctx, hub.Resource(bindings, ""), name); err != nil {
		t.Errorf("helm leaves the binding: %v", err)
	}
}

// deletion watches an object of a version, and returns a function that waits for its deletion and
// returns at which version of the store it was.
func deletion(t *testing.T, at *harness.ControlPlane, resource schema.GroupVersionResource, namespace, name, version string) func() (string, error) {
	t.Helper()
	w, err := at.Resource(resource, namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return func() (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
		defer cancel()
		for {
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case event, open := <-w.ResultChan():
				if !open {
					return "", errors.New("the watch ended")
				}
				if event.Type == watch.Error {
					return "", fmt.Errorf("the watch ended: %v", event.Object)
				}
				if event.Type != watch.Deleted {
					continue
				}
				o, err := meta.Accessor(event.Object)
				if err != nil {
					return "", err
				}
				return o.GetResourceVersion(), nil
			}
		}
	}
}

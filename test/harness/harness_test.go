//go:build linux

package harness_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// Clients keep their address and find their objects again after a stop and after a
// kill of the API server.
func TestControlPlaneRestarts(t *testing.T) {
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver")
	h := harnesstest.New(t)
	ctx := t.Context()
	etcd, err := h.StartEtcd(ctx, "etcd")
	if err != nil {
		t.Fatal(err)
	}
	// Two in one etcd do not see each other.
	var planes [2]*harness.ControlPlane
	g, gctx := errgroup.WithContext(ctx)
	for i, name := range []string{"hub", "spoke"} {
		g.Go(func() (err error) {
			planes[i], err = h.StartControlPlane(gctx, harness.ControlPlaneConfig{Name: name, Etcd: etcd})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	hub, spoke := planes[0], planes[1]
	if err := h.CheckLoopback(); err != nil {
		t.Error(err)
	}
	if err := hub.EnsureNamespace(ctx, "kept"); err != nil {
		t.Fatal(err)
	}
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if _, err := spoke.Resource(namespaces, "").Get(ctx, "kept", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the spoke sees a namespace of the hub: %v", err)
	}
	// An open watch must not hold up the stop.
	watch, err := hub.Resource(namespaces, "").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for name, end := range map[string]func() error{
		"stop": func() error { return hub.Server.Stop(ctx) },
		"kill": hub.Server.Kill,
	} {
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := hub.Resource(namespaces, "").Get(ctx, "kept", metav1.GetOptions{}); err == nil {
			t.Errorf("%s: the API server still answers", name)
		}
		if err := hub.Server.Start(ctx); err != nil {
			t.Fatalf("start after %s: %v", name, err)
		}
		if _, err := hub.Resource(namespaces, "").Get(ctx, "kept", metav1.GetOptions{}); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
}

// A restored control plane has forgotten what came after the snapshot, at its old
// address, and its revisions go back or leap ahead.
func TestControlPlaneRestored(t *testing.T) {
	harnesstest.SkipMissing(t, "etcd", "etcdctl", "etcdutl", "kube-apiserver")
	h := harnesstest.New(t)
	ctx := t.Context()
	cp, err := h.StartControlPlane(ctx, harness.ControlPlaneConfig{Name: "restored"})
	if err != nil {
		t.Fatal(err)
	}
	namespaces := cp.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "")
	if err := cp.EnsureNamespace(ctx, "before"); err != nil {
		t.Fatal(err)
	}
	snapshot := h.Path("snapshot.db")
	if err := cp.Etcd.Snapshot(ctx, snapshot); err != nil {
		t.Fatal(err)
	}
	for _, bump := range []uint64{0, 1_000_000} {
		// More than a starting API server writes by itself.
		const writes = 100
		for i := range writes {
			if err := cp.EnsureNamespace(ctx, fmt.Sprintf("after-%d-%d", bump, i)); err != nil {
				t.Fatal(err)
			}
		}
		after := fmt.Sprintf("after-%d-%d", bump, writes-1)
		newest, err := namespaces.Get(ctx, after, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := cp.Restore(ctx, snapshot, bump); err != nil {
			t.Fatal(err)
		}
		if _, err := namespaces.Get(ctx, after, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("bump %d: what came after the snapshot is there: %v", bump, err)
		}
		if _, err := namespaces.Get(ctx, "before", metav1.GetOptions{}); err != nil {
			t.Errorf("bump %d: what the snapshot holds: %v", bump, err)
		}
		list, err := namespaces.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		was, now := revision(t, newest.GetResourceVersion()), revision(t, list.GetResourceVersion())
		if (now > was) != (bump > 0) || now < bump {
			t.Errorf("bump %d: revision %d became %d", bump, was, now)
		}
	}
}

func revision(t *testing.T, resourceVersion string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A real Argo CD syncs a real repository, and its server shows it.
func TestArgoCDSyncs(t *testing.T) {
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "argocd", "redis-server", "git")
	h := harnesstest.New(t)
	ctx := t.Context()
	repo, err := h.NewRepository(ctx, "repository", harness.GuestbookFiles())
	if err != nil {
		t.Fatal(err)
	}
	cp, err := h.StartControlPlane(ctx, harness.ControlPlaneConfig{Name: "alone", Workloads: true})
	if err != nil {
		t.Fatal(err)
	}
	argo, err := h.StartArgoCD(ctx, harness.ArgoCDConfig{ControlPlane: cp, Controller: true, Server: true, ApplicationSets: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.EnsureNamespace(ctx, "guestbook"); err != nil {
		t.Fatal(err)
	}
	if err := cp.ApplyYAML(ctx, fmt.Appendf(nil, `
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: guestbook, namespace: argocd}
spec:
  project: default
  source: {repoURL: %q, path: %s, targetRevision: %s}
  destination: {server: https://kubernetes.default.svc, namespace: guestbook}
  syncPolicy: {automated: {}}
`, repo.URL, harness.GuestbookPath, harness.Branch)); err != nil {
		t.Fatal(err)
	}
	applications := cp.Resource(harness.Applications, harness.ArgoCDNamespace)
	if err := harness.Eventually(ctx, "the application to be synced and healthy", func() error {
		app, err := applications.Get(ctx, "guestbook", metav1.GetOptions{})
		if err != nil {
			return err
		}
		sync, _, _ := unstructured.NestedString(app.Object, "status", "sync", "status")
		health, _, _ := unstructured.NestedString(app.Object, "status", "health", "status")
		if sync != "Synced" || health != "Healthy" {
			return fmt.Errorf("it is %q and %q", sync, health)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := argo.Login(ctx); err != nil {
		t.Fatal(err)
	}
	out, err := argo.CLI(ctx, "app", "get", "argocd/guestbook")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Synced to main", "Healthy", "ConfigMap", "Service", "Deployment"} {
		if !strings.Contains(out, want) {
			t.Errorf("argocd app get does not show %q:\n%s", want, out)
		}
	}
	if err := h.CheckLoopback(); err != nil {
		t.Error(err)
	}
}

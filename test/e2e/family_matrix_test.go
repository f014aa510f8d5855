//go:build linux && matrix

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/harness"
)

// family is an app of apps in a repository of its own, whose children are deployed to the
// Kubernetes cluster they are in.
type family struct {
	t          *testing.T
	w          *world
	repository *harness.Repository
}

func (w *world) family(t *testing.T, name string) *family {
	t.Helper()
	f := &family{t: t, w: w}
	files := harness.GuestbookFiles()
	var err error
	if f.repository, err = w.h.NewRepository(t.Context(), name, files); err != nil {
		t.Fatal(err)
	}
	f.add(name + "-first")
	return f
}

// add commits a child.
func (f *family) add(child string) {
	f.t.Helper()
	if _, err := f.repository.Commit(f.t.Context(), "another child", map[string]string{"children/" + child + ".yaml": `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: ` + child + `
spec:
  project: default
  destination: {server: "https://kubernetes.default.svc", namespace: ` + child + `}
  source: {repoURL: "` + f.repository.URL + `", path: ` + harness.GuestbookPath + `, targetRevision: ` + harness.Branch + `}
  syncPolicy: {automated: {}, syncOptions: [CreateNamespace=true]}
`}); err != nil {
		f.t.Fatal(err)
	}
}

// replace commits one child in place of another.
func (f *family) replace(before, after string) {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.repository.Dir, "children", before+".yaml")); err != nil {
		f.t.Fatal(err)
	}
	f.add(after)
}

// parent makes the parent on the side that owns it, synced automatically.
func (f *family) parent(where dynamic.ResourceInterface, name, namespace, agent string) {
	f.t.Helper()
	app := f.w.guestbook(name, namespace, agent)
	spec := app.Object["spec"].(map[string]any)
	spec["destination"].(map[string]any)["namespace"] = harness.ArgoCDNamespace
	spec["source"] = map[string]any{"repoURL": f.repository.URL, "path": "children", "targetRevision": harness.Branch}
	create(f.t, where, app)
}

func (f *family) refresh(where dynamic.ResourceInterface, name string) {
	f.t.Helper()
	patch(f.t, where, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"argocd.argoproj.io/refresh": "normal"}}})
}

// TestAppOfAppsOfTheHub has a parent that is the hub's, deployed to a managed spoke: its
// children are that spoke's own, and the hub shows them if it is asked to.
func TestAppOfAppsOfTheHub(t *testing.T) {
	t.Parallel()
	w, ctx := theWorldAlone(t), t.Context()
	hub, spoke := w.onHub(managed), w.onSpoke(managed)
	registry := w.hub.Resource(agents, harness.ArgoCDNamespace)
	f := w.family(t, "sent")
	f.parent(hub, "sent", managed, managed)
	eventually(t, "the spoke deploys parent and child", func() error {
		return errors.Join(healthy(ctx, spoke, "sent"), healthy(ctx, spoke, "sent-first"))
	})
	eventually(t, "the hub shows the parent", func() error { return healthy(ctx, hub, "sent") })
	if err := gone(ctx, hub, "sent-first"); err != nil {
		t.Error("unasked: ", err)
	}
	child := get(t, spoke, "sent-first")

	show := func(value string) {
		t.Helper()
		patch(t, registry, managed, map[string]any{"spec": map[string]any{"childApplications": value}})
	}
	show("mirror")
	eventually(t, "the hub shows the child", func() error { return healthy(ctx, hub, "sent-first") })
	f.replace("sent-first", "sent-second")
	f.refresh(hub, "sent")
	eventually(t, "another child is deployed, and shown", func() error {
		return errors.Join(healthy(ctx, spoke, "sent-second"), healthy(ctx, hub, "sent-second"))
	})
	eventually(t, "the first one goes, here and there", func() error {
		return errors.Join(gone(ctx, spoke, "sent-first"), gone(ctx, hub, "sent-first"))
	})
	if child.GetAnnotations()[sourceUID] != "" {
		t.Error("the child was taken for a copy")
	}
	show("ignore")
	eventually(t, "the hub no longer shows it", func() error { return gone(ctx, hub, "sent-second") })

	// The parent goes without its workloads: its children are workloads.
	if err := hub.Delete(ctx, "sent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the parent leaves the spoke", func() error { return gone(ctx, spoke, "sent") })
	if err := healthy(ctx, spoke, "sent-second"); err != nil {
		t.Error(err)
	}
}

// TestAppOfAppsOfASpoke has a parent that is an autonomous spoke's: the hub shows it, and
// its children, as it shows all others.
func TestAppOfAppsOfASpoke(t *testing.T) {
	t.Parallel()
	w, ctx := theWorld(t), t.Context()
	hub, spoke := w.onHub(autonomous), w.onSpoke(autonomous)
	f := w.family(t, "grown")
	f.parent(spoke, "grown", harness.ArgoCDNamespace, "")
	eventually(t, "the hub shows parent and child", func() error {
		return errors.Join(healthy(ctx, hub, "grown"), healthy(ctx, hub, "grown-first"))
	})
	f.replace("grown-first", "grown-second")
	f.refresh(hub, "grown") // asked for on the hub, done on the spoke
	eventually(t, "the hub shows another child", func() error { return healthy(ctx, hub, "grown-second") })
	eventually(t, "the first one goes, there and here", func() error {
		return errors.Join(gone(ctx, spoke, "grown-first"), gone(ctx, hub, "grown-first"))
	})
}

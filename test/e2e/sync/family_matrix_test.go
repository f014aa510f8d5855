//go:build linux && matrix

package sync

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// family is an app of apps in a repository of its own, whose children are deployed to the
// Kubernetes cluster they are in.
type family struct {
	t          *testing.T
	w          *env.Argo
	repository *harness.Repository
}

func newFamily(t *testing.T, w *env.Argo, name string) *family {
	t.Helper()
	f := &family{t: t, w: w}
	files := harness.GuestbookFiles()
	var err error
	if f.repository, err = w.Harness.NewRepository(t.Context(), name, files); err != nil {
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
	app := f.w.Guestbook(name, namespace, agent)
	spec := app.Object["spec"].(map[string]any)
	spec["destination"].(map[string]any)["namespace"] = harness.ArgoCDNamespace
	spec["source"] = map[string]any{"repoURL": f.repository.URL, "path": "children", "targetRevision": harness.Branch}
	env.Create(f.t, where, app)
}

func (f *family) refresh(where dynamic.ResourceInterface, name string) {
	f.t.Helper()
	env.Patch(f.t, where, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"argocd.argoproj.io/refresh": "normal"}}})
}

// TestAppOfAppsOfTheHub has a parent that is the hub's, deployed to a managed spoke: its
// children are that spoke's own, and the hub shows them if it is asked to.
func TestAppOfAppsOfTheHub(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnArgo(t), t.Context()
	hub, spoke := w.OnHub(env.Managed), w.OnSpoke(env.Managed)
	registry := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace)
	f := newFamily(t, w, "sent")
	f.parent(hub, "sent", env.Managed, env.Managed)
	env.Eventually(t, "the spoke deploys parent and child", func() error {
		return errors.Join(env.Healthy(ctx, spoke, "sent"), env.Healthy(ctx, spoke, "sent-first"))
	})
	env.Eventually(t, "the hub shows the parent", func() error { return env.Healthy(ctx, hub, "sent") })
	if err := env.Gone(ctx, hub, "sent-first"); err != nil {
		t.Error("unasked: ", err)
	}
	child := env.Get(t, spoke, "sent-first")

	show := func(value string) {
		t.Helper()
		env.Patch(t, registry, env.Managed, map[string]any{"spec": map[string]any{"childApplications": value}})
	}
	show("mirror")
	env.Eventually(t, "the hub shows the child", func() error { return env.Healthy(ctx, hub, "sent-first") })
	f.replace("sent-first", "sent-second")
	f.refresh(hub, "sent")
	env.Eventually(t, "another child is deployed, and shown", func() error {
		return errors.Join(env.Healthy(ctx, spoke, "sent-second"), env.Healthy(ctx, hub, "sent-second"))
	})
	env.Eventually(t, "the first one goes, here and there", func() error {
		return errors.Join(env.Gone(ctx, spoke, "sent-first"), env.Gone(ctx, hub, "sent-first"))
	})
	if child.GetAnnotations()[env.SourceUID] != "" {
		t.Error("the child was taken for a copy")
	}
	show("ignore")
	env.Eventually(t, "the hub no longer shows it", func() error { return env.Gone(ctx, hub, "sent-second") })

	// The parent goes without its workloads: its children are workloads.
	if err := hub.Delete(ctx, "sent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the parent leaves the spoke", func() error { return env.Gone(ctx, spoke, "sent") })
	if err := env.Healthy(ctx, spoke, "sent-second"); err != nil {
		t.Error(err)
	}
}

// TestAppOfAppsOfASpoke has a parent that is an autonomous spoke's: the hub shows it, and
// its children, as it shows all others.
func TestAppOfAppsOfASpoke(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedArgo(t), t.Context()
	hub, spoke := w.OnHub(env.Autonomous), w.OnSpoke(env.Autonomous)
	f := newFamily(t, w, "grown")
	f.parent(spoke, "grown", harness.ArgoCDNamespace, "")
	env.Eventually(t, "the hub shows parent and child", func() error {
		return errors.Join(env.Healthy(ctx, hub, "grown"), env.Healthy(ctx, hub, "grown-first"))
	})
	f.replace("grown-first", "grown-second")
	f.refresh(hub, "grown") // asked for on the hub, done on the spoke
	env.Eventually(t, "the hub shows another child", func() error { return env.Healthy(ctx, hub, "grown-second") })
	env.Eventually(t, "the first one goes, there and here", func() error {
		return errors.Join(env.Gone(ctx, spoke, "grown-first"), env.Gone(ctx, hub, "grown-first"))
	})
}

//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/test/harness"
)

const cascadeFinalizer = "resources-finalizer.argocd.argoproj.io"

// A deletion with cascade takes the Applications of the spoke along, and the Agent
// stays until the spoke has confirmed that. Nobody but the test plays Argo CD.
func TestAgentDeletedWithCascade(t *testing.T) {
	t.Parallel()
	w, ctx := theQuietWorld(t), t.Context()
	r := w.connect(t, "doomed", "managed")
	const apps = 3
	createAll(t, r.hub, apps, func(i int) *unstructured.Unstructured { return r.application(fmt.Sprint("app-", i)) })
	createAll(t, r.spoke, 1, func(int) *unstructured.Unstructured { return r.application("local") })
	hub, spoke := record(t, r.hub), record(t, r.spoke)
	eventually(t, "both sides are equal", func() error { return r.agree(hub, spoke) })

	if out, err := w.h.Agentctl(ctx, w.hub, "agent", "delete", r.name, "--cascade", "--yes", "--wait=false"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i := range apps {
		name := fmt.Sprint("app-", i)
		eventually(t, name+" is deleted on the spoke with its workloads", func() error {
			o, err := r.spoke.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if o.GetDeletionTimestamp() == nil || !strings.Contains(fmt.Sprint(o.GetFinalizers()), cascadeFinalizer) {
				return fmt.Errorf("deleted at %v, finalizers %q", o.GetDeletionTimestamp(), o.GetFinalizers())
			}
			return nil
		})
	}
	agentsOf := w.hub.Resource(agents, harness.ArgoCDNamespace)
	eventually(t, "the Agent says what it waits for", func() error {
		a, err := agentsOf.Get(ctx, r.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if message := fmt.Sprint(conditionIn(a, "Ready")["message"]); !strings.Contains(message, "3 Applications to be removed on the spoke") {
			return errors.New(message)
		}
		return nil
	})
	for i := range apps {
		patch := []byte(`{"metadata":{"finalizers":null}}`) // the workloads are gone
		if _, err := r.spoke.Patch(ctx, fmt.Sprint("app-", i), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the Agent is gone", func() error { return absent(agentsOf.Get(ctx, r.name, metav1.GetOptions{})) })
	eventually(t, "its cluster Secret is gone", func() error {
		return absent(w.hub.Resource(secrets, harness.ArgoCDNamespace).Get(ctx, "cluster-"+r.name, metav1.GetOptions{}))
	})
	hub.caughtUp(t, r.hub)
	if names := len(hub.objects()); names != 0 {
		t.Errorf("the hub still shows %d Applications", names)
	}
	if _, err := r.spoke.Get(ctx, "local", metav1.GetOptions{}); err != nil {
		t.Errorf("an Application of the spoke's own: %v", err)
	}
}

func absent(_ *unstructured.Unstructured, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(errors.New("it is there"), err)
}

// An autonomous agent leaves nothing on the hub, and its spoke is not touched.
func TestAgentOrphaned(t *testing.T) {
	t.Parallel()
	w, ctx := theQuietWorld(t), t.Context()
	r := w.connect(t, "leaver", "autonomous")
	createAll(t, r.spoke, 3, func(i int) *unstructured.Unstructured {
		o := r.application(fmt.Sprint("app-", i))
		o.SetFinalizers([]string{cascadeFinalizer})
		return o
	})
	hub, spoke := record(t, r.hub), record(t, r.spoke)
	eventually(t, "the hub shows them", func() error { return r.agree(spoke, hub) })
	spoke.caughtUp(t, r.spoke)
	before := spoke.objects()

	if out, err := w.h.Agentctl(ctx, w.hub, "agent", "delete", r.name, "--orphan", "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "the mirrors are gone", func() error {
		if n := len(hub.objects()); n != 0 {
			return fmt.Errorf("%d are there", n)
		}
		return nil
	})
	spoke.caughtUp(t, r.spoke)
	for name, o := range spoke.objects() {
		if before[name].GetResourceVersion() != o.GetResourceVersion() {
			t.Errorf("%s was written on the spoke", name)
		}
	}
	t.Cleanup(func() {
		// Nobody else takes the finalizer of an Application that no Argo CD runs.
		for name := range before {
			_, err := r.spoke.Patch(context.WithoutCancel(ctx), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// The children of an app of apps are shown when the hub asks for it, read-only, and
// are never touched.
func TestChildApplications(t *testing.T) {
	t.Parallel()
	w, ctx := theQuietWorld(t), t.Context()
	r := w.connect(t, "parent", "managed")
	createAll(t, r.hub, 1, func(int) *unstructured.Unstructured { return r.application("app") })
	child := r.application("child")
	if err := unstructured.SetNestedMap(child.Object, map[string]any{"name": "in-cluster", "namespace": "default"}, "spec", "destination"); err != nil {
		t.Fatal(err)
	}
	createAll(t, r.spoke, 1, func(int) *unstructured.Unstructured { return child })
	hub, spoke := record(t, r.hub), record(t, r.spoke)
	eventually(t, "the Application is on the spoke", func() error { return r.agree(hub, spoke) })
	before := spoke.objects()["child"].GetResourceVersion()

	show := func(value string) {
		patch := fmt.Appendf(nil, `{"spec":{"childApplications":%q}}`, value)
		if _, err := w.hub.Resource(agents, harness.ArgoCDNamespace).Patch(ctx, r.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	show("mirror")
	eventually(t, "the hub shows the child", func() error {
		return field(ctx, r.hub, "child", "1", "spec", "source", "targetRevision")
	})
	patch := []byte(`{"spec":{"source":{"targetRevision":"2"}}}`)
	if _, err := r.hub.Patch(ctx, "child", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an edit on the hub is undone", func() error {
		return field(ctx, r.hub, "child", "1", "spec", "source", "targetRevision")
	})
	if _, err := r.spoke.Patch(ctx, "child", types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a change on the spoke is shown", func() error {
		return field(ctx, r.hub, "child", "yes", "metadata", "labels", "seen")
	})
	if o := get(t, w.hub.Resource(agents, harness.ArgoCDNamespace), r.name); conditionIn(o, "ChildApplications") != nil {
		t.Errorf("by namespace nothing keeps children from being shown, but it says %v", conditionIn(o, "ChildApplications"))
	}
	sync := []byte(`{"operation":{"sync":{"revision":"2"}}}`)
	if _, err := r.hub.Patch(ctx, "child", types.MergePatchType, sync, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a sync on the hub ends and says why", func() error {
		return field(ctx, r.hub, "child", "not run by agent parent: it is a child application of the spoke, shown read-only; sync its parent", "status", "operationState", "message")
	})
	shown := get(t, r.hub, "child").GetUID()
	if err := r.hub.Delete(ctx, "child", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a deletion on the hub is undone", func() error {
		o, err := r.hub.Get(ctx, "child", metav1.GetOptions{})
		if err == nil && o.GetUID() == shown {
			err = errors.New("it is still there")
		}
		return err
	})
	show("ignore")
	eventually(t, "the hub no longer shows the child", func() error { return absent(r.hub.Get(ctx, "child", metav1.GetOptions{})) })
	spoke.caughtUp(t, r.spoke)
	o := spoke.objects()["child"]
	if o == nil || o.GetAnnotations()[sourceUID] != "" || len(spoke.history("child")) > 2 {
		t.Errorf("the child on the spoke, which was at %s, is %v", before, o)
	}
}

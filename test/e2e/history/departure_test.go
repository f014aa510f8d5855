//go:build linux

package history

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

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

const cascadeFinalizer = "resources-finalizer.argocd.argoproj.io"

// A deletion with cascade takes the Applications of the spoke along, and the Agent
// stays until the spoke has confirmed that. No one but the test plays Argo CD.
func TestAgentDeletedWithCascade(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	r := w.Connect(t, "doomed", "managed")
	const apps = 3
	env.CreateAll(t, r.Hub, apps, func(i int) *unstructured.Unstructured { return r.Application(fmt.Sprint("app-", i)) })
	env.CreateAll(t, r.Spoke, 1, func(int) *unstructured.Unstructured { return r.Application("local") })
	hub, spoke := env.Record(t, r.Hub), env.Record(t, r.Spoke)
	env.Eventually(t, "both sides are equal", func() error { return r.Agree(hub, spoke) })

	if out, err := w.Harness.Agentctl(ctx, w.Hub, "agent", "delete", r.Name, "--cascade", "--yes", "--wait=false"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i := range apps {
		name := fmt.Sprint("app-", i)
		env.Eventually(t, name+" is deleted on the spoke with its workloads", func() error {
			o, err := r.Spoke.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if o.GetDeletionTimestamp() == nil || !strings.Contains(fmt.Sprint(o.GetFinalizers()), cascadeFinalizer) {
				return fmt.Errorf("deleted at %v, finalizers %q", o.GetDeletionTimestamp(), o.GetFinalizers())
			}
			return nil
		})
	}
	agentsOf := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace)
	env.Eventually(t, "the Agent says what it waits for", func() error {
		a, err := agentsOf.Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if message := fmt.Sprint(env.ConditionIn(a, "Ready")["message"]); !strings.Contains(message, "3 Applications to be removed on the spoke") {
			return errors.New(message)
		}
		return nil
	})
	for i := range apps {
		patch := []byte(`{"metadata":{"finalizers":null}}`) // the workloads are gone
		if _, err := r.Spoke.Patch(ctx, fmt.Sprint("app-", i), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	env.Eventually(t, "the Agent is gone", func() error { return absent(agentsOf.Get(ctx, r.Name, metav1.GetOptions{})) })
	env.Eventually(t, "its cluster Secret is gone", func() error {
		return absent(w.Hub.Resource(env.Secrets, harness.ArgoCDNamespace).Get(ctx, "cluster-"+r.Name, metav1.GetOptions{}))
	})
	hub.CaughtUp(t, r.Hub)
	if names := len(hub.Objects()); names != 0 {
		t.Errorf("the hub still shows %d Applications", names)
	}
	if _, err := r.Spoke.Get(ctx, "local", metav1.GetOptions{}); err != nil {
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
	w, ctx := env.SharedBare(t), t.Context()
	r := w.Connect(t, "leaver", "autonomous")
	env.CreateAll(t, r.Spoke, 3, func(i int) *unstructured.Unstructured {
		o := r.Application(fmt.Sprint("app-", i))
		o.SetFinalizers([]string{cascadeFinalizer})
		return o
	})
	hub, spoke := env.Record(t, r.Hub), env.Record(t, r.Spoke)
	env.Eventually(t, "the hub shows them", func() error { return r.Agree(spoke, hub) })
	spoke.CaughtUp(t, r.Spoke)
	before := spoke.Objects()

	if out, err := w.Harness.Agentctl(ctx, w.Hub, "agent", "delete", r.Name, "--orphan", "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	env.Eventually(t, "the mirrors are gone", func() error {
		if n := len(hub.Objects()); n != 0 {
			return fmt.Errorf("%d are there", n)
		}
		return nil
	})
	spoke.CaughtUp(t, r.Spoke)
	for name, o := range spoke.Objects() {
		if before[name].GetResourceVersion() != o.GetResourceVersion() {
			t.Errorf("%s was written on the spoke", name)
		}
	}
	t.Cleanup(func() {
		// No one else takes the finalizer of an Application that no Argo CD runs.
		for name := range before {
			_, err := r.Spoke.Patch(context.WithoutCancel(ctx), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
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
	w, ctx := env.SharedBare(t), t.Context()
	r := w.Connect(t, "parent", "managed")
	env.CreateAll(t, r.Hub, 1, func(int) *unstructured.Unstructured { return r.Application("app") })
	child := r.Application("child")
	if err := unstructured.SetNestedMap(child.Object, map[string]any{"name": "in-cluster", "namespace": "default"}, "spec", "destination"); err != nil {
		t.Fatal(err)
	}
	env.CreateAll(t, r.Spoke, 1, func(int) *unstructured.Unstructured { return child })
	hub, spoke := env.Record(t, r.Hub), env.Record(t, r.Spoke)
	env.Eventually(t, "the Application is on the spoke", func() error { return r.Agree(hub, spoke) })
	before := spoke.Objects()["child"].GetResourceVersion()

	show := func(value string) {
		patch := fmt.Appendf(nil, `{"spec":{"childApplications":%q}}`, value)
		if _, err := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Patch(ctx, r.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	show("mirror")
	env.Eventually(t, "the hub shows the child", func() error {
		return env.FieldIs(ctx, r.Hub, "child", "1", "spec", "source", "targetRevision")
	})
	patch := []byte(`{"spec":{"source":{"targetRevision":"2"}}}`)
	if _, err := r.Hub.Patch(ctx, "child", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "an edit on the hub is undone", func() error {
		return env.FieldIs(ctx, r.Hub, "child", "1", "spec", "source", "targetRevision")
	})
	if _, err := r.Spoke.Patch(ctx, "child", types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "a change on the spoke is shown", func() error {
		return env.FieldIs(ctx, r.Hub, "child", "yes", "metadata", "labels", "seen")
	})
	if o := env.Get(t, w.Hub.Resource(env.Agents, harness.ArgoCDNamespace), r.Name); env.ConditionIn(o, "ChildApplications") != nil {
		t.Errorf("by namespace nothing keeps children from being shown, but it says %v", env.ConditionIn(o, "ChildApplications"))
	}
	sync := []byte(`{"operation":{"sync":{"revision":"2"}}}`)
	if _, err := r.Hub.Patch(ctx, "child", types.MergePatchType, sync, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "a sync on the hub ends and says why", func() error {
		return env.FieldIs(ctx, r.Hub, "child", "not run by agent parent: it is a child application of the spoke, shown read-only; sync its parent", "status", "operationState", "message")
	})
	shown := env.Get(t, r.Hub, "child").GetUID()
	if err := r.Hub.Delete(ctx, "child", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "a deletion on the hub is undone", func() error {
		o, err := r.Hub.Get(ctx, "child", metav1.GetOptions{})
		if err == nil && o.GetUID() == shown {
			err = errors.New("it is still there")
		}
		return err
	})
	show("ignore")
	env.Eventually(t, "the hub no longer shows the child", func() error { return absent(r.Hub.Get(ctx, "child", metav1.GetOptions{})) })
	spoke.CaughtUp(t, r.Spoke)
	o := spoke.Objects()["child"]
	if o == nil || o.GetAnnotations()[env.SourceUID] != "" || len(spoke.History("child")) > 2 {
		t.Errorf("the child on the spoke, which was at %s, is %v", before, o)
	}
}

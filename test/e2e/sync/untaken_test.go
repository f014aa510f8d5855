//go:build linux

package sync

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// TestUntakenApplication is the commonest mistake: argocd app create makes an Application in
// Argo CD's own namespace, and the hub maps by namespace. It says so, with an Event, its sync
// ends with that sentence, and what the sentence says cures it.
func TestUntakenApplication(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedArgo(t), t.Context()
	const name = "astray"
	apps := w.Hub.Resource(harness.Applications, harness.ArgoCDNamespace)
	env.Create(t, apps, w.Guestbook(name, harness.ArgoCDNamespace, env.Managed))
	out, err := w.HubArgo.CLI(ctx, "app", "sync", name, "--timeout", "120")
	const says = "no agent takes it: its destination is agent edge-1, whose Applications are in namespace edge-1"
	if err == nil || !strings.Contains(out, says) {
		t.Errorf("argocd app sync: %v, %s", err, out)
	}
	env.Eventually(t, "the Application says that no agent takes it", func() error { return env.ConditionSays(ctx, apps, name, "ArgomeshError", says) })
	env.Eventually(t, "there is an Event of it", func() error {
		list, err := w.Hub.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}, harness.ArgoCDNamespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if message, _, _ := unstructured.NestedString(e.Object, "message"); strings.HasPrefix(message, says) {
				return nil
			}
		}
		return fmt.Errorf("%d Events", len(list.Items))
	})
	env.Eventually(t, "agentctl counts it", func() error {
		out, err := w.Harness.Agentctl(ctx, w.Hub, "agent", "list")
		if err == nil && !strings.Contains(out, "no agent takes") {
			err = errors.New(out)
		}
		return err
	})

	// The cure, to the letter.
	if err := apps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	theirs := w.Hub.Resource(harness.Applications, env.Managed)
	cured := w.Guestbook(name, env.Managed, env.Managed)
	unstructured.RemoveNestedField(cured.Object, "spec", "syncPolicy", "automated") // else Argo CD may be at it before the person is
	env.Create(t, theirs, cured)
	if out, err := w.HubArgo.CLI(ctx, "app", "sync", env.Managed+"/"+name, "--timeout", "120"); err != nil {
		t.Errorf("after the cure: %v, %s", err, out)
	}
}

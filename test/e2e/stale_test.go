//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/harness"
)

// staleCondition says that an agent is away.
const staleCondition = "ArgomeshStaleWarning"

// TestStaleWarning stops the agents of both modes. Their Applications say so, with all else
// as it was, and keep that over a restart of the principal; when the agents are back they
// say so no more.
func TestStaleWarning(t *testing.T) {
	t.Parallel()
	w, ctx := theWorldAlone(t), t.Context()
	const name = "stale"
	create(t, w.onHub(managed), w.guestbook(name, managed, managed))
	create(t, w.onSpoke(autonomous), w.guestbook(name, harness.ArgoCDNamespace, ""))
	for _, agent := range []string{managed, autonomous} {
		eventually(t, "the Application of "+agent+" runs", func() error { return healthy(ctx, w.onHub(agent), name) })
	}

	for _, agent := range []string{managed, autonomous} {
		if err := w.agents[agent].Stop(ctx); err != nil {
			t.Fatal(err)
		}
	}
	before := map[string]*unstructured.Unstructured{}
	for _, agent := range []string{managed, autonomous} {
		eventually(t, "agent "+agent+" is away", func() error {
			if since, err := w.since(ctx, agent); err == nil {
				return fmt.Errorf("it is connected since %s", since)
			}
			return nil
		})
		before[agent] = get(t, w.onHub(agent), name)
	}
	told := map[string]*unstructured.Unstructured{}
	for _, agent := range []string{managed, autonomous} {
		eventually(t, "the Application of "+agent+" says that it is away", func() error {
			return conditionSays(ctx, w.onHub(agent), name, staleCondition, "agent "+agent+" is away since ")
		})
		told[agent] = get(t, w.onHub(agent), name)
		rest := told[agent].DeepCopy()
		dropCondition(t, rest, staleCondition)
		if diff := cmp.Diff(plainly(before[agent]), plainly(rest)); diff != "" {
			t.Errorf("the Application of %s has changed otherwise (-before +now)\n%s", agent, diff)
		}
	}

	if err := w.principal.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.agents[autonomous].Start(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Application of the agent that is back says so", func() error { return unsaid(ctx, w.onHub(autonomous), name) })
	if diff := cmp.Diff(conditionIn(told[managed], staleCondition), conditionIn(get(t, w.onHub(managed), name), staleCondition)); diff != "" {
		t.Errorf("the condition changes though the agent is away as before (-before +now)\n%s", diff)
	}
	if err := w.agents[managed].Start(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other one does, too", func() error { return unsaid(ctx, w.onHub(managed), name) })
	patch(t, w.onHub(managed), name, map[string]any{"spec": map[string]any{"info": []any{map[string]any{"name": "after", "value": "it"}}}})
	eventually(t, "a change reaches the spoke", func() error {
		o, err := w.onSpoke(managed).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if info, _, _ := unstructured.NestedSlice(o.Object, "spec", "info"); len(info) != 1 {
			return errors.New("it has not")
		}
		return nil
	})
}

// unsaid is a check that an Application does not say that its agent is away.
func unsaid(ctx context.Context, where dynamic.ResourceInterface, name string) error {
	o, err := where.Get(ctx, name, metav1.GetOptions{})
	if err == nil && conditionIn(o, staleCondition) != nil {
		err = fmt.Errorf("it says %v", conditionIn(o, staleCondition))
	}
	return err
}

func dropCondition(t *testing.T, o *unstructured.Unstructured, kind string) {
	t.Helper()
	list, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		t.Fatal(err)
	}
	var rest []any
	for _, c := range list {
		if condition, _ := c.(map[string]any); condition["type"] != kind {
			rest = append(rest, c)
		}
	}
	if len(rest) == 0 {
		unstructured.RemoveNestedField(o.Object, "status", "conditions")
		return
	}
	if err := unstructured.SetNestedSlice(o.Object, rest, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
}

// plainly is an object without what every write changes.
func plainly(o *unstructured.Unstructured) map[string]any {
	out := o.DeepCopy()
	out.SetManagedFields(nil)
	out.SetResourceVersion("")
	out.SetGeneration(0)
	return out.Object
}

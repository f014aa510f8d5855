//go:build linux

package sync

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// TestStaleWarning stops the agents of both modes. Their Applications say so, with all else
// as it was, and keep that over a restart of the principal; when the agents are back they
// say so no more.
func TestStaleWarning(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnArgo(t), t.Context()
	const name = "stale"
	env.Create(t, w.OnHub(env.Managed), w.Guestbook(name, env.Managed, env.Managed))
	env.Create(t, w.OnSpoke(env.Autonomous), w.Guestbook(name, harness.ArgoCDNamespace, ""))
	for _, agent := range []string{env.Managed, env.Autonomous} {
		env.Eventually(t, "the Application of "+agent+" runs", func() error { return env.Healthy(ctx, w.OnHub(agent), name) })
	}

	for _, agent := range []string{env.Managed, env.Autonomous} {
		if err := w.Agents[agent].Stop(ctx); err != nil {
			t.Fatal(err)
		}
	}
	before := map[string]*unstructured.Unstructured{}
	for _, agent := range []string{env.Managed, env.Autonomous} {
		env.Eventually(t, "agent "+agent+" is away", func() error {
			if since, err := w.Since(ctx, agent); err == nil {
				return fmt.Errorf("it is connected since %s", since)
			}
			return nil
		})
		before[agent] = env.Get(t, w.OnHub(agent), name)
	}
	told := map[string]*unstructured.Unstructured{}
	for _, agent := range []string{env.Managed, env.Autonomous} {
		env.Eventually(t, "the Application of "+agent+" says that it is away", func() error {
			return env.ConditionSays(ctx, w.OnHub(agent), name, env.StaleCondition, "agent "+agent+" is away since ")
		})
		told[agent] = env.Get(t, w.OnHub(agent), name)
		rest := told[agent].DeepCopy()
		dropCondition(t, rest, env.StaleCondition)
		if diff := cmp.Diff(plainly(before[agent]), plainly(rest)); diff != "" {
			t.Errorf("the Application of %s has changed otherwise (-before +now)\n%s", agent, diff)
		}
	}

	if err := w.Principal.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.Agents[env.Autonomous].Start(ctx); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the Application of the agent that is back says so", func() error { return env.NotStale(ctx, w.OnHub(env.Autonomous), name) })
	if diff := cmp.Diff(env.ConditionIn(told[env.Managed], env.StaleCondition), env.ConditionIn(env.Get(t, w.OnHub(env.Managed), name), env.StaleCondition)); diff != "" {
		t.Errorf("the condition changes though the agent is away as before (-before +now)\n%s", diff)
	}
	if err := w.Agents[env.Managed].Start(ctx); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the other one does, too", func() error { return env.NotStale(ctx, w.OnHub(env.Managed), name) })
	env.Patch(t, w.OnHub(env.Managed), name, map[string]any{"spec": map[string]any{"info": []any{map[string]any{"name": "after", "value": "it"}}}})
	env.Eventually(t, "a change reaches the spoke", func() error {
		o, err := w.OnSpoke(env.Managed).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if info, _, _ := unstructured.NestedSlice(o.Object, "spec", "info"); len(info) != 1 {
			return errors.New("it has not")
		}
		return nil
	})
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

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

// holds is a check that the Agent shows so many held deletions for that reason, and
// a condition that says so; none for an empty reason.
func holds(ctx context.Context, r *env.BareAgent, reason string, total int64) error {
	agent, err := r.Env.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	got, _, _ := unstructured.NestedMap(agent.Object, "status", "deletionsHeld")
	condition := env.ConditionIn(agent, "DeletionsHeld")
	if reason == "" {
		if got != nil || condition["status"] != "False" {
			return fmt.Errorf("the Agent shows %v, condition %v", got, condition)
		}
		return nil
	}
	message, _ := condition["message"].(string)
	if got["reason"] != reason || got["total"] != total || condition["status"] != "True" || condition["reason"] != reason ||
		!strings.Contains(message, "agentctl agent accept-deletions "+r.Name) {
		return fmt.Errorf("the Agent shows %v, condition %v", got, condition)
	}
	return nil
}

// begun is a check that hub and spoke have a history in common, which the spoke
// keeps.
func begun(ctx context.Context, r *env.BareAgent) error {
	kept, err := r.Env.Spoke.Resource(env.ConfigMaps, r.Namespace).Get(ctx, "argomesh-agent", metav1.GetOptions{})
	if err != nil {
		return err
	}
	token, _, _ := unstructured.NestedString(kept.Object, "data", "token")
	agent, err := r.Env.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	tokens, _, _ := unstructured.NestedStringSlice(agent.Object, "status", "history", "tokens")
	if len(tokens) < 2 || tokens[0] != token { // with the second the hub knows that the first was kept
		return fmt.Errorf("the hub has handed out %q, the spoke keeps %q", tokens, token)
	}
	return nil
}

// A hub that has lost much of a collection at once, while no one looked, looks like one
// whose owners have deleted it. A design that takes absence for intent removes it
// everywhere.
func TestHistoryManyAbsences(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnBare(t), t.Context()
	r := w.Connect(t, "lossy", "managed")
	const apps, lost = 30, 15
	env.CreateAll(t, r.Hub, apps, func(i int) *unstructured.Unstructured { return r.Application(fmt.Sprint("app-", i)) })
	hub, spoke := env.Record(t, r.Hub), env.Record(t, r.Spoke)
	env.Eventually(t, "both sides are equal at first", func() error { return r.Agree(hub, spoke) })
	env.Eventually(t, "the history has begun", func() error { return begun(ctx, r) })

	if err := w.Principal.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	env.Each(t, lost, func(ctx context.Context, i int) error {
		return r.Hub.Delete(ctx, fmt.Sprint("app-", i), metav1.DeleteOptions{})
	})
	if err := w.Principal.Start(ctx); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the deletions are held", func() error { return holds(ctx, r, "TooMany", lost) })
	// What is there goes on: a change comes, and what is new.
	patch := []byte(`{"spec":{"source":{"targetRevision":"2"}}}`)
	if _, err := r.Hub.Patch(ctx, "app-29", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	env.CreateAll(t, r.Hub, 1, func(int) *unstructured.Unstructured { return r.Application("new") })
	env.Eventually(t, "a change comes", func() error {
		return errors.Join(
			env.FieldIs(ctx, r.Spoke, "app-29", "2", "spec", "source", "targetRevision"),
			env.FieldIs(ctx, r.Spoke, "new", "1", "spec", "source", "targetRevision"))
	})
	// So it is for another process of either side.
	if err := errors.Join(w.Principal.Restart(ctx), r.Agent.Restart(ctx)); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the agent is back", func() error { return r.Connected(ctx, true) })
	env.Eventually(t, "the deletions are still held", func() error { return holds(ctx, r, "TooMany", lost) })
	if len(spoke.Objects()) != apps+1 {
		t.Errorf("the spoke has %d Applications, want all %d", len(spoke.Objects()), apps+1)
	}

	out, err := w.Harness.Agentctl(ctx, w.Hub, "agent", "accept-deletions", r.Name, "--yes")
	if err != nil {
		t.Fatalf("accept-deletions: %v\n%s", err, out)
	}
	env.Eventually(t, "both sides are equal", func() error { return r.Agree(hub, spoke) })
	env.Eventually(t, "nothing is held any more", func() error { return holds(ctx, r, "", 0) })
	env.Eventually(t, "the acceptance is used up", func() error {
		agent, err := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if id, there := agent.GetAnnotations()["argomesh.io/accept-deletions"]; there {
			return fmt.Errorf("the Agent still says that %s is accepted", id)
		}
		return nil
	})
}

// A spoke that was rebuilt under its name has nothing of what the hub shows. A
// design that believes it forgets what the fleet ran.
func TestHistoryRebuiltSpoke(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	r := w.Connect(t, "reborn", "autonomous")
	const apps = 3
	env.CreateAll(t, r.Spoke, apps, func(i int) *unstructured.Unstructured { return r.Application(fmt.Sprint("app-", i)) })
	hub, spoke := env.Record(t, r.Hub), env.Record(t, r.Spoke)
	env.Eventually(t, "the hub shows them", func() error { return r.Agree(spoke, hub) })
	env.Eventually(t, "the history has begun", func() error { return begun(ctx, r) })

	if err := r.Agent.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	env.Each(t, apps, func(ctx context.Context, i int) error {
		return r.Spoke.Delete(ctx, fmt.Sprint("app-", i), metav1.DeleteOptions{})
	})
	if err := w.Spoke.Resource(env.ConfigMaps, r.Namespace).Delete(ctx, "argomesh-agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.CreateAll(t, r.Spoke, 1, func(int) *unstructured.Unstructured { return r.Application("new") })
	if err := r.Agent.Start(ctx); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the deletions are held", func() error { return holds(ctx, r, "HistoryBroken", apps) })
	env.Eventually(t, "what is new is shown", func() error {
		return env.FieldIs(ctx, r.Hub, "new", "1", "spec", "source", "targetRevision")
	})
	hub.CaughtUp(t, r.Hub)
	if len(hub.Objects()) != apps+1 {
		t.Errorf("the hub shows %d Applications, want all %d", len(hub.Objects()), apps+1)
	}
	out, err := w.Harness.Agentctl(ctx, w.Hub, "agent", "accept-deletions", r.Name, "--yes")
	if err != nil {
		t.Fatalf("accept-deletions: %v\n%s", err, out)
	}
	env.Eventually(t, "both sides are equal", func() error { return r.Agree(spoke, hub) })
	env.Eventually(t, "nothing is held any more", func() error { return holds(ctx, r, "", 0) })
	env.Eventually(t, "a new history has begun", func() error { return begun(ctx, r) })
}

// A spoke that is restored while its agent lives does not keep what it did: that shows on
// its next connection, and on the one that it has with the next token.
func TestHistoryForgottenWhileTheAgentLives(t *testing.T) {
	t.Parallel()
	for name, interrupted := range map[string]bool{"its connection breaks": true, "its connection lasts": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, ctx := env.SharedBare(t), t.Context()
			r := w.Connect(t, map[bool]string{true: "restored-cut", false: "restored"}[interrupted], "autonomous")
			env.Eventually(t, "the history has begun", func() error { return begun(ctx, r) })
			before, err := history(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			if interrupted {
				r.Network.Cut()
			}
			if err := w.Spoke.Resource(env.ConfigMaps, r.Namespace).Delete(ctx, "argomesh-agent", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if interrupted {
				r.Network.Mend()
			}
			env.Eventually(t, "another history has begun", func() error {
				now, err := history(ctx, r)
				if err == nil && now == before {
					err = errors.New("it is the one before")
				}
				return errors.Join(err, begun(ctx, r))
			})
		})
	}
}

// history is the id of the history that the Agent shows.
func history(ctx context.Context, r *env.BareAgent) (string, error) {
	agent, err := r.Env.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	id, _, err := unstructured.NestedString(agent.Object, "status", "history", "id")
	return id, err
}

// A spoke that forgot, and yet lacks nothing, needs no one's attention.
func TestHistoryForgotten(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	r := w.Connect(t, "amnesic", "managed")
	env.CreateAll(t, r.Hub, 2, func(i int) *unstructured.Unstructured { return r.Application(fmt.Sprint("app-", i)) })
	hub, spoke := env.Record(t, r.Hub), env.Record(t, r.Spoke)
	env.Eventually(t, "both sides are equal at first", func() error { return r.Agree(hub, spoke) })
	env.Eventually(t, "the history has begun", func() error { return begun(ctx, r) })
	if err := r.Agent.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	memory := w.Spoke.Resource(env.ConfigMaps, r.Namespace)
	if err := memory.Delete(ctx, "argomesh-agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := memory.Get(ctx, "argomesh-agent", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the memory of the spoke: %v", err)
	}
	if err := r.Agent.Start(ctx); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "a new history has begun", func() error { return begun(ctx, r) })
	env.Eventually(t, "nothing is held", func() error { return holds(ctx, r, "", 0) })
	if err := r.Hub.Delete(ctx, "app-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "a deletion passes", func() error { return r.Agree(hub, spoke) })
}

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

// holds is a check that the Agent shows so many held deletions for that reason, and
// a condition that says so; none for an empty reason.
func (r *remote) holds(ctx context.Context, reason string, total int64) error {
	agent, err := r.w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, r.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	got, _, _ := unstructured.NestedMap(agent.Object, "status", "deletionsHeld")
	condition := conditionIn(agent, "DeletionsHeld")
	if reason == "" {
		if got != nil || condition["status"] != "False" {
			return fmt.Errorf("the Agent shows %v, condition %v", got, condition)
		}
		return nil
	}
	message, _ := condition["message"].(string)
	if got["reason"] != reason || got["total"] != total || condition["status"] != "True" || condition["reason"] != reason ||
		!strings.Contains(message, "agentctl agent accept-deletions "+r.name) {
		return fmt.Errorf("the Agent shows %v, condition %v", got, condition)
	}
	return nil
}

func conditionIn(agent *unstructured.Unstructured, kind string) map[string]any {
	list, _, _ := unstructured.NestedSlice(agent.Object, "status", "conditions")
	for _, c := range list {
		if m, _ := c.(map[string]any); m["type"] == kind {
			return m
		}
	}
	return nil
}

// begun is a check that hub and spoke have a history in common, which the spoke
// keeps.
func (r *remote) begun(ctx context.Context) error {
	kept, err := r.w.spoke.Resource(configMaps, r.namespace).Get(ctx, "argomesh-agent", metav1.GetOptions{})
	if err != nil {
		return err
	}
	token, _, _ := unstructured.NestedString(kept.Object, "data", "token")
	agent, err := r.w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, r.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	tokens, _, _ := unstructured.NestedStringSlice(agent.Object, "status", "history", "tokens")
	if len(tokens) < 2 || tokens[0] != token { // with the second the hub knows that the first was kept
		return fmt.Errorf("the hub has handed out %q, the spoke keeps %q", tokens, token)
	}
	return nil
}

// A hub that has lost much of a collection at once, while nobody looked, looks like one
// whose owners have deleted it. A design that takes absence for intent removes it
// everywhere.
func TestHistoryManyAbsences(t *testing.T) {
	t.Parallel()
	w, ctx := theQuietWorldAlone(t), t.Context()
	r := w.connect(t, "lossy", "managed")
	const apps, lost = 30, 15
	createAll(t, r.hub, apps, func(i int) *unstructured.Unstructured { return r.application(fmt.Sprint("app-", i)) })
	hub, spoke := record(t, r.hub), record(t, r.spoke)
	eventually(t, "both sides are equal at first", func() error { return r.agree(hub, spoke) })
	eventually(t, "the history has begun", func() error { return r.begun(ctx) })

	if err := w.principal.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	each(t, lost, func(ctx context.Context, i int) error {
		return r.hub.Delete(ctx, fmt.Sprint("app-", i), metav1.DeleteOptions{})
	})
	if err := w.principal.Start(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deletions are held", func() error { return r.holds(ctx, "TooMany", lost) })
	// What is there goes on: a change comes, and what is new.
	patch := []byte(`{"spec":{"source":{"targetRevision":"2"}}}`)
	if _, err := r.hub.Patch(ctx, "app-29", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	createAll(t, r.hub, 1, func(int) *unstructured.Unstructured { return r.application("new") })
	eventually(t, "a change comes", func() error {
		return errors.Join(
			field(ctx, r.spoke, "app-29", "2", "spec", "source", "targetRevision"),
			field(ctx, r.spoke, "new", "1", "spec", "source", "targetRevision"))
	})
	// So it is for another process of either side.
	if err := errors.Join(w.principal.Restart(ctx), r.agent.Restart(ctx)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent is back", func() error { return r.connected(ctx, true) })
	eventually(t, "the deletions are still held", func() error { return r.holds(ctx, "TooMany", lost) })
	if len(spoke.objects()) != apps+1 {
		t.Errorf("the spoke has %d Applications, want all %d", len(spoke.objects()), apps+1)
	}

	out, err := w.h.Agentctl(ctx, w.hub, "agent", "accept-deletions", r.name, "--yes")
	if err != nil {
		t.Fatalf("accept-deletions: %v\n%s", err, out)
	}
	eventually(t, "both sides are equal", func() error { return r.agree(hub, spoke) })
	eventually(t, "nothing is held any more", func() error { return r.holds(ctx, "", 0) })
	eventually(t, "the acceptance is used up", func() error {
		agent, err := w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, r.name, metav1.GetOptions{})
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
	w, ctx := theQuietWorld(t), t.Context()
	r := w.connect(t, "reborn", "autonomous")
	const apps = 3
	createAll(t, r.spoke, apps, func(i int) *unstructured.Unstructured { return r.application(fmt.Sprint("app-", i)) })
	hub, spoke := record(t, r.hub), record(t, r.spoke)
	eventually(t, "the hub shows them", func() error { return r.agree(spoke, hub) })
	eventually(t, "the history has begun", func() error { return r.begun(ctx) })

	if err := r.agent.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	each(t, apps, func(ctx context.Context, i int) error {
		return r.spoke.Delete(ctx, fmt.Sprint("app-", i), metav1.DeleteOptions{})
	})
	if err := w.spoke.Resource(configMaps, r.namespace).Delete(ctx, "argomesh-agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	createAll(t, r.spoke, 1, func(int) *unstructured.Unstructured { return r.application("new") })
	if err := r.agent.Start(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deletions are held", func() error { return r.holds(ctx, "HistoryBroken", apps) })
	eventually(t, "what is new is shown", func() error {
		return field(ctx, r.hub, "new", "1", "spec", "source", "targetRevision")
	})
	hub.caughtUp(t, r.hub)
	if len(hub.objects()) != apps+1 {
		t.Errorf("the hub shows %d Applications, want all %d", len(hub.objects()), apps+1)
	}
	out, err := w.h.Agentctl(ctx, w.hub, "agent", "accept-deletions", r.name, "--yes")
	if err != nil {
		t.Fatalf("accept-deletions: %v\n%s", err, out)
	}
	eventually(t, "both sides are equal", func() error { return r.agree(spoke, hub) })
	eventually(t, "nothing is held any more", func() error { return r.holds(ctx, "", 0) })
	eventually(t, "a new history has begun", func() error { return r.begun(ctx) })
}

// A spoke that is restored while its agent lives does not keep what it did: that shows on
// its next connection, and on the one that it has with the next token.
func TestHistoryForgottenWhileTheAgentLives(t *testing.T) {
	t.Parallel()
	for name, interrupted := range map[string]bool{"its connection breaks": true, "its connection lasts": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, ctx := theQuietWorld(t), t.Context()
			r := w.connect(t, map[bool]string{true: "restored-cut", false: "restored"}[interrupted], "autonomous")
			eventually(t, "the history has begun", func() error { return r.begun(ctx) })
			before, err := r.history(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if interrupted {
				r.network.Cut()
			}
			if err := w.spoke.Resource(configMaps, r.namespace).Delete(ctx, "argomesh-agent", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if interrupted {
				r.network.Mend()
			}
			eventually(t, "another history has begun", func() error {
				now, err := r.history(ctx)
				if err == nil && now == before {
					err = errors.New("it is the one before")
				}
				return errors.Join(err, r.begun(ctx))
			})
		})
	}
}

// history is the id of the history that the Agent shows.
func (r *remote) history(ctx context.Context) (string, error) {
	agent, err := r.w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, r.name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	id, _, err := unstructured.NestedString(agent.Object, "status", "history", "id")
	return id, err
}

// A spoke that forgot, and yet lacks nothing, needs nobody's attention.
func TestHistoryForgotten(t *testing.T) {
	t.Parallel()
	w, ctx := theQuietWorld(t), t.Context()
	r := w.connect(t, "amnesic", "managed")
	createAll(t, r.hub, 2, func(i int) *unstructured.Unstructured { return r.application(fmt.Sprint("app-", i)) })
	hub, spoke := record(t, r.hub), record(t, r.spoke)
	eventually(t, "both sides are equal at first", func() error { return r.agree(hub, spoke) })
	eventually(t, "the history has begun", func() error { return r.begun(ctx) })
	if err := r.agent.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	memory := w.spoke.Resource(configMaps, r.namespace)
	if err := memory.Delete(ctx, "argomesh-agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := memory.Get(ctx, "argomesh-agent", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the memory of the spoke: %v", err)
	}
	if err := r.agent.Start(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new history has begun", func() error { return r.begun(ctx) })
	eventually(t, "nothing is held", func() error { return r.holds(ctx, "", 0) })
	if err := r.hub.Delete(ctx, "app-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a deletion passes", func() error { return r.agree(hub, spoke) })
}

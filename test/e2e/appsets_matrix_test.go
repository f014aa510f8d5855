//go:build linux && matrix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// standIn is the application controller of a spoke, in as far as an ApplicationSet can
// tell: it carries out operations at once, and deletions too.
type standIn struct {
	agent string
	where dynamic.ResourceInterface

	mu       sync.Mutex // guards what follows
	synced   []string   // in order
	cascaded []string
}

// run works until ctx is done.
func (s *standIn) run(ctx context.Context) error {
	for {
		list, err := s.where.List(ctx, metav1.ListOptions{})
		if err == nil {
			for i := range list.Items {
				s.look(ctx, &list.Items[i])
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// look does what is to be done with one Application. What fails is done at the next
// look.
func (s *standIn) look(ctx context.Context, app *unstructured.Unstructured) {
	now := time.Now().UTC().Format(time.RFC3339)
	status, _, _ := unstructured.NestedMap(app.Object, "status")
	operation, asked, _ := unstructured.NestedMap(app.Object, "operation")
	var done *[]string
	switch {
	case app.GetDeletionTimestamp() != nil && slices.Contains(app.GetFinalizers(), cascade):
		app.SetFinalizers(nil)
		done = &s.cascaded
	case app.GetDeletionTimestamp() != nil || app.GetAnnotations()[skipReconcile] != "":
		return
	case asked:
		delete(app.Object, "operation")
		app.Object["status"] = map[string]any{
			"sync": map[string]any{"status": "Synced", "revision": "1"}, "health": map[string]any{"status": "Healthy"}, "reconciledAt": now,
			"operationState": map[string]any{
				"operation": operation, "phase": "Succeeded", "message": "done", "startedAt": now, "finishedAt": now,
				"syncResult": map[string]any{"revision": "1"},
			},
		}
		done = &s.synced
	case len(status) == 0:
		app.Object["status"] = map[string]any{
			"sync": map[string]any{"status": "OutOfSync", "revision": "1"}, "health": map[string]any{"status": "Missing"}, "reconciledAt": now,
		}
	default:
		return
	}
	if _, err := s.where.Update(ctx, app, metav1.UpdateOptions{}); err != nil || done == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*done = append(*done, app.GetName())
}

func (s *standIn) did(list *[]string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(*list)
}

// TestApplicationSets spreads an Application over the agents that a label selects, one
// wave after the other, and takes it away from one that the label no longer selects.
func TestApplicationSets(t *testing.T) {
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "argocd", "redis-server")
	h, ctx := harnesstest.New(t), t.Context()
	ours, err := quietManifests(h)
	if err != nil {
		t.Fatal(err)
	}
	hub, err := h.StartControlPlane(ctx, harness.ControlPlaneConfig{
		Name: "hub", Manifests: ours, Controllers: []string{"garbage-collector-controller"}, // which deletes what a set owned
	})
	if err != nil {
		t.Fatal(err)
	}
	spoke, err := startQuietControlPlane(ctx, h, "spoke", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.StartArgoCD(ctx, harness.ArgoCDConfig{ControlPlane: hub, ApplicationSets: true, DefaultProject: true}); err != nil {
		t.Fatal(err)
	}
	identities := map[string]*harness.WorkloadAPI{}
	for _, name := range []string{"principal", "wave-1", "wave-2"} {
		if identities[name], err = h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
			Name: "spire-" + name, TrustDomain: trustDomain, CADir: h.Path("ca"), Entries: []string{idOf(name)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	principal, err := h.StartPrincipal(ctx, harness.PrincipalConfig{
		ControlPlane: hub, WorkloadAPI: identities["principal"], Settings: harness.Settings{"mapping.by": "destination"},
	})
	if err != nil {
		t.Fatal(err)
	}
	registry := hub.Resource(agents, harness.ArgoCDNamespace)
	controllers := map[string]*standIn{}
	order := make(chan struct{}) // closed at the end
	var running sync.WaitGroup
	t.Cleanup(func() { close(order); running.Wait() })
	for wave, name := range []string{"wave-1", "wave-2"} {
		if err := spoke.EnsureNamespace(ctx, name); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Agentctl(ctx, hub, "agent", "create", name, "--mode", "managed", "--spiffe-id", idOf(name), "--wait"); err != nil {
			t.Fatal(err)
		}
		patch(t, registry, name, map[string]any{"spec": map[string]any{"labels": map[string]any{"web": "yes", "wave": fmt.Sprint(wave + 1)}}})
		if _, err := h.StartAgent(ctx, harness.AgentConfig{
			Name: name, Mode: "managed", ControlPlane: spoke, WorkloadAPI: identities[name],
			PrincipalAddress: principal.Address, PrincipalIDs: []string{principalID}, Settings: harness.Settings{"namespace": name},
		}); err != nil {
			t.Fatal(err)
		}
		s := &standIn{agent: name, where: spoke.Resource(harness.Applications, name)}
		controllers[name] = s
		working, stop := context.WithCancel(context.WithoutCancel(ctx))
		running.Go(func() { _ = s.run(working) }) // it returns nil
		running.Go(func() { <-order; stop() })
	}

	set := func(name string, preserve bool) {
		t.Helper()
		create(t, hub.Resource(applicationSets, harness.ArgoCDNamespace), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"generators": []any{map[string]any{"clusters": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"web": "yes"}}}}},
				"syncPolicy": map[string]any{"preserveResourcesOnDeletion": preserve},
				"strategy": map[string]any{"type": "RollingSync", "rollingSync": map[string]any{"steps": []any{
					map[string]any{"matchExpressions": []any{map[string]any{"key": "wave", "operator": "In", "values": []any{"1"}}}},
					map[string]any{"matchExpressions": []any{map[string]any{"key": "wave", "operator": "In", "values": []any{"2"}}}},
				}}},
				"template": map[string]any{
					"metadata": map[string]any{"name": name + "-{{name}}", "labels": map[string]any{"wave": "{{metadata.labels.wave}}"}},
					"spec": map[string]any{
						"project": "default", "destination": map[string]any{"name": "{{name}}", "namespace": "web"},
						"source": map[string]any{"repoURL": "https://git.example.com/r.git", "path": ".", "targetRevision": "1"},
					},
				},
			},
		}})
	}
	apps := hub.Resource(harness.Applications, harness.ArgoCDNamespace)
	set("kept", true)
	set("gone", false)
	for _, name := range []string{"kept", "gone"} {
		for _, agent := range []string{"wave-1", "wave-2"} {
			eventually(t, name+" is on "+agent, func() error { return there(ctx, controllers[agent].where, name+"-"+agent) })
		}
		if err := errors.Join(gone(ctx, controllers["wave-1"].where, name+"-wave-2"), gone(ctx, controllers["wave-2"].where, name+"-wave-1")); err != nil {
			t.Error(err)
		}
	}
	// One wave after the other. RollingSync counts no sync of the second in which it
	// asked for it, and waits for some change then.
	looks := 0
	look := func() {
		looks++
		for _, name := range []string{"kept", "gone"} {
			for _, agent := range []string{"wave-1", "wave-2"} {
				_ = mergePatch(ctx, apps, name+"-"+agent, map[string]any{"metadata": map[string]any{"labels": map[string]any{"look": fmt.Sprint(looks)}}}) // it may not be there yet
			}
		}
	}
	for _, name := range []string{"kept", "gone"} {
		first := 0
		eventually(t, "the rollout of "+name+" is through", func() error {
			one, two := controllers["wave-1"], controllers["wave-2"]
			if slices.Contains(two.did(&two.synced), name+"-wave-2") && first == 0 {
				if first = len(one.did(&one.synced)); !slices.Contains(one.did(&one.synced), name+"-wave-1") {
					t.Fatal("the second wave was synced before the first")
				}
			}
			look()
			return errors.Join(healthy(ctx, apps, name+"-wave-1"), healthy(ctx, apps, name+"-wave-2"))
		})
	}

	// The label goes from one agent. A set that keeps resources lets its Application go;
	// one that does not has it deleted with its workloads.
	patch(t, registry, "wave-2", map[string]any{"spec": map[string]any{"labels": map[string]any{"web": "no"}}})
	two := controllers["wave-2"]
	for _, name := range []string{"kept-wave-2", "gone-wave-2"} {
		eventually(t, name+" leaves the spoke", func() error { return gone(ctx, two.where, name) })
		eventually(t, name+" leaves the hub", func() error { return gone(ctx, apps, name) })
	}
	if got := two.did(&two.cascaded); !slices.Equal(got, []string{"gone-wave-2"}) {
		t.Errorf("deleted with their workloads are %q", got)
	}

	// A set goes with its Application, of which the workloads stay. The other leaves
	// everything where it is: only now is it known that the garbage collector knows of
	// Applications, and does not take those of a set that is gone for orphans of its own.
	sets := hub.Resource(applicationSets, harness.ArgoCDNamespace)
	remove := func(name string, policy metav1.DeletionPropagation) {
		t.Helper()
		if err := sets.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the set "+name+" is gone", func() error { return gone(ctx, sets, name) })
	}
	one := controllers["wave-1"]
	remove("kept", metav1.DeletePropagationBackground)
	eventually(t, "the Application of the set leaves the spoke", func() error { return gone(ctx, one.where, "kept-wave-1") })
	remove("gone", metav1.DeletePropagationOrphan)
	eventually(t, "the other's is nobody's", func() error {
		return field(ctx, apps, "gone-wave-1", nil, "metadata", "ownerReferences")
	})
	if err := errors.Join(healthy(ctx, apps, "gone-wave-1"), there(ctx, one.where, "gone-wave-1")); err != nil {
		t.Error(err)
	}
	if got := one.did(&one.cascaded); len(got) > 0 {
		t.Errorf("deleted with their workloads are %q", got)
	}
}

//go:build linux && matrix

package sync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
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
	case app.GetDeletionTimestamp() != nil && slices.Contains(app.GetFinalizers(), env.Cascade):
		app.SetFinalizers(nil)
		done = &s.cascaded
	case app.GetDeletionTimestamp() != nil || app.GetAnnotations()[env.SkipReconcile] != "":
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
	ours, err := env.BareManifests(h)
	if err != nil {
		t.Fatal(err)
	}
	hub, err := h.StartControlPlane(ctx, harness.ControlPlaneConfig{
		Name: "hub", Manifests: ours, Controllers: []string{"garbage-collector-controller"}, // which deletes what a set owned
	})
	if err != nil {
		t.Fatal(err)
	}
	spoke, err := env.StartBareControlPlane(ctx, h, "spoke", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.StartArgoCD(ctx, harness.ArgoCDConfig{ControlPlane: hub, ApplicationSets: true, DefaultProject: true}); err != nil {
		t.Fatal(err)
	}
	identities := map[string]*harness.WorkloadAPI{}
	for _, name := range []string{"principal", "wave-1", "wave-2", "own"} {
		if identities[name], err = h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
			Name: "spire-" + name, TrustDomain: env.TrustDomain, CADir: h.Path("ca"), Entries: []string{env.SPIFFEID(name)},
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
	registry := hub.Resource(env.Agents, harness.ArgoCDNamespace)
	controllers := map[string]*standIn{}
	order := make(chan struct{}) // closed at the end
	var running sync.WaitGroup
	t.Cleanup(func() { close(order); running.Wait() })
	for wave, name := range []string{"wave-1", "wave-2"} {
		if err := spoke.EnsureNamespace(ctx, name); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Agentctl(ctx, hub, "agent", "create", name, "--mode", "managed", "--spiffe-id", env.SPIFFEID(name), "--wait"); err != nil {
			t.Fatal(err)
		}
		env.Patch(t, registry, name, map[string]any{"spec": map[string]any{"labels": map[string]any{"web": "yes", "wave": fmt.Sprint(wave + 1)}}})
		if _, err := h.StartAgent(ctx, harness.AgentConfig{
			Name: name, Mode: "managed", ControlPlane: spoke, WorkloadAPI: identities[name],
			PrincipalAddress: principal.Address, PrincipalIDs: []string{env.PrincipalID}, Settings: harness.Settings{"namespace": name},
		}); err != nil {
			t.Fatal(err)
		}
		s := &standIn{agent: name, where: spoke.Resource(harness.Applications, name)}
		controllers[name] = s
		working, stop := context.WithCancel(context.WithoutCancel(ctx))
		running.Go(func() { _ = s.run(working) }) // it returns nil
		running.Go(func() { <-order; stop() })
	}

	t.Run("on a spoke", func(t *testing.T) { setOfASpoke(t, h, hub, spoke, principal, identities["own"]) })
	t.Run("of git", func(t *testing.T) { setsOfGit(t, h, hub, controllers) })

	set := func(name string, preserve bool) {
		t.Helper()
		env.Create(t, hub.Resource(applicationSets, harness.ArgoCDNamespace), &unstructured.Unstructured{Object: map[string]any{
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
			env.Eventually(t, name+" is on "+agent, func() error { return env.Exists(ctx, controllers[agent].where, name+"-"+agent) })
		}
		if err := errors.Join(env.Gone(ctx, controllers["wave-1"].where, name+"-wave-2"), env.Gone(ctx, controllers["wave-2"].where, name+"-wave-1")); err != nil {
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
				_ = env.MergePatch(ctx, apps, name+"-"+agent, map[string]any{"metadata": map[string]any{"labels": map[string]any{"look": fmt.Sprint(looks)}}}) // it may not be there yet
			}
		}
	}
	for _, name := range []string{"kept", "gone"} {
		first := 0
		env.Eventually(t, "the rollout of "+name+" is through", func() error {
			one, two := controllers["wave-1"], controllers["wave-2"]
			if slices.Contains(two.did(&two.synced), name+"-wave-2") && first == 0 {
				if first = len(one.did(&one.synced)); !slices.Contains(one.did(&one.synced), name+"-wave-1") {
					t.Fatal("the second wave was synced before the first")
				}
			}
			look()
			return errors.Join(env.Healthy(ctx, apps, name+"-wave-1"), env.Healthy(ctx, apps, name+"-wave-2"))
		})
	}

	// The label goes from one agent. A set that keeps resources lets its Application go;
	// one that does not has it deleted with its workloads.
	env.Patch(t, registry, "wave-2", map[string]any{"spec": map[string]any{"labels": map[string]any{"web": "no"}}})
	two := controllers["wave-2"]
	for _, name := range []string{"kept-wave-2", "gone-wave-2"} {
		env.Eventually(t, name+" leaves the spoke", func() error { return env.Gone(ctx, two.where, name) })
		env.Eventually(t, name+" leaves the hub", func() error { return env.Gone(ctx, apps, name) })
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
		env.Eventually(t, "the set "+name+" is gone", func() error { return env.Gone(ctx, sets, name) })
	}
	one := controllers["wave-1"]
	remove("kept", metav1.DeletePropagationBackground)
	env.Eventually(t, "the Application of the set leaves the spoke", func() error { return env.Gone(ctx, one.where, "kept-wave-1") })
	remove("gone", metav1.DeletePropagationOrphan)
	env.Eventually(t, "the other's is nobody's", func() error {
		return env.FieldIs(ctx, apps, "gone-wave-1", nil, "metadata", "ownerReferences")
	})
	if err := errors.Join(env.Healthy(ctx, apps, "gone-wave-1"), env.Exists(ctx, one.where, "gone-wave-1")); err != nil {
		t.Error(err)
	}
	if got := one.did(&one.cascaded); len(got) > 0 {
		t.Errorf("deleted with their workloads are %q", got)
	}
}

// setOfASpoke lets the ApplicationSet controller of an autonomous spoke make Applications,
// which the hub shows for as long as the set has them.
func setOfASpoke(t *testing.T, h *harness.Harness, hub, spoke *harness.ControlPlane, principal *harness.Principal, identity *harness.WorkloadAPI) {
	ctx := t.Context()
	if _, err := h.StartArgoCD(ctx, harness.ArgoCDConfig{ControlPlane: spoke, ApplicationSets: true, DefaultProject: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Agentctl(ctx, hub, "agent", "create", "own", "--mode", "autonomous", "--spiffe-id", env.SPIFFEID("own"), "--wait"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.StartAgent(ctx, harness.AgentConfig{
		Name: "own", Mode: "autonomous", ControlPlane: spoke, WorkloadAPI: identity,
		PrincipalAddress: principal.Address, PrincipalIDs: []string{env.PrincipalID},
	}); err != nil {
		t.Fatal(err)
	}
	elements := func(names ...string) []any {
		var list []any
		for _, name := range names {
			list = append(list, map[string]any{"name": name})
		}
		return []any{map[string]any{"list": map[string]any{"elements": list}}}
	}
	sets := spoke.Resource(applicationSets, harness.ArgoCDNamespace)
	env.Create(t, sets, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": map[string]any{"name": "own"},
		"spec": map[string]any{
			"generators": elements("a", "b"),
			"syncPolicy": map[string]any{"preserveResourcesOnDeletion": true}, // there is no controller to delete them
			"template": map[string]any{
				"metadata": map[string]any{"name": "own-{{name}}"},
				"spec": map[string]any{
					"project": "default", "destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": "web"},
					"source": map[string]any{"repoURL": "https://git.example.com/r.git", "path": ".", "targetRevision": "1"},
				},
			},
		},
	}})
	mirrors := hub.Resource(harness.Applications, "own")
	for _, name := range []string{"own-a", "own-b"} {
		env.Eventually(t, "the hub shows "+name, func() error { return env.Exists(ctx, mirrors, name) })
	}
	env.Patch(t, sets, "own", map[string]any{"spec": map[string]any{"generators": elements("b", "c")}})
	env.Eventually(t, "what the set has no more leaves the hub", func() error { return env.Gone(ctx, mirrors, "own-a") })
	env.Eventually(t, "what it has anew comes", func() error { return errors.Join(env.Exists(ctx, mirrors, "own-b"), env.Exists(ctx, mirrors, "own-c")) })
}

// setsOfGit lets a repository say which Applications there are: by its folders, by its
// files, which name the agent, and by its folders times the agents that a label selects.
func setsOfGit(t *testing.T, h *harness.Harness, hub *harness.ControlPlane, controllers map[string]*standIn) {
	ctx := t.Context()
	configMap := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: part}\n"
	repository, err := h.NewRepository(ctx, "fleet", map[string]string{
		"parts/front/configmap.yaml": configMap, "parts/back/configmap.yaml": configMap,
		"places/shop.json": `{"app": "shop", "agent": "wave-1"}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	git := func(what string, of map[string]any) map[string]any {
		return map[string]any{"git": map[string]any{"repoURL": repository.URL, "revision": harness.Branch, what: []any{of}}}
	}
	folders := git("directories", map[string]any{"path": "parts/*"})
	sets, apps := hub.Resource(applicationSets, harness.ArgoCDNamespace), hub.Resource(harness.Applications, harness.ArgoCDNamespace)
	set := func(name string, generator map[string]any, app, agent, path string) {
		env.Create(t, sets, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"generators": []any{generator},
				"syncPolicy": map[string]any{"preserveResourcesOnDeletion": true},
				"template": map[string]any{
					"metadata": map[string]any{"name": app},
					"spec": map[string]any{
						"project": "default", "destination": map[string]any{"name": agent, "namespace": "web"},
						"source": map[string]any{"repoURL": repository.URL, "path": path, "targetRevision": harness.Branch},
					},
				},
			},
		}})
	}
	set("folders", folders, "folder-{{path.basename}}", "wave-1", "{{path}}")
	set("files", git("files", map[string]any{"path": "places/*.json"}), "{{app}}", "{{agent}}", "parts")
	set("product", map[string]any{"matrix": map[string]any{"generators": []any{
		folders,
		map[string]any{"clusters": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"web": "yes"}}}},
	}}}, "{{path.basename}}-{{name}}", "{{name}}", "{{path}}")

	one, two := controllers["wave-1"].where, controllers["wave-2"].where
	arrive := func(names map[string]dynamic.ResourceInterface) {
		t.Helper()
		for name, where := range names {
			env.Eventually(t, name+" is on its spoke", func() error { return env.Exists(ctx, where, name) })
		}
	}
	arrive(map[string]dynamic.ResourceInterface{
		"folder-front": one, "folder-back": one, "shop": one,
		"front-wave-1": one, "back-wave-1": one, "front-wave-2": two, "back-wave-2": two,
	})
	if err := errors.Join(env.Gone(ctx, two, "front-wave-1"), env.Gone(ctx, one, "front-wave-2"), env.Gone(ctx, two, "shop")); err != nil {
		t.Error(err)
	}

	// One folder goes, another comes, and a file names another agent.
	if err := os.RemoveAll(filepath.Join(repository.Dir, "parts", "back")); err != nil {
		t.Fatal(err)
	}
	if _, err := repository.Commit(ctx, "another part, another place", map[string]string{
		"parts/side/configmap.yaml": configMap, "places/shop.json": `{"app": "shop", "agent": "wave-2"}`,
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"folders", "files", "product"} {
		env.Patch(t, sets, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"argocd.argoproj.io/application-set-refresh": "true"}}})
	}
	arrive(map[string]dynamic.ResourceInterface{"folder-side": one, "side-wave-1": one, "side-wave-2": two, "shop": two})
	for name, where := range map[string]dynamic.ResourceInterface{"folder-back": one, "back-wave-1": one, "back-wave-2": two} {
		env.Eventually(t, name+" leaves its spoke", func() error { return env.Gone(ctx, where, name) })
		env.Eventually(t, name+" leaves the hub", func() error { return env.Gone(ctx, apps, name) })
	}
	env.Eventually(t, "the agent that a file named before has let go", func() error { return env.Gone(ctx, one, "shop") })
	if err := errors.Join(env.Exists(ctx, apps, "shop"), env.Exists(ctx, one, "folder-front"), env.Exists(ctx, one, "front-wave-1"), env.Exists(ctx, two, "front-wave-2")); err != nil {
		t.Error(err)
	}
	background := metav1.DeletePropagationBackground
	for _, name := range []string{"folders", "files", "product"} {
		if err := sets.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			t.Fatal(err)
		}
	}
	for name, where := range map[string]dynamic.ResourceInterface{
		"folder-front": one, "folder-side": one, "shop": two, "front-wave-1": one, "side-wave-1": one, "front-wave-2": two, "side-wave-2": two,
	} {
		env.Eventually(t, name+" goes with its set", func() error { return errors.Join(env.Gone(ctx, where, name), env.Gone(ctx, apps, name)) })
	}
	for name, agent := range controllers {
		if got := agent.did(&agent.cascaded); len(got) > 0 {
			t.Errorf("on %s were deleted with their workloads: %q", name, got)
		}
	}
}

//go:build linux && matrix

package sync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// hybrid is a hub whose own application controller deploys to a cluster, which then
// becomes the spoke of an agent too.
type hybrid struct {
	h         *harness.Harness
	hub, edge *harness.ControlPlane
	principal *harness.Principal
	argo      *env.Argo // for its Applications
}

func startHybrid(t *testing.T) *hybrid {
	t.Helper()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "argocd", "redis-server", "kwok")
	w := &hybrid{h: harnesstest.New(t)}
	ctx := t.Context()
	repository, err := w.h.NewRepository(ctx, "repo", harness.GuestbookFiles())
	if err != nil {
		t.Fatal(err)
	}
	w.argo = &env.Argo{Repository: repository}
	ours, err := env.BareManifests(w.h)
	if err != nil {
		t.Fatal(err)
	}
	if w.hub, err = w.h.StartControlPlane(ctx, harness.ControlPlaneConfig{
		Name: "hub", Manifests: ours, Controllers: []string{"namespace-controller", "garbage-collector-controller"},
	}); err != nil {
		t.Fatal(err)
	}
	if w.edge, err = w.h.StartControlPlane(ctx, harness.ControlPlaneConfig{Name: "edge", Etcd: w.hub.Etcd, Workloads: true}); err != nil {
		t.Fatal(err)
	}
	if _, err = w.h.StartArgoCD(ctx, harness.ArgoCDConfig{ControlPlane: w.hub, Controller: true, DefaultProject: true}); err != nil {
		t.Fatal(err)
	}
	return w
}

// push makes the edge a cluster of the hub's own.
func (w *hybrid) push(t *testing.T) {
	t.Helper()
	env.PushCluster(t, w.hub, w.edge, "pushed")
}

// running are the UIDs of the workloads of an Application, and of their pods.
func (w *hybrid) running(t *testing.T, namespace string) map[string]types.UID {
	t.Helper()
	out := map[string]types.UID{}
	for _, resource := range []string{"deployments", "pods"} {
		gvr := env.Deployments
		if resource == "pods" {
			gvr = corev1.SchemeGroupVersion.WithResource(resource)
		}
		list, err := w.edge.Resource(gvr, namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			out[resource+" "+list.Items[i].GetName()] = list.Items[i].GetUID()
		}
	}
	return out
}

// TestHybridHub puts a principal beside an Argo CD that deploys by itself, and moves one
// of its Applications to an agent on the cluster where it is already.
func TestHybridHub(t *testing.T) {
	w := startHybrid(t)
	ctx := t.Context()
	w.push(t)
	apps := w.hub.Resource(harness.Applications, harness.ArgoCDNamespace)
	for _, name := range []string{"moves", "stays"} {
		app := w.argo.Guestbook(name, harness.ArgoCDNamespace, "pushed")
		app.Object["spec"].(map[string]any)["project"] = "default"
		app.SetFinalizers([]string{env.Cascade})
		env.Create(t, apps, app)
	}
	for _, name := range []string{"moves", "stays"} {
		env.Eventually(t, "the hub deploys "+name, func() error { return env.Healthy(ctx, apps, name) })
	}
	before := w.running(t, "moves")
	if len(before) < 2 {
		t.Fatalf("running are %v", before)
	}

	// The principal, and an agent beside the spoke's own Argo CD.
	identities := map[string]*harness.WorkloadAPI{}
	for _, name := range []string{"principal", env.Managed} {
		var err error
		if identities[name], err = w.h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
			Name: "spire-" + name, TrustDomain: env.TrustDomain, CADir: w.h.Path("ca"), Entries: []string{env.SPIFFEID(name)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if w.principal, err = w.h.StartPrincipal(ctx, harness.PrincipalConfig{
		ControlPlane: w.hub, WorkloadAPI: identities["principal"],
		Settings: harness.Settings{"mapping.by": "destination", "mapping.selector": "by=agent", "log.level": "debug"},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.h.Agentctl(ctx, w.hub, "agent", "create", env.Managed, "--mode", "managed", "--spiffe-id", env.SPIFFEID(env.Managed), "--wait"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.h.StartArgoCD(ctx, harness.ArgoCDConfig{ControlPlane: w.edge, Controller: true, DefaultProject: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.h.StartAgent(ctx, harness.AgentConfig{
		Name: env.Managed, Mode: "managed", ControlPlane: w.edge, WorkloadAPI: identities[env.Managed],
		PrincipalAddress: w.principal.Address, PrincipalIDs: []string{env.PrincipalID},
	}); err != nil {
		t.Fatal(err)
	}
	registry := w.hub.Resource(env.Agents, harness.ArgoCDNamespace)
	env.Eventually(t, "the agent is connected", func() error { return env.FieldIs(ctx, registry, env.Managed, true, "status", "connected") })

	// The agent's cluster is skipped by the hub's controller, the other is not.
	clusters := w.hub.Resource(env.Secrets, harness.ArgoCDNamespace)
	skipped := func(name string) error {
		if got := env.Get(t, clusters, name).GetAnnotations()[env.SkipReconcile]; got != "true" {
			return fmt.Errorf("%s is %q", name, got)
		}
		return nil
	}
	if err := skipped("cluster-" + env.Managed); err != nil {
		t.Error(err)
	}
	if skipped("pushed") == nil {
		t.Error("the push cluster is skipped")
	}
	env.Patch(t, clusters, "cluster-"+env.Managed, map[string]any{"metadata": map[string]any{"annotations": map[string]any{env.SkipReconcile: nil}}})
	env.Eventually(t, "the annotation is put back", func() error { return skipped("cluster-" + env.Managed) })

	// Projects and their repositories: those of the agent's cluster arrive, those of the
	// push cluster do not.
	projects, onSpoke := w.hub.Resource(harness.AppProjects, harness.ArgoCDNamespace), w.edge.Resource(env.Secrets, harness.ArgoCDNamespace)
	env.Create(t, clusters, repositorySecret("repo-pushed", "for-pushed")) // before what is to arrive
	env.Create(t, projects, projectFor("for-pushed", "pushed"))
	env.Create(t, clusters, repositorySecret("repo-agent", "for-agent"))
	env.Create(t, projects, projectFor("for-agent", env.Managed))
	spokeProjects := w.edge.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	env.Eventually(t, "the project for the agent arrives", func() error { return env.Exists(ctx, spokeProjects, "for-agent") })
	env.Eventually(t, "its repository arrives", func() error {
		return env.FieldIs(ctx, onSpoke, "repo-agent", env.Base64(env.Password), "data", "password")
	})
	if err := errors.Join(env.Gone(ctx, spokeProjects, "for-pushed"), env.Gone(ctx, onSpoke, "repo-pushed")); err != nil {
		t.Errorf("what is for the push cluster: %v", err)
	}

	// One Application moves, by destination and label, in one step.
	spoke := w.edge.Resource(harness.Applications, harness.ArgoCDNamespace)
	env.Patch(t, apps, "moves", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"by": "agent"}},
		"spec":     map[string]any{"destination": map[string]any{"name": env.Managed}},
	})
	env.Eventually(t, "the spoke's Argo CD has it", func() error { return env.Healthy(ctx, spoke, "moves") })
	env.Eventually(t, "the hub shows what the spoke says", func() error {
		theirs, _, _ := unstructured.NestedString(env.Get(t, spoke, "moves").Object, "status", "reconciledAt")
		return errors.Join(env.Healthy(ctx, apps, "moves"), env.FieldIs(ctx, apps, "moves", theirs, "status", "reconciledAt"))
	})
	if after := w.running(t, "moves"); !maps.Equal(before, after) {
		t.Errorf("running were %v, and are %v", before, after)
	}
	if env.Get(t, apps, "moves").GetDeletionTimestamp() != nil {
		t.Error("it is being deleted")
	}

	// The other one is still the hub's, and nothing to the principal.
	env.Patch(t, w.edge.Resource(env.Deployments, "stays"), "guestbook", map[string]any{"spec": map[string]any{"replicas": 0}})
	env.Eventually(t, "the hub's controller heals what it has", func() error {
		if err := env.FieldIs(ctx, w.edge.Resource(env.Deployments, "stays"), "guestbook", 0, "spec", "replicas"); err == nil {
			return errors.New("it is still changed")
		}
		return env.Healthy(ctx, apps, "stays")
	})
	if err := env.Gone(ctx, spoke, "stays"); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(w.principal.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(log, []byte("stays")) {
		t.Error("the principal's log tells of an Application that is not for agents")
	}

	// An app of apps of the hub's own, whose child is for the agent.
	if _, err := w.argo.Repository.Commit(ctx, "an app of apps", map[string]string{"family/child.yaml": `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: child
  labels: {by: agent}
spec:
  project: default
  destination: {name: ` + env.Managed + `, namespace: child}
  source: {repoURL: "` + w.argo.Repository.URL + `", path: ` + harness.GuestbookPath + `, targetRevision: ` + harness.Branch + `}
  syncPolicy: {automated: {}, syncOptions: [CreateNamespace=true]}
`}); err != nil {
		t.Fatal(err)
	}
	family := w.argo.Guestbook("family", harness.ArgoCDNamespace, "")
	family.Object["spec"].(map[string]any)["destination"].(map[string]any)["namespace"] = harness.ArgoCDNamespace
	family.Object["spec"].(map[string]any)["source"].(map[string]any)["path"] = "family"
	env.Create(t, apps, family)
	env.Eventually(t, "the child is deployed by the agent", func() error { return env.Healthy(ctx, spoke, "child") })
	env.Eventually(t, "the hub shows parent and child", func() error { return errors.Join(env.Healthy(ctx, apps, "family"), env.Healthy(ctx, apps, "child")) })
	if err := env.Gone(ctx, spoke, "family"); err != nil {
		t.Error(err)
	}

	// A cluster Secret that claims to be the agent's stops what is new, and the hub's
	// controller does not get it either.
	env.Create(t, clusters, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": "rival", "labels": map[string]any{"argocd.argoproj.io/secret-type": "cluster"}},
		"data":     map[string]any{"name": env.Base64(env.Managed), "server": env.Base64("https://rival.example"), "config": env.Base64("{}")},
	}})
	env.Eventually(t, "the conflict is told", func() error {
		return env.ConditionIs(ctx, registry, env.Managed, "ClusterSecretConflict", "ClusterSecretConflict", "rival")
	})
	app := w.argo.Guestbook("new", harness.ArgoCDNamespace, env.Managed)
	app.SetLabels(map[string]string{"by": "agent"})
	app.Object["spec"].(map[string]any)["project"] = "default"
	env.Create(t, apps, app)
	env.Eventually(t, "the hub's controller does not know which cluster it is", func() error {
		if text := fmt.Sprint(env.Get(t, apps, "new").Object["status"]); !strings.Contains(text, "there are 2 clusters with the same name") {
			return fmt.Errorf("the status is %s", text)
		}
		return nil
	})
	if err := errors.Join(env.Gone(ctx, spoke, "new"), env.Gone(ctx, w.edge.Resource(env.Deployments, "new"), "guestbook")); err != nil {
		t.Errorf("an Application whose cluster is in doubt was sent: %v", err)
	}
	if err := clusters.Delete(ctx, "rival", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "without the rival it is deployed, by the agent", func() error { return env.Healthy(ctx, spoke, "new") })

	// And back: the hub takes over what the agent lets go, workloads untouched.
	env.Patch(t, apps, "moves", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"by": nil}},
		"spec":     map[string]any{"destination": map[string]any{"name": "pushed"}},
	})
	env.Eventually(t, "the agent lets it go", func() error { return env.Gone(ctx, spoke, "moves") })
	env.Eventually(t, "the hub has it", func() error { return env.Healthy(ctx, apps, "moves") })
	if after := w.running(t, "moves"); !maps.Equal(before, after) {
		t.Errorf("running were %v, and are %v", before, after)
	}
	if err := w.principal.Stop(context.WithoutCancel(ctx)); err != nil {
		t.Error(err)
	}
}

//go:build linux && matrix

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
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

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

const skipReconcile = "argocd.argoproj.io/skip-reconcile"

// hybrid is a hub whose own application controller deploys to a cluster, which then
// becomes the spoke of an agent too.
type hybrid struct {
	h         *harness.Harness
	hub, edge *harness.ControlPlane
	principal *harness.Principal
	world     *world // for its Applications
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
	w.world = &world{repository: repository}
	ours, err := quietManifests(w.h)
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
	pushCluster(t, w.hub, w.edge, "pushed")
}

// pushCluster lets the Argo CD of a hub deploy to a Kubernetes cluster by itself.
func pushCluster(t *testing.T, hub, edge *harness.ControlPlane, name string) {
	t.Helper()
	rest := edge.REST()
	ca := rest.CAData
	if len(ca) == 0 {
		var err error
		if ca, err = os.ReadFile(rest.CAFile); err != nil {
			t.Fatal(err)
		}
	}
	config, err := json.Marshal(map[string]any{"bearerToken": rest.BearerToken, "tlsClientConfig": map[string]any{"caData": ca}})
	if err != nil {
		t.Fatal(err)
	}
	create(t, hub.Resource(secrets, harness.ArgoCDNamespace), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"argocd.argoproj.io/secret-type": "cluster"}},
		"data": map[string]any{
			"name": encoded(name), "server": encoded(edge.URL), "config": base64.StdEncoding.EncodeToString(config),
		},
	}})
}

// running are the UIDs of the workloads of an Application, and of their pods.
func (w *hybrid) running(t *testing.T, namespace string) map[string]types.UID {
	t.Helper()
	out := map[string]types.UID{}
	for _, resource := range []string{"deployments", "pods"} {
		gvr := deployments
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
		app := w.world.guestbook(name, harness.ArgoCDNamespace, "pushed")
		app.Object["spec"].(map[string]any)["project"] = "default"
		app.SetFinalizers([]string{cascade})
		create(t, apps, app)
	}
	for _, name := range []string{"moves", "stays"} {
		eventually(t, "the hub deploys "+name, func() error { return healthy(ctx, apps, name) })
	}
	before := w.running(t, "moves")
	if len(before) < 2 {
		t.Fatalf("running are %v", before)
	}

	// The principal, and an agent beside the spoke's own Argo CD.
	identities := map[string]*harness.WorkloadAPI{}
	for _, name := range []string{"principal", managed} {
		var err error
		if identities[name], err = w.h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
			Name: "spire-" + name, TrustDomain: trustDomain, CADir: w.h.Path("ca"), Entries: []string{idOf(name)},
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
	if _, err := w.h.Agentctl(ctx, w.hub, "agent", "create", managed, "--mode", "managed", "--spiffe-id", idOf(managed), "--wait"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.h.StartArgoCD(ctx, harness.ArgoCDConfig{ControlPlane: w.edge, Controller: true, DefaultProject: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.h.StartAgent(ctx, harness.AgentConfig{
		Name: managed, Mode: "managed", ControlPlane: w.edge, WorkloadAPI: identities[managed],
		PrincipalAddress: w.principal.Address, PrincipalIDs: []string{principalID},
	}); err != nil {
		t.Fatal(err)
	}
	registry := w.hub.Resource(agents, harness.ArgoCDNamespace)
	eventually(t, "the agent is connected", func() error { return field(ctx, registry, managed, true, "status", "connected") })

	// The agent's cluster is skipped by the hub's controller, the other is not.
	clusters := w.hub.Resource(secrets, harness.ArgoCDNamespace)
	skipped := func(name string) error {
		if got := get(t, clusters, name).GetAnnotations()[skipReconcile]; got != "true" {
			return fmt.Errorf("%s is %q", name, got)
		}
		return nil
	}
	if err := skipped("cluster-" + managed); err != nil {
		t.Error(err)
	}
	if skipped("pushed") == nil {
		t.Error("the push cluster is skipped")
	}
	patch(t, clusters, "cluster-"+managed, map[string]any{"metadata": map[string]any{"annotations": map[string]any{skipReconcile: nil}}})
	eventually(t, "the annotation is put back", func() error { return skipped("cluster-" + managed) })

	// Projects and their repositories: those of the agent's cluster arrive, those of the
	// push cluster do not.
	projects, onSpoke := w.hub.Resource(harness.AppProjects, harness.ArgoCDNamespace), w.edge.Resource(secrets, harness.ArgoCDNamespace)
	create(t, clusters, repositorySecret("repo-pushed", "for-pushed")) // before what is to arrive
	create(t, projects, projectFor("for-pushed", "pushed"))
	create(t, clusters, repositorySecret("repo-agent", "for-agent"))
	create(t, projects, projectFor("for-agent", managed))
	spokeProjects := w.edge.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	eventually(t, "the project for the agent arrives", func() error { return there(ctx, spokeProjects, "for-agent") })
	eventually(t, "its repository arrives", func() error {
		return field(ctx, onSpoke, "repo-agent", encoded(password), "data", "password")
	})
	if err := errors.Join(gone(ctx, spokeProjects, "for-pushed"), gone(ctx, onSpoke, "repo-pushed")); err != nil {
		t.Errorf("what is for the push cluster: %v", err)
	}

	// One Application moves, by destination and label, in one step.
	spoke := w.edge.Resource(harness.Applications, harness.ArgoCDNamespace)
	patch(t, apps, "moves", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"by": "agent"}},
		"spec":     map[string]any{"destination": map[string]any{"name": managed}},
	})
	eventually(t, "the spoke's Argo CD has it", func() error { return healthy(ctx, spoke, "moves") })
	eventually(t, "the hub shows what the spoke says", func() error {
		theirs, _, _ := unstructured.NestedString(get(t, spoke, "moves").Object, "status", "reconciledAt")
		return errors.Join(healthy(ctx, apps, "moves"), field(ctx, apps, "moves", theirs, "status", "reconciledAt"))
	})
	if after := w.running(t, "moves"); !maps.Equal(before, after) {
		t.Errorf("running were %v, and are %v", before, after)
	}
	if get(t, apps, "moves").GetDeletionTimestamp() != nil {
		t.Error("it is being deleted")
	}

	// The other one is still the hub's, and nothing to the principal.
	patch(t, w.edge.Resource(deployments, "stays"), "guestbook", map[string]any{"spec": map[string]any{"replicas": 0}})
	eventually(t, "the hub's controller heals what it has", func() error {
		if err := field(ctx, w.edge.Resource(deployments, "stays"), "guestbook", 0, "spec", "replicas"); err == nil {
			return errors.New("it is still changed")
		}
		return healthy(ctx, apps, "stays")
	})
	if err := gone(ctx, spoke, "stays"); err != nil {
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
	if _, err := w.world.repository.Commit(ctx, "an app of apps", map[string]string{"family/child.yaml": `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: child
  labels: {by: agent}
spec:
  project: default
  destination: {name: ` + managed + `, namespace: child}
  source: {repoURL: "` + w.world.repository.URL + `", path: ` + harness.GuestbookPath + `, targetRevision: ` + harness.Branch + `}
  syncPolicy: {automated: {}, syncOptions: [CreateNamespace=true]}
`}); err != nil {
		t.Fatal(err)
	}
	family := w.world.guestbook("family", harness.ArgoCDNamespace, "")
	family.Object["spec"].(map[string]any)["destination"].(map[string]any)["namespace"] = harness.ArgoCDNamespace
	family.Object["spec"].(map[string]any)["source"].(map[string]any)["path"] = "family"
	create(t, apps, family)
	eventually(t, "the child is deployed by the agent", func() error { return healthy(ctx, spoke, "child") })
	eventually(t, "the hub shows parent and child", func() error { return errors.Join(healthy(ctx, apps, "family"), healthy(ctx, apps, "child")) })
	if err := gone(ctx, spoke, "family"); err != nil {
		t.Error(err)
	}

	// A cluster Secret that claims to be the agent's stops what is new, and the hub's
	// controller does not get it either.
	create(t, clusters, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": "rival", "labels": map[string]any{"argocd.argoproj.io/secret-type": "cluster"}},
		"data":     map[string]any{"name": encoded(managed), "server": encoded("https://rival.example"), "config": encoded("{}")},
	}})
	eventually(t, "the conflict is told", func() error {
		return condition(ctx, registry, managed, "ClusterSecretConflict", "ClusterSecretConflict", "rival")
	})
	app := w.world.guestbook("new", harness.ArgoCDNamespace, managed)
	app.SetLabels(map[string]string{"by": "agent"})
	app.Object["spec"].(map[string]any)["project"] = "default"
	create(t, apps, app)
	eventually(t, "the hub's controller does not know which cluster it is", func() error {
		if text := fmt.Sprint(get(t, apps, "new").Object["status"]); !strings.Contains(text, "there are 2 clusters with the same name") {
			return fmt.Errorf("the status is %s", text)
		}
		return nil
	})
	if err := errors.Join(gone(ctx, spoke, "new"), gone(ctx, w.edge.Resource(deployments, "new"), "guestbook")); err != nil {
		t.Errorf("an Application whose cluster is in doubt was sent: %v", err)
	}
	if err := clusters.Delete(ctx, "rival", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "without the rival it is deployed, by the agent", func() error { return healthy(ctx, spoke, "new") })

	// And back: the hub takes over what the agent lets go, workloads untouched.
	patch(t, apps, "moves", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"by": nil}},
		"spec":     map[string]any{"destination": map[string]any{"name": "pushed"}},
	})
	eventually(t, "the agent lets it go", func() error { return gone(ctx, spoke, "moves") })
	eventually(t, "the hub has it", func() error { return healthy(ctx, apps, "moves") })
	if after := w.running(t, "moves"); !maps.Equal(before, after) {
		t.Errorf("running were %v, and are %v", before, after)
	}
	if err := w.principal.Stop(context.WithoutCancel(ctx)); err != nil {
		t.Error(err)
	}
}

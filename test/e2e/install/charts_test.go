//go:build linux

package install

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// A real API server takes every documented combination, without an unknown field and
// without a warning, and its Pod Security admission takes the pods in a namespace that
// enforces "restricted".
func TestChartsOnServer(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm", "etcd", "kube-apiserver")
	h := harnesstest.New(t)
	ctx := t.Context()
	server, err := env.StartBareControlPlane(ctx, h, "server", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.ApplyFiles(ctx, filepath.Join("testdata", "charts", "servicemonitors-crd.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(server.EnsureNamespace(ctx, "team-a"), server.EnsureNamespace(ctx, "team-b")); err != nil {
		t.Fatal(err)
	}
	warned := &warnings{}
	config := server.REST()
	config.WarningHandler = warned
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	typed, err := kubernetes.NewForConfig(server.REST())
	if err != nil {
		t.Fatal(err)
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	env.Patch(t, server.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"), ""), harness.ArgoCDNamespace, map[string]any{
		"metadata": map[string]any{"labels": map[string]any{
			"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted",
		}},
	})
	if err := server.EnsureNamespace(ctx, "istio-ingress"); err != nil { // of the gateway, where there is one
		t.Fatal(err)
	}
	for _, name := range []string{charts.Principal, charts.Agent} { // pods are not admitted without theirs
		if _, err := typed.CoreV1().ServiceAccounts(harness.ArgoCDNamespace).Create(ctx,
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(charts.Combinations)) {
		c := charts.Combinations[name]
		t.Run(name, func(t *testing.T) {
			warned.take()
			objects := charts.Render(t, c.Chart, c.Values)
			seen := map[string]bool{}
			for _, o := range objects {
				id := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
				if seen[id] {
					t.Errorf("%s is there twice", id)
				}
				seen[id] = true
				mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
				if err != nil {
					t.Fatalf("%s: %v", id, err)
				}
				var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
				if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
					if o.GetNamespace() == "" {
						t.Errorf("%s has no namespace: whoever applies it without helm puts it anywhere", id)
						continue
					}
					resource = client.Resource(mapping.Resource).Namespace(o.GetNamespace())
				}
				// Server-side apply refuses fields it does not know.
				if _, err := resource.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{
					FieldManager: "test", Force: true, DryRun: []string{metav1.DryRunAll},
				}); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
			said := warned.take()
			if c.Privileged != "" {
				said = slices.DeleteFunc(said, func(text string) bool { return strings.Contains(text, c.Privileged) })
			}
			if len(said) > 0 {
				t.Errorf("warnings: %q", said)
			}
			deployment := env.Convert[appsv1.Deployment](t, charts.FindKind(t, objects, "Deployment"))
			pod := &corev1.Pod{ObjectMeta: deployment.Spec.Template.ObjectMeta, Spec: deployment.Spec.Template.Spec}
			pod.Name = "argomesh"
			_, err := typed.CoreV1().Pods(harness.ArgoCDNamespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			switch {
			case c.Privileged == "" && err != nil:
				t.Errorf("the pod: %v", err)
			case c.Privileged != "" && (err == nil || !strings.Contains(err.Error(), c.Privileged)):
				t.Errorf("the pod is to be refused for %s: %v", c.Privileged, err)
			}
		})
	}
}

// warnings collects what an API server warns of. One client's calls follow one another.
type warnings struct{ texts []string }

func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }

func (w *warnings) take() []string {
	texts := w.texts
	w.texts = nil
	return texts
}

// auditPolicy records who asked what, without bodies.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived] # a watch is recorded when it begins, it may not end
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
`

// install applies those objects of a chart that make an account and its rights, and
// waits until the API server has heard of them: it decides by what its informers have.
func install(t *testing.T, at *harness.ControlPlane, chart, namespace, values string) {
	t.Helper()
	roles := map[string][]rbacv1.PolicyRule{} // by kind and name
	var bindings []rbacv1.RoleBinding
	for _, o := range charts.Render(t, chart, values) {
		switch o.GetKind() {
		case "ServiceAccount":
		case "Role", "ClusterRole":
			roles[o.GetKind()+" "+o.GetName()] = env.Convert[rbacv1.ClusterRole](t, o).Rules
		case "RoleBinding", "ClusterRoleBinding":
			bindings = append(bindings, env.Convert[rbacv1.RoleBinding](t, o)) // their fields are the same
		default:
			continue
		}
		if o.GetNamespace() != "" {
			o.SetNamespace(namespace)
		}
		if subjects, found, _ := unstructured.NestedSlice(o.Object, "subjects"); found {
			subjects[0].(map[string]any)["namespace"] = namespace
			o.Object["subjects"] = subjects
		}
		if err := at.Apply(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	client, err := kubernetes.NewForConfig(at.REST())
	if err != nil {
		t.Fatal(err)
	}
	for _, binding := range bindings {
		rule := roles[binding.RoleRef.Kind+" "+binding.RoleRef.Name][0]
		resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
		attributes := authorizationv1.ResourceAttributes{Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource}
		if binding.Kind == "RoleBinding" {
			attributes.Namespace = namespace
		}
		if len(rule.ResourceNames) > 0 {
			attributes.Name = rule.ResourceNames[0]
		}
		env.Eventually(t, "the API server knows "+binding.Name, func() error {
			review, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + namespace + ":" + binding.Subjects[0].Name, ResourceAttributes: &attributes},
			}, metav1.CreateOptions{})
			if err == nil && !review.Status.Allowed {
				err = fmt.Errorf("%+v is not allowed", attributes)
			}
			return err
		})
	}
}

// unused are rights of the principal that the test does not see used, each with why
// they are granted.
var unused = map[string]string{
	"list argoproj.io/applications":     "informers stream their first list; they list after a restore, and where an API server cannot stream",
	"list argoproj.io/appprojects":      "as of Applications",
	"list /secrets":                     "as of Applications",
	"list /configmaps":                  "as of Applications",
	"update /configmaps":                "of a hub that decides anew what it keeps in argomesh-hub",
	"watch coordination.k8s.io/leases":  "of a principal that waits for another one's end",
	"list argomesh.io/accessrequests":   "as of Applications",
	"delete argomesh.io/accessrequests": "of what no one has taken away five minutes later",
}

// Under the roles of the charts, and the admission policy of the principal's, the principal
// and two agents do their whole work, and the API server refuses them nothing. And the
// principal has no right that it does not use, and no use of one that the policy denies.
func TestPrincipalRole(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm", "etcd", "kube-apiserver")
	h := harnesstest.New(t)
	w := &env.RoleEnv{H: h, Audit: h.Path("audit.log")}
	start(t, w)
	work(t, w)
	t.Run("metrics are in the reference", func(t *testing.T) { testMetrics(t, w) })
	if err := w.Principal.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	judge(t, w)
	escalate(t, w)
}

func start(t *testing.T, w *env.RoleEnv) {
	t.Helper()
	ctx := t.Context()
	policy := w.H.Path("audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	theirs, err := w.H.ArgoCDManifests()
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := w.H.StartEtcd(ctx, "etcd")
	if err != nil {
		t.Fatal(err)
	}
	if w.Hub, err = w.H.StartControlPlane(ctx, harness.ControlPlaneConfig{
		Name: "hub", Etcd: etcd, Manifests: append(slices.Clip(theirs), charts.Definitions(t)...),
		ServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + w.Audit, "--audit-log-mode=blocking"},
	}); err != nil {
		t.Fatal(err)
	}
	if w.Spoke, err = w.H.StartControlPlane(ctx, harness.ControlPlaneConfig{Name: "spoke", Etcd: etcd, Manifests: theirs}); err != nil {
		t.Fatal(err)
	}
	const second = "gitops" // a second Argo CD on the spoke
	for at, namespaces := range map[*harness.ControlPlane][]string{w.Hub: {harness.ArgoCDNamespace}, w.Spoke: {harness.ArgoCDNamespace, second}} {
		for _, namespace := range namespaces {
			if err := at.EnsureNamespace(ctx, namespace); err != nil {
				t.Fatal(err)
			}
		}
	}
	svids := map[string]*harness.WorkloadAPI{}
	for _, name := range []string{"principal", env.Managed, env.Autonomous} {
		if svids[name], err = w.H.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
			Name: "spire-" + name, TrustDomain: env.TrustDomain, CADir: w.H.Path("ca"), Entries: []string{env.SPIFFEID(name)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	install(t, w.Hub, charts.Principal, harness.ArgoCDNamespace, proxyValues)
	admit(t, w.H, w.Hub, roleValues)
	if w.Principal, err = w.H.StartPrincipal(ctx, harness.PrincipalConfig{
		ControlPlane: w.Hub, WorkloadAPI: svids["principal"],
		Settings: harness.Settings{
			"kubernetes.kubeconfig":              env.AccountConfig(t, w.H, w.Hub, harness.ArgoCDNamespace, charts.Principal),
			"resource_proxy.listen":              "unix://" + w.H.Path("proxy.sock"),
			"resource_proxy.credentials.enabled": true, "resource_proxy.credentials.ca_bundle": true,
		},
	}); err != nil {
		t.Fatal(err)
	}
	for name, agent := range map[string]struct{ mode, namespace, account string }{
		env.Managed:    {"managed", harness.ArgoCDNamespace, "argomesh-agent"},
		env.Autonomous: {"autonomous", second, "argomesh-agent-2"},
	} {
		if _, err := w.H.Agentctl(ctx, w.Hub, "agent", "create", name, "--mode", agent.mode, "--spiffe-id", env.SPIFFEID(name), "--wait"); err != nil {
			t.Fatal(err)
		}
		install(t, w.Spoke, charts.Agent, agent.namespace, strings.Replace(charts.AgentValues, "managed", agent.mode, 1)+"serviceAccount: {name: "+agent.account+"}")
		a, err := w.H.StartAgent(ctx, harness.AgentConfig{
			Name: name, Mode: agent.mode, ControlPlane: w.Spoke, WorkloadAPI: svids[name],
			PrincipalAddress: w.Principal.Address, PrincipalIDs: []string{env.PrincipalID},
			Settings: harness.Settings{"namespace": agent.namespace, "kubernetes.kubeconfig": env.AccountConfig(t, w.H, w.Spoke, agent.namespace, agent.account)},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { refused(t, a) })
	}
}

// controllerEvent is an Event in which Argo CD's controller says how an operation ended.
func controllerEvent(about *unstructured.Unstructured, name string) *unstructured.Unstructured {
	now := time.Now().UTC().Format(time.RFC3339)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": name, "namespace": about.GetNamespace()},
		"involvedObject": map[string]any{
			"apiVersion": about.GetAPIVersion(), "kind": about.GetKind(), "namespace": about.GetNamespace(), "name": about.GetName(), "uid": string(about.GetUID()),
		},
		"type": "Warning", "reason": "OperationCompleted", "message": "Sync operation to 1 failed: it is a test", "count": int64(1),
		"firstTimestamp": now, "lastTimestamp": now, "source": map[string]any{"component": "argocd-application-controller"},
	}}
}

// work makes the principal use each of its rights.
func work(t *testing.T, w *env.RoleEnv) {
	t.Helper()
	ctx := t.Context()
	here := &env.Argo{Hub: w.Hub, Edge1: w.Spoke, Repository: &harness.Repository{URL: "https://git.example.org/x"}}
	if err := here.ApplyProject(ctx); err != nil {
		t.Fatal(err)
	}
	onHub, onSpoke := w.Hub.Resource(harness.Applications, env.Managed), w.Spoke.Resource(harness.Applications, harness.ArgoCDNamespace)
	namespaces := w.Hub.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"), "")
	for _, agent := range []string{env.Managed, env.Autonomous} {
		env.Eventually(t, "the namespace of "+agent, func() error {
			_, err := namespaces.Get(ctx, agent, metav1.GetOptions{})
			return err
		})
	}

	// The token keys are made, and one becomes current.
	env.Eventually(t, "a token in the cluster Secret", func() error {
		secret, err := w.Hub.Resource(corev1.SchemeGroupVersion.WithResource("secrets"), harness.ArgoCDNamespace).Get(ctx, "cluster-"+env.Managed, metav1.GetOptions{})
		if err != nil {
			return err
		}
		typed := env.Convert[corev1.Secret](t, secret)
		if !strings.Contains(string(typed.Data["config"]), "bearerToken") {
			return errors.New("there is none")
		}
		return nil
	})

	// A person gets a token of her own, once the policy has settled.
	env.Eventually(t, "a token for a person", func() error {
		_, err := w.H.Agentctl(ctx, w.Hub, "kubeconfig", env.Managed)
		return err
	})

	// A managed Application goes there, its status comes back.
	env.Create(t, onHub, here.Idle("shop", env.Managed, env.Managed))
	env.Eventually(t, "the Application on the spoke", func() error {
		_, err := onSpoke.Get(ctx, "shop", metav1.GetOptions{})
		return err
	})
	env.Patch(t, onSpoke, "shop", map[string]any{"status": map[string]any{"sync": map[string]any{"status": "Synced"}}})
	env.Eventually(t, "its status on the hub", func() error { return env.FieldIs(ctx, onHub, "shop", "Synced", "status", "sync", "status") })

	// What Argo CD says of it there is an Event here, and what it says again adds to that.
	for n := range 2 {
		o, err := onSpoke.Get(ctx, "shop", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		env.Create(t, w.Spoke.Resource(corev1.SchemeGroupVersion.WithResource("events"), harness.ArgoCDNamespace), controllerEvent(o, fmt.Sprint("shop.", n)))
		env.Eventually(t, "what Argo CD says", func() error {
			list, err := w.Hub.Resource(corev1.SchemeGroupVersion.WithResource("events"), env.Managed).List(ctx, metav1.ListOptions{FieldSelector: "reason=OperationCompleted"})
			if err == nil && (len(list.Items) != 1 || list.Items[0].Object["count"] != int64(n+1)) {
				err = fmt.Errorf("there are %v", list.Items)
			}
			return err
		})
	}

	// What is asked of it on the hub runs there, and what was begun there is shown.
	runs(t, onHub, onSpoke, "shop")
	env.Patch(t, onSpoke, "shop", map[string]any{"operation": map[string]any{"sync": map[string]any{}}})
	env.Eventually(t, "the operation that was begun on the spoke", func() error {
		_, err := env.FieldsOf(ctx, onHub, "shop", "operation")
		return err
	})
	env.Patch(t, onSpoke, "shop", map[string]any{"operation": nil})
	env.Eventually(t, "its end on the hub", func() error { return without(ctx, onHub, "shop", "operation") })

	// One that no agent takes says so, with an Event, and its sync ends.
	inArgoCD := w.Hub.Resource(harness.Applications, harness.ArgoCDNamespace)
	astray := here.Plain("astray", harness.ArgoCDNamespace, env.Managed)
	astray.Object["operation"] = map[string]any{"sync": map[string]any{}}
	env.Create(t, inArgoCD, astray)
	env.Eventually(t, "that no agent takes it", func() error {
		return errors.Join(env.ConditionSays(ctx, inArgoCD, "astray", "ArgomeshError", "no agent takes it"), without(ctx, inArgoCD, "astray", "operation"))
	})
	env.Eventually(t, "an Event of it", func() error {
		list, err := w.Hub.Resource(corev1.SchemeGroupVersion.WithResource("events"), harness.ArgoCDNamespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=NotTaken"})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	if err := inArgoCD.Delete(ctx, "astray", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	// It is deleted with its workloads; no Argo CD is there, so the test is its controller.
	env.Patch(t, onHub, "shop", map[string]any{"metadata": map[string]any{"finalizers": []string{env.Cascade}}})
	if err := onHub.Delete(ctx, "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the cascade on the spoke", func() error {
		o, err := onSpoke.Get(ctx, "shop", metav1.GetOptions{})
		if err == nil && o.GetDeletionTimestamp() == nil {
			err = errors.New("it is not being deleted")
		}
		return err
	})
	env.Patch(t, onSpoke, "shop", map[string]any{"metadata": map[string]any{"finalizers": []string{}}})
	env.Eventually(t, "its end on the hub", func() error { return env.Gone(ctx, onHub, "shop") })

	// An autonomous Application and its project are mirrored, and go again.
	projects := schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"}
	theirApps, theirProjects := w.Spoke.Resource(harness.Applications, "gitops"), w.Spoke.Resource(projects, "gitops")
	ourApps, ourProjects := w.Hub.Resource(harness.Applications, env.Autonomous), w.Hub.Resource(projects, harness.ArgoCDNamespace)
	env.Create(t, theirProjects, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": "default", "namespace": "gitops"},
		"spec": map[string]any{
			"sourceRepos": []any{"*"}, "destinations": []any{map[string]any{"server": "*", "namespace": "*"}},
		},
	}})
	app := here.Idle("own", "gitops", "")
	env.Create(t, theirApps, app)
	mirrored := env.Autonomous + "-default"
	env.Eventually(t, "the mirror of the Application", func() error {
		_, err := ourApps.Get(ctx, "own", metav1.GetOptions{})
		return err
	})
	env.Eventually(t, "the mirror of the project", func() error {
		_, err := ourProjects.Get(ctx, mirrored, metav1.GetOptions{})
		return err
	})
	runs(t, ourApps, theirApps, "own")
	env.Patch(t, theirProjects, "default", map[string]any{"spec": map[string]any{"description": "changed"}})
	env.Eventually(t, "the changed project", func() error {
		return env.FieldIs(ctx, ourProjects, mirrored, "changed", "spec", "description")
	})
	if err := theirApps.Delete(ctx, "own", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the end of the mirror", func() error { return env.Gone(ctx, ourApps, "own") })
	if err := theirProjects.Delete(ctx, "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the end of the project's mirror", func() error { return env.Gone(ctx, ourProjects, mirrored) })

	// The agents leave, and their Secrets with them.
	agents := w.Hub.Resource(v1alpha1.AgentResource, harness.ArgoCDNamespace)
	for _, name := range []string{env.Managed, env.Autonomous} {
		if err := agents.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "the end of agent "+name, func() error { return env.Gone(ctx, agents, name) })
		env.Eventually(t, "the end of its Secret", func() error {
			return env.Gone(ctx, w.Hub.Resource(corev1.SchemeGroupVersion.WithResource("secrets"), harness.ArgoCDNamespace), "cluster-"+name)
		})
	}
}

// runs asks for a sync of an Application on the hub, and takes the place of the spoke's Argo CD, which runs it.
func runs(t *testing.T, onHub, onSpoke dynamic.ResourceInterface, name string) {
	t.Helper()
	ctx := t.Context()
	env.Patch(t, onHub, name, map[string]any{"operation": map[string]any{"sync": map[string]any{}}})
	var operation map[string]any
	env.Eventually(t, "the operation on the spoke", func() (err error) {
		operation, err = env.FieldsOf(ctx, onSpoke, name, "operation")
		return err
	})
	env.Patch(t, onSpoke, name, map[string]any{"operation": nil, "status": map[string]any{"operationState": map[string]any{
		"operation": operation, "phase": "Succeeded", "startedAt": "2026-01-02T03:04:05Z", "finishedAt": "2026-01-02T03:04:06Z",
	}}})
	env.Eventually(t, "its end on the hub", func() error {
		return errors.Join(without(ctx, onHub, name, "operation"), env.FieldIs(ctx, onHub, name, "Succeeded", "status", "operationState", "phase"))
	})
}

// without is an error while an object has a field.
func without(ctx context.Context, at dynamic.ResourceInterface, name string, path ...string) error {
	o, err := at.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if _, found, err := unstructured.NestedFieldNoCopy(o.Object, path...); found || err != nil {
		return errors.Join(fmt.Errorf("%s has %s", name, strings.Join(path, ".")), err)
	}
	return nil
}

// judge holds what the principal asked for against what it may.
func judge(t *testing.T, w *env.RoleEnv) {
	t.Helper()
	file, err := os.Open(w.Audit)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	user := "system:serviceaccount:" + harness.ArgoCDNamespace + ":" + charts.Principal
	used := map[string]bool{} // verb group/resource
	refusals := map[string]bool{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb           string                                           `json:"verb"`
			RequestURI     string                                           `json:"requestURI"`
			User           struct{ Username string }                        `json:"user"`
			ObjectRef      struct{ APIGroup, Resource, Subresource string } `json:"objectRef"`
			ResponseStatus struct{ Code int }                               `json:"responseStatus"`
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		if event.User.Username != user || strings.HasSuffix(event.RequestURI, "?dryRun=All") { // which is admit's
			continue
		}
		resource := event.ObjectRef.Resource
		if event.ObjectRef.Subresource != "" {
			resource += "/" + event.ObjectRef.Subresource
		}
		used[event.Verb+" "+event.ObjectRef.APIGroup+"/"+resource] = true
		if event.ResponseStatus.Code == http.StatusForbidden {
			refusals[event.Verb+" "+event.RequestURI] = true
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(used) == 0 {
		t.Fatal("the audit log tells nothing of the principal")
	}
	for _, call := range slices.Sorted(maps.Keys(refusals)) {
		t.Errorf("refused: %s", call)
	}
	objects := charts.Render(t, charts.Principal, proxyValues)
	rules := slices.Concat(env.Convert[rbacv1.ClusterRole](t, charts.FindKind(t, objects, "ClusterRole")).Rules, env.Convert[rbacv1.Role](t, charts.FindKind(t, objects, "Role")).Rules)
	granted := map[string]bool{}
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, resource := range rule.Resources {
				granted[verb+" "+rule.APIGroups[0]+"/"+resource] = true
			}
		}
	}
	for _, right := range slices.Sorted(maps.Keys(granted)) {
		if !used[right] && unused[right] == "" {
			t.Errorf("granted and not used: %s", right)
		}
	}
	for right := range unused {
		if !granted[right] {
			t.Errorf("%s is excused and not granted", right)
		}
	}
}

var (
	helpLine = regexp.MustCompile(`^# HELP (argomesh_\S+) (.*)$`)
	typeLine = regexp.MustCompile(`^# TYPE (argomesh_\S+) (\S+)$`)
	tableRow = regexp.MustCompile("^\\| `(argomesh_[a-z_]+)` \\| (\\S+) \\| .* \\| (.*) \\| [a-z, ]+ \\|$")
)

// testMetrics holds what a running principal serves against docs/reference/metrics.md.
func testMetrics(t *testing.T, w *env.RoleEnv) {
	reference, err := os.ReadFile(filepath.Join(harnesstest.Tools(t).Checkout(), "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	type family struct{ kind, help string }
	documented := map[string][]family{} // both programs may have one, and say it in their words
	for line := range strings.SplitSeq(string(reference), "\n") {
		if cells := tableRow.FindStringSubmatch(line); cells != nil {
			documented[cells[1]] = append(documented[cells[1]], family{cells[2], strings.ReplaceAll(cells[3], `\|`, "|")})
		}
	}
	served := map[string]family{}
	for line := range strings.SplitSeq(scrape(t, w.Principal.AdminAddress), "\n") {
		if f := helpLine.FindStringSubmatch(line); f != nil {
			served[f[1]] = family{help: f[2]}
		} else if f := typeLine.FindStringSubmatch(line); f != nil {
			served[f[1]] = family{f[2], served[f[1]].help}
		}
	}
	if len(served) < 20 {
		t.Fatalf("only %d metrics are served", len(served))
	}
	for name, got := range served {
		if !slices.Contains(documented[name], got) {
			t.Errorf("%s: served as %+v, documented as %+v", name, got, documented[name])
		}
	}
}

func scrape(t *testing.T, address string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", response.Status, err)
	}
	return string(content)
}

// With the policy of the agent's chart no one on a spoke but the agent can make Argo CD
// delete the workloads of a managed Application.
func TestLocalDeletesPolicy(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm", "etcd", "kube-apiserver")
	h := harnesstest.New(t)
	ctx := t.Context()
	spoke, err := env.StartBareControlPlane(ctx, h, "spoke", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(spoke.EnsureNamespace(ctx, "other"), spoke.EnsureNamespace(ctx, "further")); err != nil {
		t.Fatal(err)
	}
	for _, o := range charts.Render(t, charts.Agent, charts.AgentValues+"  mapping: {namespaces: [further]}\nlocalDeletes: {policy: true}") {
		if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") {
			if err := spoke.Apply(ctx, o); err != nil {
				t.Fatal(err)
			}
		}
	}
	install(t, spoke, charts.Agent, harness.ArgoCDNamespace, charts.AgentValues)
	config, err := clientcmd.BuildConfigFromFlags("", env.AccountConfig(t, h, spoke, harness.ArgoCDNamespace, charts.Agent))
	if err != nil {
		t.Fatal(err)
	}
	agentClient, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	person := spoke.Resource(harness.Applications, harness.ArgoCDNamespace)
	agent := agentClient.Resource(harness.Applications).Namespace(harness.ArgoCDNamespace)

	w := &env.Argo{Repository: &harness.Repository{URL: "https://git.example.org/x"}}
	fresh := func(name string, mark bool, finalizers ...string) *unstructured.Unstructured {
		app := w.Plain(name, harness.ArgoCDNamespace, "")
		if mark {
			app.SetAnnotations(map[string]string{"argomesh.io/source": "{}"})
		}
		app.SetFinalizers(finalizers)
		return app
	}
	denied := func(t *testing.T, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "belongs to the Argo CD hub") {
			t.Errorf("it was not refused by the policy: %v", err)
		}
	}
	// Until the API server has the policy, nothing is refused.
	env.Eventually(t, "the policy in force", func() error {
		_, err := person.Create(ctx, fresh("probe", true, env.Cascade), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("it is not yet")
		}
		denied(t, err)
		return nil
	})
	update := func(c dynamic.ResourceInterface, name string, change func(*unstructured.Unstructured)) error {
		app, err := c.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(app)
		_, err = c.Update(ctx, app, metav1.UpdateOptions{})
		return err
	}
	made := func(t *testing.T, c dynamic.ResourceInterface, app *unstructured.Unstructured) {
		t.Helper()
		if _, err := c.Create(ctx, app, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}

	for _, finalizer := range []string{env.Cascade, env.Cascade + "/foreground", env.Cascade + "/background"} {
		t.Run("nobody adds "+finalizer, func(t *testing.T) {
			name := "a" + strings.TrimPrefix(strings.TrimPrefix(finalizer, env.Cascade), "/")
			made(t, agent, fresh(name, true))
			denied(t, update(person, name, func(o *unstructured.Unstructured) { o.SetFinalizers([]string{finalizer}) }))
			_, err := person.Create(ctx, fresh(name+"-new", true, finalizer), metav1.CreateOptions{})
			denied(t, err)
		})
	}
	t.Run("nobody takes the mark away", func(t *testing.T) {
		made(t, agent, fresh("marked", true))
		denied(t, update(person, "marked", func(o *unstructured.Unstructured) { o.SetAnnotations(nil) }))
		denied(t, update(person, "marked", func(o *unstructured.Unstructured) {
			o.SetAnnotations(nil)
			o.SetFinalizers([]string{env.Cascade})
		}))
	})
	t.Run("the agent cascades, and the controller ends it", func(t *testing.T) {
		made(t, agent, fresh("witnessed", true))
		must(t, update(agent, "witnessed", func(o *unstructured.Unstructured) { o.SetFinalizers([]string{env.Cascade}) }))
		denied(t, person.Delete(ctx, "witnessed", metav1.DeleteOptions{}))
		must(t, agent.Delete(ctx, "witnessed", metav1.DeleteOptions{}))
		must(t, update(person, "witnessed", func(o *unstructured.Unstructured) {
			o.SetFinalizers(nil)
		}))
		must(t, env.Gone(ctx, person, "witnessed"))
	})
	t.Run("nobody has the hooks of a deletion run", func(t *testing.T) {
		for i, hooks := range []string{"post-delete-finalizer.argocd.argoproj.io", "post-delete-finalizer.argocd.argoproj.io/cleanup", "pre-delete-finalizer.argocd.argoproj.io"} {
			name := fmt.Sprint("hooks-", i)
			made(t, agent, fresh(name, true))
			// Argo CD's controller puts it there when the manifests have such hooks.
			must(t, update(person, name, func(o *unstructured.Unstructured) { o.SetFinalizers([]string{hooks}) }))
			denied(t, person.Delete(ctx, name, metav1.DeleteOptions{}))
			must(t, agent.Delete(ctx, name, metav1.DeleteOptions{}))
			must(t, update(person, name, func(o *unstructured.Unstructured) { o.SetFinalizers(nil) }))
			must(t, env.Gone(ctx, person, name))
		}
	})
	t.Run("what is not about cascades passes", func(t *testing.T) {
		made(t, agent, fresh("plain", true))
		must(t, update(person, "plain", func(o *unstructured.Unstructured) {
			o.SetFinalizers([]string{"example.org/other"})
			o.SetLabels(map[string]string{"a": "b"})
			o.Object["status"] = map[string]any{"sync": map[string]any{"status": "Synced"}}
		}))
		must(t, update(person, "plain", func(o *unstructured.Unstructured) { o.SetFinalizers(nil) }))
		must(t, person.Delete(ctx, "plain", metav1.DeleteOptions{}))
	})
	t.Run("further namespaces are guarded too", func(t *testing.T) {
		app := fresh("further", true, env.Cascade)
		app.SetNamespace("further")
		_, err := spoke.Resource(harness.Applications, "further").Create(ctx, app, metav1.CreateOptions{})
		denied(t, err)
	})
	t.Run("what is not the hub's passes", func(t *testing.T) {
		made(t, person, fresh("own", false, env.Cascade))
		must(t, person.Delete(ctx, "own", metav1.DeleteOptions{}))
		must(t, update(person, "own", func(o *unstructured.Unstructured) { o.SetFinalizers(nil) }))
		elsewhere := fresh("elsewhere", true, env.Cascade)
		elsewhere.SetNamespace("other")
		made(t, spoke.Resource(harness.Applications, "other"), elsewhere)
	})
}

//go:build linux

package env

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// Cascade is Argo CD's finalizer that takes workloads along.
const Cascade = "resources-finalizer.argocd.argoproj.io"

// Patience bounds the wait for one condition.
const Patience = harness.Patience

// Eventually fails the test when the condition does not come true within [Patience].
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	harnesstest.Eventually(t, Patience, what, check)
}

// Get returns an object that must be there.
func Get(t *testing.T, where dynamic.ResourceInterface, name string) *unstructured.Unstructured {
	t.Helper()
	o, err := where.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Guestbook is an Application of the test repository, synced automatically.
func (w *Argo) Guestbook(name, namespace, agent string) *unstructured.Unstructured {
	app := w.Plain(name, namespace, agent)
	spec := app.Object["spec"].(map[string]any)
	spec["syncPolicy"] = map[string]any{
		"automated":   map[string]any{"prune": true, "selfHeal": true},
		"syncOptions": []any{"CreateNamespace=true"},
	}
	return app
}

// Plain is an Application that no one syncs by itself.
func (w *Argo) Plain(name, namespace, agent string) *unstructured.Unstructured {
	destination := map[string]any{"name": agent, "namespace": name}
	in := Project
	if agent == "" {
		destination, in = map[string]any{"server": "https://kubernetes.default.svc", "namespace": name}, "default"
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{
			"project": in, "destination": destination,
			"source":     map[string]any{"repoURL": w.Repository.URL, "path": harness.GuestbookPath, "targetRevision": harness.Branch},
			"syncPolicy": map[string]any{"syncOptions": []any{"CreateNamespace=true"}},
		},
	}}
}

// Idle is an Application that Argo CD leaves alone.
func (w *Argo) Idle(name, namespace, agent string) *unstructured.Unstructured {
	app := w.Plain(name, namespace, agent)
	app.SetAnnotations(map[string]string{"argocd.argoproj.io/skip-reconcile": "true"})
	return app
}

// Create makes an object.
func Create(t *testing.T, where dynamic.ResourceInterface, app *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	made, err := where.Create(t.Context(), app, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// Patch applies a merge patch.
func Patch(t *testing.T, where dynamic.ResourceInterface, name string, merge map[string]any) {
	t.Helper()
	if err := MergePatch(t.Context(), where, name, merge); err != nil {
		t.Fatal(err)
	}
}

// MergePatch applies a merge patch.
func MergePatch(ctx context.Context, where dynamic.ResourceInterface, name string, merge map[string]any) error {
	raw, err := json.Marshal(merge)
	if err != nil {
		return err
	}
	_, err = where.Patch(ctx, name, types.MergePatchType, raw, metav1.PatchOptions{})
	return err
}

// Gone is a check that an object is not there.
func Gone(ctx context.Context, where dynamic.ResourceInterface, name string) error {
	_, err := where.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s is still there", name)
}

// FieldIs compares one field of an object.
func FieldIs(ctx context.Context, where dynamic.ResourceInterface, name string, want any, path ...string) error {
	o, err := where.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	got, _, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	if err != nil {
		return err
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%s: %v is %v, not %v", name, path, got, want)
	}
	return nil
}

// Healthy is a check that an Application shows itself synced and healthy.
func Healthy(ctx context.Context, where dynamic.ResourceInterface, name string) error {
	if err := FieldIs(ctx, where, name, "Synced", "status", "sync", "status"); err != nil {
		return err
	}
	return FieldIs(ctx, where, name, "Healthy", "status", "health", "status")
}

// Deployments and ConfigMaps are those of Kubernetes.
var (
	Deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	ConfigMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// Since is when the agent's connection state last changed.
func (w *Argo) Since(ctx context.Context, agent string) (string, error) {
	return ConnectedSince(ctx, w.Hub, agent)
}

// ConnectedSince is since when a hub shows an agent connected.
func ConnectedSince(ctx context.Context, hub *harness.ControlPlane, agent string) (string, error) {
	a, err := hub.Resource(Agents, harness.ArgoCDNamespace).Get(ctx, agent, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if up, _, _ := unstructured.NestedBool(a.Object, "status", "connected"); !up {
		return "", fmt.Errorf("agent %s is not connected", agent)
	}
	since, _, _ := unstructured.NestedString(a.Object, "status", "since")
	return since, nil
}

// Exists is a check that an object is there.
func Exists(ctx context.Context, where dynamic.ResourceInterface, name string) error {
	_, err := where.Get(ctx, name, metav1.GetOptions{})
	return err
}

// ConditionIs is a check of a true condition's reason and message.
func ConditionIs(ctx context.Context, where dynamic.ResourceInterface, name, kind, reason, message string) error {
	o, err := where.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range list {
		if c, _ := c.(map[string]any); c["type"] == kind && c["status"] == "True" && c["reason"] == reason && strings.Contains(fmt.Sprint(c["message"]), message) {
			return nil
		}
	}
	return fmt.Errorf("conditions of %s are %v", name, list)
}

// CarriesCascade reports whether an object has the finalizer Cascade, with a policy or without.
func CarriesCascade(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(o.GetFinalizers(), func(f string) bool { return strings.HasPrefix(f, Cascade) })
}

// ConditionIn returns a condition of an object, or nil.
func ConditionIn(agent *unstructured.Unstructured, kind string) map[string]any {
	list, _, _ := unstructured.NestedSlice(agent.Object, "status", "conditions")
	for _, c := range list {
		if m, _ := c.(map[string]any); m["type"] == kind {
			return m
		}
	}
	return nil
}

// ConditionSays is a check that an Application has a condition whose message has some text.
func ConditionSays(ctx context.Context, where dynamic.ResourceInterface, name, kind, text string) error {
	o, err := where.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	condition := ConditionIn(o, kind)
	if message, _ := condition["message"].(string); !strings.Contains(message, text) {
		return fmt.Errorf("condition %s of %s is %v", kind, name, condition)
	}
	return nil
}

// StaleCondition says that an agent is away.
const StaleCondition = "ArgomeshStaleWarning"

// NotStale is a check that an Application does not say that its agent is away.
func NotStale(ctx context.Context, where dynamic.ResourceInterface, name string) error {
	o, err := where.Get(ctx, name, metav1.GetOptions{})
	if err == nil && ConditionIn(o, StaleCondition) != nil {
		err = fmt.Errorf("it says %v", ConditionIn(o, StaleCondition))
	}
	return err
}

// SlowPath has a hook before the sync that ends when a test lets it end.
const SlowPath = "slow"

// HookPod is the pod of that hook.
const HookPod = "hold"

// Pods are those of Kubernetes.
var Pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// SkipReconcile is the annotation of what Argo CD leaves alone.
const SkipReconcile = "argocd.argoproj.io/skip-reconcile"

// PushCluster lets the Argo CD of a hub deploy to a Kubernetes cluster by itself.
func PushCluster(t *testing.T, hub, edge *harness.ControlPlane, name string) {
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
	Create(t, hub.Resource(Secrets, harness.ArgoCDNamespace), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"argocd.argoproj.io/secret-type": "cluster"}},
		"data": map[string]any{
			"name": Base64(name), "server": Base64(edge.URL), "config": base64.StdEncoding.EncodeToString(config),
		},
	}})
}

// Password is what must never be in a log.
const Password = "correct-horse-battery"

// Base64 is text as a Secret has it.
func Base64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// Object is one with the fields of rest.
func Object(version, kind, namespace, name string, rest map[string]any) *unstructured.Unstructured {
	meta := map[string]any{"name": name}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	o := map[string]any{"apiVersion": version, "kind": kind, "metadata": meta}
	for key, value := range rest {
		if key == "metadata" {
			maps.Copy(meta, value.(map[string]any))
			continue
		}
		o[key] = value
	}
	return &unstructured.Unstructured{Object: o}
}

// RoleEnv is a hub and a spoke with the roles of the charts.
type RoleEnv struct {
	H          *harness.Harness
	Hub, Spoke *harness.ControlPlane
	Audit      string // file of the hub's audit log
	Principal  *harness.Principal
}

// AccountConfig makes a kubeconfig of a service account, which it makes too unless it
// is there.
func AccountConfig(t *testing.T, h *harness.Harness, at *harness.ControlPlane, namespace, name string) string {
	t.Helper()
	admin, err := kubernetes.NewForConfig(at.REST())
	if err != nil {
		t.Fatal(err)
	}
	issued, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server := rest.AnonymousClientConfig(at.REST())
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: server.Host, CertificateAuthorityData: server.CAData}
	config.AuthInfos["it"] = &clientcmdapi.AuthInfo{Token: issued.Status.Token}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "it"}
	config.CurrentContext = "it"
	file := h.Path(at.Name + "-" + namespace + "-" + name + ".kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// FieldsOf is a field of an object that has fields itself.
func FieldsOf(ctx context.Context, at dynamic.ResourceInterface, name string, path ...string) (map[string]any, error) {
	o, err := at.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	m, found, err := unstructured.NestedMap(o.Object, path...)
	if err != nil || !found {
		return nil, errors.Join(fmt.Errorf("%s has no %s", name, strings.Join(path, ".")), err)
	}
	return m, nil
}

// Convert reads an object as a type.
func Convert[T any](t *testing.T, o *unstructured.Unstructured) T {
	t.Helper()
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &typed, true); err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return typed
}

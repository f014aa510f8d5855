//go:build linux

package mesh

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/mesh/istio"
	"github.com/argomesh/argomesh/mesh/objects"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// meshLive is a hub whose principal looks after the mesh, under the rights of its chart.
type meshLive struct {
	h          *harness.Harness
	hub        *harness.ControlPlane
	identity   *harness.WorkloadAPI
	kubeconfig string // of the principal's service account
	principal  *harness.Principal
	agents     dynamic.ResourceInterface
	starts     int
}

func (w *meshLive) istio(kind, namespace string) dynamic.ResourceInterface {
	return w.hub.Resource(istio.Kinds()[kind], namespace)
}

// A principal keeps the objects of Istio and SPIRE in step with the Agents, with the
// rights that its chart gives it, and nothing but its own objects.
func TestMeshPolicyIsKept(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "helm")
	w := &meshLive{h: harnesstest.New(t)}
	ctx := t.Context()
	crds, err := w.h.ArgoCDManifests()
	if err != nil {
		t.Fatal(err)
	}
	crds = append(append(crds, env.IstioCRDs(t), filepath.Join("..", "testdata", "spire-crds.yaml")), charts.Definitions(t)...)
	if w.hub, err = w.h.StartControlPlane(ctx, harness.ControlPlaneConfig{Name: "hub", Manifests: crds}); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{harness.ArgoCDNamespace, "istio-ingress"} {
		if err := w.hub.EnsureNamespace(ctx, namespace); err != nil {
			t.Fatal(err)
		}
	}
	if w.identity, err = w.h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
		Name: "spire", TrustDomain: env.TrustDomain, CADir: w.h.Path("ca"), Entries: []string{env.PrincipalID},
	}); err != nil {
		t.Fatal(err)
	}
	w.agents = w.hub.Resource(v1alpha1.AgentResource, harness.ArgoCDNamespace)
	for name, id := range map[string]string{"edge-1": "spiffe://hub.test/argomesh/agent/edge-1", "edge-2": "spiffe://partner.test/ns/argocd/sa/agent"} {
		if _, err := w.h.Agentctl(ctx, w.hub, "agent", "create", name, "--mode", "managed", "--spiffe-id", id); err != nil {
			t.Fatal(err)
		}
	}
	// Someone else's object has the name of one of ours, and someone has applied one
	// of ours by hand, and not well.
	w.put(t, "AuthorizationPolicy", "argomesh-principal-metrics", nil, map[string]any{})
	w.put(t, "PeerAuthentication", "argomesh-principal", map[string]any{"app.kubernetes.io/part-of": "argomesh", "app.kubernetes.io/managed-by": "agentctl"},
		map[string]any{"mtls": map[string]any{"mode": "PERMISSIVE"}})

	// A principal gathers changes for two seconds, so each of these makes all of its own
	// before it waits.
	w.start(t, "apply")
	t.Run("objects are made", w.testMade)
	t.Run("nothing else can be made", w.testDenied)
	t.Run("drift is corrected, and others' objects are left alone", w.testDrift)
	t.Run("agents come and go", w.testAgents)
	t.Run("one that the mesh cannot keep", w.testRefused)
	w.start(t, "report")
	t.Run("report only", w.testReport)
	w.start(t, "")
	t.Run("off", w.testOff)
}

// start runs a principal in place of the one before.
func (w *meshLive) start(t *testing.T, mode string) {
	t.Helper()
	ctx := t.Context()
	if w.principal != nil {
		if err := w.principal.Stop(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range charts.Render(t, charts.Principal, fmt.Sprintf(charts.MeshLiveValues, mode)) {
		switch o.GetKind() {
		case "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			if err := w.hub.Apply(ctx, o); err != nil {
				t.Fatal(err)
			}
		}
	}
	if w.kubeconfig == "" {
		w.kubeconfig = env.AccountConfig(t, w.h, w.hub, harness.ArgoCDNamespace, charts.Principal)
	}
	w.starts++
	socket := "unix://" + w.h.Path("stream.sock")
	gateway := "spiffe://hub.test/ns/istio-ingress/sa/gateway"
	var err error
	if w.principal, err = w.h.StartPrincipal(ctx, harness.PrincipalConfig{
		Name: fmt.Sprint("principal-", w.starts), ControlPlane: w.hub, WorkloadAPI: w.identity,
		Settings: harness.Settings{
			"kubernetes.kubeconfig": w.kubeconfig,
			"stream.listeners": []map[string]any{{
				"listen": socket, "method": "header", "header": map[string]any{"trusted_proxies": []string{gateway}},
			}},
			"mesh.exposure": "gateway", "mesh.method": "header", "mesh.stream_upstream": socket,
			"mesh.principal": "spiffe://hub.test/ns/argocd/sa/argomesh-principal", "mesh.hub": "argomesh.hub.test:443",
			"mesh.argo_cd":            []string{"spiffe://hub.test/ns/argocd/sa/argocd-server"},
			"mesh.scrapers":           []string{"spiffe://hub.test/ns/monitoring/sa/prometheus"},
			"mesh.gateway.spiffe_id":  gateway,
			"mesh.gateway.namespace":  "istio-ingress",
			"mesh.gateway.pod_labels": map[string]string{"istio": "ingress"},
			"mesh.live.istio":         mode, "mesh.live.spire": mode,
		},
	}); err != nil {
		t.Fatal(err)
	}
}

// testDenied tries what someone would who has taken over the principal's account: whatever its roles say, the admission
// policy of its chart admits what follows from its own configuration.
func (w *meshLive) testDenied(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", w.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	type m = map[string]any
	own := m{"selector": m{"matchLabels": m{"app.kubernetes.io/name": "argomesh-principal"}}}
	id := func(more m) m {
		spec := m{"spiffeIDTemplate": "spiffe://hub.test/ns/argocd/sa/argomesh-principal", "className": "x"}
		maps.Copy(spec, more)
		return spec
	}
	way := func(more m) m {
		spec := m{"hosts": []any{"argomesh.hub.test"}, "gateways": []any{"istio-ingress/argomesh-principal"}}
		maps.Copy(spec, more)
		return spec
	}
	door := func(server m) m {
		all := m{"port": m{"number": int64(443), "protocol": "HTTPS", "name": "https-x"}, "hosts": []any{"argomesh.hub.test"}}
		maps.Copy(all, server)
		return m{"selector": m{"istio": "ingress"}, "servers": []any{all}}
	}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	byPolicy := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "the principal of Argomesh")
	}
	env.Eventually(t, "the policy in force", func() error {
		_, err := client.Resource(env.ConfigMaps).Namespace(harness.ArgoCDNamespace).Create(t.Context(),
			env.Object("v1", "ConfigMap", harness.ArgoCDNamespace, "probe", nil), dryRun)
		if !byPolicy(err) {
			return fmt.Errorf("a ConfigMap: %w", err)
		}
		return nil
	})
	kinds := maps.Clone(istio.Kinds())
	kinds[spire.ClusterSPIFFEIDKind] = spire.Resource(spire.ClusterSPIFFEIDKind)
	for name, tt := range map[string]struct {
		kind, namespace, name string
		spec                  m
		admitted              bool
	}{
		"its own registration":                  {spire.ClusterSPIFFEIDKind, "", "x", id(nil), true},
		"an SVID of someone else":               {spire.ClusterSPIFFEIDKind, "", "x", id(m{"spiffeIDTemplate": "spiffe://hub.test/ns/payments/sa/api"}), false},
		"an administrator of SPIRE":             {spire.ClusterSPIFFEIDKind, "", "x", id(m{"admin": true}), false},
		"an authority below SPIRE's":            {spire.ClusterSPIFFEIDKind, "", "x", id(m{"downstream": true}), false},
		"a policy of its own pod":               {"AuthorizationPolicy", "argocd", "argomesh-principal-x", own, true},
		"a policy of another name":              {"AuthorizationPolicy", "argocd", "allow-all", own, false},
		"a policy of all pods":                  {"AuthorizationPolicy", "argocd", "argomesh-principal-x", m{"rules": []any{m{}}}, false},
		"a policy of the gateway for its name":  {"AuthorizationPolicy", "istio-ingress", "argomesh-principal-x", m{"action": "DENY", "rules": []any{m{"when": []any{m{"key": "connection.sni", "values": []any{"argomesh.hub.test"}}}}}}, true},
		"a policy of the gateway for others":    {"AuthorizationPolicy", "istio-ingress", "argomesh-principal-x", m{"action": "DENY", "rules": []any{m{}}}, false},
		"a policy of the gateway that allows":   {"AuthorizationPolicy", "istio-ingress", "argomesh-principal-x", m{"action": "ALLOW", "rules": []any{m{"when": []any{m{"key": "connection.sni", "values": []any{"argomesh.hub.test"}}}}}}, false},
		"no TLS for all pods":                   {"PeerAuthentication", "argocd", "argomesh-principal-x", m{"mtls": m{"mode": "DISABLE"}}, false},
		"the way to its own name":               {"VirtualService", "argocd", "argomesh-principal-x", way(nil), true},
		"the traffic of a Service of others":    {"VirtualService", "argocd", "argomesh-principal-x", way(m{"hosts": []any{"api.payments.svc.cluster.local"}}), false},
		"its own name, inside of the mesh":      {"VirtualService", "argocd", "argomesh-principal-x", way(m{"gateways": []any{"mesh"}}), false},
		"its own door":                          {"Gateway", "istio-ingress", "argomesh-principal-x", door(nil), true},
		"a site of others":                      {"Gateway", "istio-ingress", "argomesh-principal-x", door(m{"hosts": []any{"shop.example"}}), false},
		"the certificate of others":             {"Gateway", "istio-ingress", "argomesh-principal-x", door(m{"tls": m{"mode": "SIMPLE", "credentialName": "shop"}}), false},
		"how clients reach a Service of others": {"DestinationRule", "argocd", "argomesh-principal-x", m{"host": "argocd-repo-server.argocd.svc.cluster.local"}, false},
		"how the proxies of all pods work":      {"Sidecar", "argocd", "argomesh-principal-x", m{"ingress": []any{}}, false},
	} {
		o := &unstructured.Unstructured{Object: m{"spec": tt.spec}}
		o.SetAPIVersion(kinds[tt.kind].GroupVersion().String())
		o.SetKind(tt.kind)
		o.SetName(tt.name)
		o.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "agentctl"})
		_, err := client.Resource(kinds[tt.kind]).Namespace(tt.namespace).Create(t.Context(), o, dryRun)
		if byPolicy(err) == tt.admitted || tt.admitted && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// put makes an object in Argo CD's namespace, as someone else.
func (w *meshLive) put(t *testing.T, kind, name string, labels, spec map[string]any) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": istio.Kinds()[kind].GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"name": name, "namespace": harness.ArgoCDNamespace, "labels": labels}, "spec": spec,
	}}
	if labels == nil {
		unstructured.RemoveNestedField(o.Object, "metadata", "labels")
	}
	env.Create(t, w.istio(kind, harness.ArgoCDNamespace), o)
}

// says waits until an Agent's condition MeshPolicy has the status and reason, and the
// text in its message.
func (w *meshLive) says(t *testing.T, agent string, status metav1.ConditionStatus, reason, text string) {
	t.Helper()
	env.Eventually(t, "condition MeshPolicy of "+agent, func() error {
		c, err := w.condition(t, agent)
		if err != nil {
			return err
		}
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, text) || (text == "") != (c.Message == "") {
			return fmt.Errorf("it is %+v, want %s, %s and %q", c, status, reason, text)
		}
		return nil
	})
}

func (w *meshLive) condition(t *testing.T, agent string) (*metav1.Condition, error) {
	t.Helper()
	o, err := w.agents.Get(t.Context(), agent, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return meta.FindStatusCondition(env.Convert[v1alpha1.Agent](t, o).Status.Conditions, v1alpha1.ConditionMeshPolicy), nil
}

func (w *meshLive) allWell(t *testing.T) {
	t.Helper()
	w.says(t, "edge-1", metav1.ConditionTrue, "AsExpected", "")
	for _, part := range []string{"istio", "spire"} {
		if out, err := w.h.Agentctl(t.Context(), w.hub, "mesh", "verify", part, "--config", w.principal.ConfigFile); err != nil || !strings.Contains(out, "as they should be") {
			t.Errorf("agentctl mesh verify %s: %v\n%s", part, err, out)
		}
	}
}

// admitted returns who is not refused at the gateway.
func (w *meshLive) admitted(t *testing.T) ([]string, error) {
	t.Helper()
	o, err := w.istio("AuthorizationPolicy", "istio-ingress").Get(t.Context(), "argomesh-principal", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	rules, _, err := unstructured.NestedSlice(o.Object, "spec", "rules")
	if err != nil || len(rules) != 1 {
		return nil, fmt.Errorf("rules are %v: %w", rules, err)
	}
	from, _, err := unstructured.NestedSlice(rules[0].(map[string]any), "from") //nolint:forcetypeassert // the schema says so
	if err != nil || len(from) != 1 {
		return nil, fmt.Errorf("from is %v: %w", from, err)
	}
	who, _, err := unstructured.NestedStringSlice(from[0].(map[string]any), "source", "notPrincipals") //nolint:forcetypeassert // the schema says so
	return who, err
}

// atGateway waits until the gateway admits just these.
func (w *meshLive) atGateway(t *testing.T, want ...string) {
	t.Helper()
	env.Eventually(t, "those whom the gateway admits", func() error {
		got, err := w.admitted(t)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("they are %v, want %v", got, want)
		}
		return err
	})
}

// admits waits for that, and until the bundles of their trust domains are asked for.
func (w *meshLive) admits(t *testing.T, want ...string) {
	t.Helper()
	w.atGateway(t, want...)
	var foreign []string
	for _, who := range want {
		if td, _, _ := strings.Cut(who, "/"); td != "hub.test" && !slices.Contains(foreign, td) {
			foreign = append(foreign, td)
		}
	}
	for _, workload := range []string{"argomesh-principal", "gateway"} {
		env.Eventually(t, "the registration of "+workload, func() error {
			list, err := w.hub.Resource(spire.Resource(spire.ClusterSPIFFEIDKind), "").List(t.Context(), metav1.ListOptions{LabelSelector: spire.RegistrationLabel + "=" + workload})
			if err != nil {
				return err
			}
			if len(list.Items) != 1 {
				return fmt.Errorf("there are %d", len(list.Items))
			}
			got, _, err := unstructured.NestedStringSlice(list.Items[0].Object, "spec", "federatesWith")
			if err == nil && !slices.Equal(got, foreign) {
				err = fmt.Errorf("it federates with %v, want %v", got, foreign)
			}
			return err
		})
	}
}

func (w *meshLive) testMade(t *testing.T) {
	w.admits(t, "hub.test/argomesh/agent/edge-1", "partner.test/ns/argocd/sa/agent")
	w.says(t, "edge-1", metav1.ConditionFalse, "Differs",
		"AuthorizationPolicy argocd/argomesh-principal-metrics is not written: an object of that name was made by another writer")
	if out, err := w.h.Agentctl(t.Context(), w.hub, "mesh", "diff", "istio", "--config", w.principal.ConfigFile); err == nil ||
		!strings.Contains(out, "! AuthorizationPolicy argocd/argomesh-principal-metrics: an object of that name") {
		t.Errorf("agentctl mesh diff: %v\n%s", err, out)
	}
	policies := w.istio("AuthorizationPolicy", harness.ArgoCDNamespace)
	if theirs := env.Get(t, policies, "argomesh-principal-metrics"); objects.AppliedBy(theirs, objects.Manager(harness.ArgoCDNamespace)) {
		t.Errorf("somebody else's object was written: %v", theirs.Object)
	}
	env.Eventually(t, "what was applied by hand", func() error {
		return env.FieldIs(t.Context(), w.istio("PeerAuthentication", harness.ArgoCDNamespace), "argomesh-principal", "STRICT", "spec", "mtls", "mode")
	})
}

func (w *meshLive) testDrift(t *testing.T) {
	policies, sidecars := w.istio("AuthorizationPolicy", harness.ArgoCDNamespace), w.istio("Sidecar", harness.ArgoCDNamespace)
	// A field that we do not have turns the meaning around; server-side apply alone would
	// leave it.
	env.Patch(t, policies, "argomesh-principal-stream", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app.kubernetes.io/part-of": nil}}, "spec": map[string]any{"action": "DENY"},
	})
	env.Patch(t, w.istio("PeerAuthentication", harness.ArgoCDNamespace), "argomesh-principal", map[string]any{"spec": map[string]any{"mtls": map[string]any{"mode": "DISABLE"}}})
	w.put(t, "AuthorizationPolicy", "theirs", nil, map[string]any{"rules": []any{map[string]any{}}})
	if err := errors.Join(
		sidecars.Delete(t.Context(), "argomesh-principal", metav1.DeleteOptions{}),
		policies.Delete(t.Context(), "argomesh-principal-metrics", metav1.DeleteOptions{}), // someone else's, in the way of ours
	); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the object that was deleted", func() error {
		_, err := sidecars.Get(t.Context(), "argomesh-principal", metav1.GetOptions{})
		return err
	})
	env.Eventually(t, "the objects that were changed", func() error {
		stream, err := policies.Get(t.Context(), "argomesh-principal-stream", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if _, found, _ := unstructured.NestedString(stream.Object, "spec", "action"); found || stream.GetLabels()["app.kubernetes.io/part-of"] == "" {
			return errors.New("the policy is not what it was")
		}
		return env.FieldIs(t.Context(), w.istio("PeerAuthentication", harness.ArgoCDNamespace), "argomesh-principal", "STRICT", "spec", "mtls", "mode")
	})
	env.Eventually(t, "the object that had somebody else's in its way", func() error {
		o, err := policies.Get(t.Context(), "argomesh-principal-metrics", metav1.GetOptions{})
		if err == nil && !objects.AppliedBy(o, objects.Manager(harness.ArgoCDNamespace)) {
			err = errors.New("it is not ours")
		}
		return err
	})
	w.says(t, "edge-1", metav1.ConditionFalse, "Differs", "AuthorizationPolicy argocd/theirs is not ours and holds for the same pods")
	if theirs := env.Get(t, policies, "theirs"); theirs.GetDeletionTimestamp() != nil || theirs.GetGeneration() != 1 {
		t.Errorf("somebody else's object was touched: %v", theirs.Object)
	}
}

func (w *meshLive) testAgents(t *testing.T) {
	policies := w.istio("AuthorizationPolicy", harness.ArgoCDNamespace)
	before := env.Get(t, policies, "argomesh-principal-stream").GetResourceVersion()
	if err := policies.Delete(t.Context(), "theirs", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Patch(t, w.agents, "edge-2", map[string]any{"spec": map[string]any{"suspended": true}})
	if _, err := w.h.Agentctl(t.Context(), w.hub, "agent", "create", "edge-3", "--mode", "managed", "--spiffe-id", "spiffe://other.test/agent"); err != nil {
		t.Fatal(err)
	}
	w.admits(t, "hub.test/argomesh/agent/edge-1", "other.test/agent")
	w.says(t, "edge-3", metav1.ConditionTrue, "AsExpected", "")
	w.allWell(t)
	// What is as it should be is not written again.
	out, err := w.h.Agentctl(t.Context(), w.hub, "mesh", "apply", "istio", "--config", w.principal.ConfigFile)
	if err != nil || strings.Contains(out, "updated") || strings.Contains(out, "created") || !strings.Contains(out, "AuthorizationPolicy argocd/argomesh-principal-stream unchanged") {
		t.Errorf("agentctl mesh apply: %v\n%s", err, out)
	}
	if after := env.Get(t, policies, "argomesh-principal-stream").GetResourceVersion(); after != before {
		t.Errorf("the policy was written again: resourceVersion %s, was %s", after, before)
	}
}

// An agent that Istio would take for another one is not let in, and stops no one.
func (w *meshLive) testRefused(t *testing.T) {
	if _, err := w.h.Agentctl(t.Context(), w.hub, "agent", "create", "edge-4", "--mode", "managed", "--spiffe-id", "spiffe://cluster.local/ns/argocd/sa/agent"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.h.Agentctl(t.Context(), w.hub, "agent", "create", "edge-5", "--mode", "managed", "--spiffe-id", "spiffe://other.test/agent-5"); err != nil {
		t.Fatal(err)
	}
	w.says(t, "edge-4", metav1.ConditionFalse, "Refused", "means the mesh's own trust domain")
	w.atGateway(t, "hub.test/argomesh/agent/edge-1", "other.test/agent", "other.test/agent-5")
	w.says(t, "edge-1", metav1.ConditionTrue, "AsExpected", "")
	if err := w.agents.Delete(t.Context(), "edge-4", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.admits(t, "hub.test/argomesh/agent/edge-1", "other.test/agent", "other.test/agent-5")
}

// What is only reported is not changed, and each Agent hears what concerns it.
func (w *meshLive) testReport(t *testing.T) {
	if _, err := w.h.Agentctl(t.Context(), w.hub, "agent", "create", "edge-6", "--mode", "managed", "--spiffe-id", "spiffe://hub.test/argomesh/agent/edge-6"); err != nil {
		t.Fatal(err)
	}
	const text = "AuthorizationPolicy istio-ingress/argomesh-principal does not admit hub.test/argomesh/agent/edge-6, and should."
	w.says(t, "edge-6", metav1.ConditionFalse, "Differs", text)
	w.says(t, "edge-1", metav1.ConditionTrue, "AsExpected", "")
	if got, err := w.admitted(t); err != nil || slices.Contains(got, "hub.test/argomesh/agent/edge-6") {
		t.Errorf("the gateway admits %v, %v, and nothing was to be written", got, err)
	}
	out, err := w.h.Agentctl(t.Context(), w.hub, "mesh", "verify", "istio", "--config", w.principal.ConfigFile)
	if err == nil || !strings.Contains(out, text) {
		t.Errorf("agentctl mesh verify: %v\n%s", err, out)
	}
	// A person does what the principal would.
	if out, err = w.h.Agentctl(t.Context(), w.hub, "mesh", "apply", "istio", "--config", w.principal.ConfigFile); err != nil || !strings.Contains(out, "AuthorizationPolicy istio-ingress/argomesh-principal updated") {
		t.Errorf("agentctl mesh apply: %v\n%s", err, out)
	}
	w.says(t, "edge-6", metav1.ConditionTrue, "AsExpected", "")
}

// A principal that does not look after the mesh leaves the objects, and says nothing of
// them any more.
func (w *meshLive) testOff(t *testing.T) {
	for _, agent := range []string{"edge-1", "edge-6"} {
		env.Eventually(t, "the end of condition MeshPolicy of "+agent, func() error {
			c, err := w.condition(t, agent)
			if err == nil && c != nil {
				err = fmt.Errorf("it is %+v", *c)
			}
			return err
		})
	}
	if got, err := w.admitted(t); err != nil || len(got) == 0 {
		t.Errorf("the gateway admits %v, %v", got, err)
	}
}

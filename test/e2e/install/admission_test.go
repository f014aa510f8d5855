//go:build linux

package install

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// proxyValues are values of the principal's chart for a principal with the default URL of
// its resource proxy, as the harness starts it.
const proxyValues = "config: {resource_proxy: {url: 'https://argomesh-principal:9090'}}\n"

// roleValues are those of TestPrincipalRole; what is to follow is of admission.
const roleValues = proxyValues + "admission:\n  clusters: [prod]\n"

// principalAccount is a client with the rights of the principal's service account.
func principalAccount(t *testing.T, h *harness.Harness, at *harness.ControlPlane) dynamic.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", env.AccountConfig(t, h, at, harness.ArgoCDNamespace, charts.Principal))
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// admit puts the admission policy of the principal's chart in force. The account must be
// there, by install.
func admit(t *testing.T, h *harness.Harness, at *harness.ControlPlane, values string) {
	t.Helper()
	for _, o := range charts.Render(t, charts.Principal, values) {
		if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") {
			if err := at.Apply(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	account := principalAccount(t, h, at)
	env.Eventually(t, "the policy in force", func() error {
		_, err := account.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(harness.ArgoCDNamespace).
			Create(t.Context(), env.Object("v1", "ConfigMap", harness.ArgoCDNamespace, "probe", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("it is not yet")
		}
		return byPolicy(err)
	})
}

// byPolicy is nil if the policy of the principal's chart has denied something.
func byPolicy(err error) error {
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") || !strings.Contains(err.Error(), "the principal of Argomesh") {
		return errors.Join(errors.New("not denied by the policy"), err)
	}
	return nil
}

// escalate tries what someone would who has taken over the principal's account, and was
// even given the rights of an administrator: the policy denies it.
func escalate(t *testing.T, w *env.RoleEnv) {
	t.Helper()
	ctx := t.Context()
	const here, there = harness.ArgoCDNamespace, "theirs"
	if err := w.Hub.EnsureNamespace(ctx, there); err != nil {
		t.Fatal(err)
	}
	account := principalAccount(t, w.H, w.Hub)
	roleBindings := rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
	env.Create(t, w.Hub.Resource(roleBindings, ""), env.Object(rbacv1.SchemeGroupVersion.String(), "ClusterRoleBinding", "", "too-much", map[string]any{
		"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": charts.Principal, "namespace": here}},
	}))
	kinds := map[string]schema.GroupVersionResource{
		"Secret": corev1.SchemeGroupVersion.WithResource("secrets"), "ConfigMap": corev1.SchemeGroupVersion.WithResource("configmaps"),
		"Namespace": corev1.SchemeGroupVersion.WithResource("namespaces"), "Pod": corev1.SchemeGroupVersion.WithResource("pods"),
		"ServiceAccount": corev1.SchemeGroupVersion.WithResource("serviceaccounts"),
		"Role":           rbacv1.SchemeGroupVersion.WithResource("roles"), "ClusterRoleBinding": roleBindings,
		"Lease":       {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		"Application": harness.Applications, "Agent": v1alpha1.AgentResource,
		"AppProject":    {Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"},
		"AccessRequest": v1alpha1.AccessRequestResource,
	}
	of := func(client dynamic.Interface, o *unstructured.Unstructured) dynamic.ResourceInterface {
		gvr, found := kinds[o.GetKind()]
		if !found {
			t.Fatalf("no resource of %s", o.GetKind())
		}
		if o.GetNamespace() == "" {
			return client.Resource(gvr)
		}
		return client.Resource(gvr).Namespace(o.GetNamespace())
	}
	admin, err := dynamic.NewForConfig(w.Hub.REST())
	if err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the rights of an administrator", func() error {
		_, err := account.Resource(kinds["Role"]).Namespace(there).List(ctx, metav1.ListOptions{})
		return err
	})

	encoded := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	const proxy = "https://argomesh-principal:9090/agents/"
	mark := map[string]any{"argomesh.io/source": "{}"}
	secret := func(namespace, name, server string, labels, annotations map[string]any) *unstructured.Unstructured {
		return env.Object("v1", "Secret", namespace, name, map[string]any{
			"type": "Opaque", "data": map[string]any{"server": encoded(server)},
			"metadata": map[string]any{"labels": labels, "annotations": annotations},
		})
	}
	withConfig := func(o *unstructured.Unstructured, config string) *unstructured.Unstructured {
		if err := unstructured.SetNestedField(o.Object, encoded(config), "data", "config"); err != nil {
			t.Fatal(err)
		}
		return o
	}
	cluster, ours := map[string]any{"argocd.argoproj.io/secret-type": "cluster"}, map[string]any{"managed-by": "argomesh"}
	app := func(namespace, name string, destination, annotations map[string]any) *unstructured.Unstructured {
		destination["namespace"] = "web"
		return env.Object("argoproj.io/v1alpha1", "Application", namespace, name, map[string]any{
			"metadata": map[string]any{"annotations": annotations},
			"spec":     map[string]any{"project": "default", "destination": destination, "source": map[string]any{"repoURL": "https://git.example.org/x", "path": "."}},
		})
	}
	to := func(name string) map[string]any { return map[string]any{"name": name} }
	at := func(server string) map[string]any { return map[string]any{"server": server} }
	project := func(name string, destination, annotations map[string]any) *unstructured.Unstructured {
		destination["namespace"] = "*"
		return env.Object("argoproj.io/v1alpha1", "AppProject", here, name, map[string]any{
			"metadata": map[string]any{"annotations": annotations},
			"spec":     map[string]any{"sourceRepos": []any{"*"}, "destinations": []any{destination}},
		})
	}
	found := func(labels map[string]any) *unstructured.Unstructured {
		return env.Object("v1", "Secret", here, "argomesh-found-1", map[string]any{
			"type": "argomesh.io/found", "data": map[string]any{"url": encoded("https://git.example.org/x")}, "metadata": map[string]any{"labels": labels},
		})
	}
	credentials, err := json.Marshal(controller.Credentials{BearerToken: strings.Repeat("e30.", 400), CA: bytes.Repeat([]byte("authorities "), 4000)})
	if err != nil {
		t.Fatal(err)
	}
	command := func(config string) *unstructured.Unstructured {
		return withConfig(secret(here, "cluster-new", proxy+"new", cluster, ours), config)
	}
	// Who asks says who it is, or another policy denies it.
	request := func(by dynamic.Interface, name string) *unstructured.Unstructured {
		me, err := by.Resource(authenticationv1.SchemeGroupVersion.WithResource("selfsubjectreviews")).Create(ctx,
			env.Object(authenticationv1.SchemeGroupVersion.String(), "SelfSubjectReview", "", "", nil), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		user, _, err := unstructured.NestedMap(me.Object, "status", "userInfo")
		if err != nil {
			t.Fatal(err)
		}
		return env.Object(v1alpha1.SchemeGroupVersion.String(), "AccessRequest", here, name, map[string]any{"spec": map[string]any{
			"agent": env.Managed, "publicKey": encoded(strings.Repeat("k", 32)), "user": user,
		}})
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

	for name, o := range map[string]*unstructured.Unstructured{
		"a cluster Secret":                secret(here, "cluster-new", proxy+"new", cluster, ours),
		"a cluster Secret with a token":   withConfig(secret(here, "cluster-new", proxy+"new", cluster, ours), string(credentials)),
		"what was found":                  found(map[string]any{"app.kubernetes.io/part-of": "argomesh"}),
		"the keys of tokens":              env.Object("v1", "Secret", here, "argomesh-token-keys", map[string]any{"type": "argomesh.io/token-keys"}),
		"a mirror":                        app(env.Managed, "mirror", to(env.Managed), mark),
		"a mirror by the agent's server":  app(env.Managed, "mirror", at(proxy+env.Managed), mark),
		"a mirror of a project":           project(env.Managed+"-web", to(env.Managed), mark),
		"a namespace for an agent":        env.Object("v1", "Namespace", "", "edge-9", map[string]any{"metadata": map[string]any{"labels": map[string]any{"app.kubernetes.io/part-of": "argomesh"}}}),
		"who is not registered":           env.Object("v1", "ConfigMap", here, "argomesh-unknown-ids", nil),
		"what the hub has decided for it": env.Object("v1", "ConfigMap", here, "argomesh-hub", nil),
	} {
		t.Run("may make "+name, func(t *testing.T) {
			if _, err := of(account, o).Create(ctx, o, dry); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Error(err)
			}
		})
	}

	for name, o := range map[string]*unstructured.Unstructured{
		"a Role":               env.Object(rbacv1.SchemeGroupVersion.String(), "Role", here, "more", map[string]any{"rules": []any{}}),
		"a ClusterRoleBinding": env.Object(rbacv1.SchemeGroupVersion.String(), "ClusterRoleBinding", "", "more", map[string]any{"roleRef": map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": "view"}}),
		"a Pod":                env.Object("v1", "Pod", here, "shell", map[string]any{"spec": map[string]any{"serviceAccountName": charts.Principal, "containers": []any{map[string]any{"name": "c", "image": "i"}}}}),
		"a ServiceAccount":     env.Object("v1", "ServiceAccount", here, "another", nil),
		"a Lease of others":    env.Object("coordination.k8s.io/v1", "Lease", here, "others", nil),
		"an Agent":             env.Object(v1alpha1.AgentResource.GroupVersion().String(), "Agent", here, "edge-9", map[string]any{"spec": map[string]any{"mode": "managed", "identity": map[string]any{"spiffeIDs": []any{"spiffe://evil.test/x"}}}}),

		"a request for access": request(account, "evil"),

		"a Secret of another namespace":   secret(there, "cluster-new", proxy+"new", cluster, ours),
		"a Secret of another name":        secret(here, "argocd-secret-2", proxy+"new", cluster, ours),
		"a Secret of a repository":        secret(here, "cluster-new", proxy+"new", map[string]any{"argocd.argoproj.io/secret-type": "repository"}, ours),
		"a repository as what was found":  found(map[string]any{"argocd.argoproj.io/secret-type": "repository"}),
		"a cluster as what was found":     found(cluster),
		"a command for a cluster":         command(`{"execProviderConfig":{"command":"sh"}}`),
		"a command, one further":          command(` {"execProviderConfig":{"command":"sh"}}`),
		"a command, two further":          command(`  {"execProviderConfig":{"command":"sh"}}`),
		"a command in other letters":      command(`{"EXECproviderCONFIG":{"command":"sh"}}`),
		"a command that is escaped":       command(`{"\u0065xecProviderConfig":{"command":"sh"}}`),
		"a command of AWS":                command(`{"awsAuthConfig":{"clusterName":"prod"}}`),
		"a command of AWS, a long s":      command(`{"awſAuthConfig":{"clusterName":"prod"}}`),
		"a Secret without label":          secret(here, "cluster-new", proxy+"new", nil, ours),
		"a Secret that is not marked":     secret(here, "cluster-new", proxy+"new", cluster, nil),
		"a cluster that is elsewhere":     secret(here, "cluster-new", "https://evil.example/agents/new", cluster, ours),
		"a token of a service account":    env.Object("v1", "Secret", here, "cluster-token", map[string]any{"type": "kubernetes.io/service-account-token", "metadata": map[string]any{"annotations": map[string]any{"kubernetes.io/service-account.name": "argocd-server"}}}),
		"a token by the name of the keys": env.Object("v1", "Secret", here, "argomesh-token-keys-2", map[string]any{"type": "argomesh.io/token-keys"}),

		"a namespace of the system":  env.Object("v1", "Namespace", "", "kube-more", nil),
		"a namespace with privilege": env.Object("v1", "Namespace", "", "edge-9", map[string]any{"metadata": map[string]any{"labels": map[string]any{"pod-security.kubernetes.io/enforce": "privileged"}}}),
		"a ConfigMap of Argo CD":     env.Object("v1", "ConfigMap", here, "argocd-rbac-cm-2", nil),

		"an Application for the hub":            app(env.Managed, "evil", to("in-cluster"), mark),
		"an Application for the hub's server":   app(env.Managed, "evil", at("https://kubernetes.default.svc"), mark),
		"an Application for another cluster":    app(env.Managed, "evil", to("prod"), mark),
		"an Application for a foreign server":   app(env.Managed, "evil", at("https://prod.example"), mark),
		"an Application by a name and a server": app(env.Managed, "evil", map[string]any{"name": env.Managed, "server": "https://kubernetes.default.svc"}, mark),
		"an Application for nowhere":            app(env.Managed, "evil", map[string]any{}, mark),
		"an Application without mark":           app(env.Managed, "evil", to(env.Managed), nil),

		"a project of the hub":         project("evil", to("in-cluster"), mark),
		"a project of another cluster": project("evil", to("prod"), mark),
		"a project of all clusters":    project("evil", to("*"), mark),
		"a project of a server":        project("evil", at("https://kubernetes.default.svc"), mark),
		"a project of a name and more": project("evil", map[string]any{"name": env.Managed, "server": "*"}, mark),
		"a project without mark":       project("evil", to(env.Managed), nil),
	} {
		t.Run("may not make "+name, func(t *testing.T) {
			_, err := of(account, o).Create(ctx, o, dry)
			if err := byPolicy(err); err != nil {
				t.Error(err)
			}
		})
	}

	// What is there already, of people.
	begun := app(env.Managed, "operated", to("in-cluster"), nil)
	begun.Object["operation"] = map[string]any{"sync": map[string]any{"revision": "one"}}
	sent := app(env.Managed, "sent", to(env.Managed), map[string]any{"argocd.argoproj.io/refresh": "normal"})
	sent.Object["operation"] = map[string]any{"sync": map[string]any{"revision": "one"}}
	for _, o := range []*unstructured.Unstructured{begun, sent} {
		o.SetFinalizers([]string{"example.org/theirs"})
	}
	for _, o := range []*unstructured.Unstructured{
		secret(here, "argocd-secret", "x", nil, nil), secret(here, "cluster-people", "https://prod.example", cluster, nil),
		env.Object("v1", "ConfigMap", here, "argocd-rbac-cm", nil),
		app(env.Managed, "people", to(env.Managed), nil), app(env.Managed, "hub", to("in-cluster"), nil), begun, sent,
		app(env.Managed, "mirrored", to(env.Managed), mark), project("people", to("in-cluster"), nil), request(admin, "asked"),
		env.Object(v1alpha1.AgentResource.GroupVersion().String(), "Agent", here, "edge-8", map[string]any{"spec": map[string]any{"mode": "managed", "identity": map[string]any{"spiffeIDs": []any{env.SPIFFEID("edge-8")}}}}),
	} {
		if _, err := of(admin, o).Create(ctx, o, metav1.CreateOptions{}); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	type change struct {
		kind, namespace, name string
		to                    func(o *unstructured.Unstructured)
	}
	set := func(value any, fields ...string) func(o *unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(o.Object, value, fields...); err != nil {
				t.Fatal(err)
			}
		}
	}
	both := func(changes ...func(o *unstructured.Unstructured)) func(o *unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			for _, c := range changes {
				c(o)
			}
		}
	}
	marked := func(o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{"argomesh.io/source": "{}"})
	}
	operation := set(map[string]any{"sync": map[string]any{"revision": "evil"}}, "operation")
	goesOn := set(map[string]any{"operationState": map[string]any{
		"phase": "Running", "startedAt": "2026-01-02T03:04:05Z", "operation": map[string]any{"sync": map[string]any{"revision": "evil"}},
	}}, "status")
	owned := func(o *unstructured.Unstructured) {
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "gone"}})
	}
	cascades := func(o *unstructured.Unstructured) { o.SetFinalizers(append(o.GetFinalizers(), env.Cascade)) }
	subscribed := func(o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{"argocd-image-updater.argoproj.io/image-list": "evil.example/x"})
	}
	labelled := func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"of": "evil"}) }
	update := func(client dynamic.Interface, c change) error {
		where := client.Resource(kinds[c.kind]).Namespace(c.namespace)
		o, err := where.Get(ctx, c.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c.to(o)
		_, err = where.Update(ctx, o, metav1.UpdateOptions{DryRun: dry.DryRun})
		return err
	}
	for name, c := range map[string]change{
		"the key that signs Argo CD's sessions": {"Secret", here, "argocd-secret", set(encoded("evil"), "data", "server")},
		"where another cluster is":              {"Secret", here, "cluster-people", both(set(encoded(proxy+"people"), "data", "server"), func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"managed-by": "argomesh"}) })},
		"who may do what in Argo CD":            {"ConfigMap", here, "argocd-rbac-cm", set(map[string]any{"policy.default": "role:admin"}, "data")},
		"what people deploy":                    {"Application", env.Managed, "people", set("evil", "spec", "source", "path")},
		"what people deploy, under a mark":      {"Application", env.Managed, "people", both(marked, set("evil", "spec", "source", "path"))},
		"an Application of people, by a mark":   {"Application", env.Managed, "people", marked},
		"what runs on the hub":                  {"Application", env.Managed, "hub", set("evil", "spec", "source", "path")},
		"what is in sync on the hub":            {"Application", env.Managed, "hub", operation},
		"an operation under way":                {"Application", env.Managed, "operated", operation},
		"with what an operation goes on":        {"Application", env.Managed, "operated", goesOn},
		"that an operation is to run":           {"Application", env.Managed, "operated", func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, "operation") }},
		"finalizers of what runs on the hub":    {"Application", env.Managed, "operated", func(o *unstructured.Unstructured) { o.SetFinalizers(nil) }},
		"with what people's Application goes":   {"Application", env.Managed, "people", owned},
		"with what their project goes":          {"AppProject", here, "people", owned},
		"with what an Agent goes":               {"Agent", here, "edge-8", owned},
		"with what it goes, under a mark":       {"Agent", here, "edge-8", both(owned, marked)},
		"an Agent, by a mark":                   {"Agent", here, "edge-8", marked},
		"by what people choose Agents":          {"Agent", here, "edge-8", both(labelled, marked)},
		"what goes with people's Application":   {"Application", env.Managed, "people", cascades},
		"what goes with one of the hub":         {"Application", env.Managed, "hub", cascades},
		"what other controllers do for people":  {"Application", env.Managed, "people", subscribed},
		"what they do for a project":            {"AppProject", here, "people", subscribed},
		"by what people choose Applications":    {"Application", env.Managed, "people", labelled},
		"where a mirror runs":                   {"Application", env.Managed, "mirrored", set("in-cluster", "spec", "destination", "name")},
		"a project of people":                   {"AppProject", here, "people", set("evil", "spec", "description")},
		"a project of people, under a mark":     {"AppProject", here, "people", both(marked, set([]any{map[string]any{"name": env.Managed, "namespace": "*"}}, "spec", "destinations"))},
		"by what a request for access is found": {"AccessRequest", here, "asked", labelled},
		"by which identity an Agent is known":   {"Agent", here, "edge-8", set([]any{env.SPIFFEID("evil")}, "spec", "identity", "spiffeIDs")},
	} {
		t.Run("may not change "+name, func(t *testing.T) {
			if err := byPolicy(update(account, c)); err != nil {
				t.Error(err)
			}
		})
	}
	for name, c := range map[string]change{
		"the status of what people deploy": {"Application", env.Managed, "people", set(map[string]any{"sync": map[string]any{"status": "Synced"}}, "status")},
		"what says that it is not sent":    {"Application", env.Managed, "hub", set([]any{map[string]any{"type": "ArgomeshError", "message": "m"}}, "status", "conditions")},
		"what says where an operation is":  {"Application", env.Managed, "sent", both(goesOn, set([]any{map[string]any{"name": "argomesh.io/command", "value": "1"}}, "operation", "info"))},
		"what was looked at again":         {"Application", env.Managed, "sent", func(o *unstructured.Unstructured) { o.SetAnnotations(nil) }},
		"an operation that was sent":       {"Application", env.Managed, "sent", func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, "operation") }},
		"finalizers":                       {"Application", env.Managed, "sent", func(o *unstructured.Unstructured) { o.SetFinalizers(nil) }},
		"a mirror":                         {"Application", env.Managed, "mirrored", set("other", "spec", "source", "path")},
		"an Agent's finalizers":            {"Agent", here, "edge-8", func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"argomesh.io/cleanup"}) }},
	} {
		t.Run("may change "+name, func(t *testing.T) {
			if err := update(account, c); err != nil {
				t.Error(err)
			}
		})
	}
	for name, c := range map[string]change{
		"argocd-secret":      {kind: "Secret", namespace: here, name: "argocd-secret"},
		"another cluster":    {kind: "Secret", namespace: here, name: "cluster-people"},
		"what people deploy": {kind: "Application", namespace: env.Managed, name: "people"},
		"their project":      {kind: "AppProject", namespace: here, name: "people"},
		"a namespace":        {kind: "Namespace", name: there},
		"an Agent":           {kind: "Agent", namespace: here, name: "edge-8"},
	} {
		t.Run("may not delete "+name, func(t *testing.T) {
			var where dynamic.ResourceInterface = account.Resource(kinds[c.kind])
			if c.namespace != "" {
				where = account.Resource(kinds[c.kind]).Namespace(c.namespace)
			}
			if err := byPolicy(where.Delete(ctx, c.name, metav1.DeleteOptions{DryRun: dry.DryRun})); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("takes an agent's Applications along where that is allowed", func(t *testing.T) {
		admit(t, w.H, w.Hub, roleValues+"  cascades: true\n")
		env.Eventually(t, "the other policy in force", func() error { return update(account, change{"Application", env.Managed, "people", cascades}) })
		where := account.Resource(kinds["Application"]).Namespace(env.Managed)
		if err := where.Delete(ctx, "people", metav1.DeleteOptions{DryRun: dry.DryRun}); err != nil {
			t.Error(err)
		}
		if err := byPolicy(where.Delete(ctx, "hub", metav1.DeleteOptions{DryRun: dry.DryRun})); err != nil {
			t.Error(err)
		}
		if err := byPolicy(update(account, change{"Application", env.Managed, "hub", cascades})); err != nil {
			t.Error(err)
		}
	})
	t.Run("reads as before, so SECURITY.md says so", func(t *testing.T) {
		secrets, err := account.Resource(kinds["Secret"]).Namespace(here).List(ctx, metav1.ListOptions{})
		if err != nil || !slices.ContainsFunc(secrets.Items, func(o unstructured.Unstructured) bool { return o.GetName() == "argocd-secret" }) {
			t.Errorf("Secrets of Argo CD's namespace are not read: %v", err)
		}
	})
}

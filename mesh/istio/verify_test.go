package istio_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/mesh/istio"
	meshobjects "github.com/argomesh/argomesh/mesh/objects"
)

func TestVerify(t *testing.T) {
	in := read(t, "gateway")
	typed, err := istio.Render(in.snapshot(), in.Hub)
	if err != nil {
		t.Fatal(err)
	}
	want, err := istio.AllUnstructured(typed)
	if err != nil {
		t.Fatal(err)
	}
	const manager = "argomesh-mesh.argocd"
	const stream, door = "AuthorizationPolicy argocd/argomesh-principal-stream", "AuthorizationPolicy istio-ingress/argomesh-principal"
	const route = "VirtualService argocd/argomesh-principal-stream"
	type cluster map[string]*unstructured.Unstructured
	set := func(t *testing.T, c cluster, name string, value any, path ...string) {
		t.Helper()
		if err := unstructured.SetNestedField(c[name].Object, value, path...); err != nil {
			t.Fatal(err)
		}
	}
	other := func(kind, namespace string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "security.istio.io/v1", "kind": kind,
			"metadata": map[string]any{"namespace": namespace, "name": "other"}, "spec": spec,
		}}
	}
	pods := map[string]any{"matchLabels": map[string]any{"app.kubernetes.io/name": "argomesh-principal"}}
	for title, tt := range map[string]struct {
		change func(t *testing.T, c cluster)
		want   []string
	}{
		"as rendered": {func(*testing.T, cluster) {}, nil},
		"with what an API server adds": {func(t *testing.T, c cluster) {
			c[stream].SetUID("1")
			c[stream].SetResourceVersion("7")
			set(t, c, stream, map[string]any{}, "status")
		}, nil},
		"one is missing": {func(_ *testing.T, c cluster) { delete(c, "PeerAuthentication argocd/argomesh-principal") }, []string{
			"PeerAuthentication argocd/argomesh-principal is missing: the ports take what the mesh's default allows, which may be plaintext.",
		}},
		"a field": {func(t *testing.T, c cluster) {
			set(t, c, "PeerAuthentication argocd/argomesh-principal", "PERMISSIVE", "spec", "mtls", "mode")
		}, []string{
			`PeerAuthentication argocd/argomesh-principal has spec.mtls.mode "PERMISSIVE", and should have "STRICT": the ports take what the mesh's default allows, which may be plaintext.`,
		}},
		"an agent of yesterday, and one of today": {func(t *testing.T, c cluster) {
			set(t, c, door, []any{map[string]any{
				"from": []any{map[string]any{"source": map[string]any{"notPrincipals": []any{"partner.test/ns/argocd/sa/agent", "hub.test/argomesh/agent/gone"}}}},
				"when": []any{map[string]any{"key": "connection.sni", "values": []any{"argomesh.hub.test"}}},
			}}, "spec", "rules")
		}, []string{
			door + " admits hub.test/argomesh/agent/gone, and should not: nothing of today's configuration and Agents says so.",
			door + " does not admit hub.test/argomesh/agent/edge-1, and should.",
		}},
		"a principal with its scheme": {func(t *testing.T, c cluster) {
			rules, _, err := unstructured.NestedSlice(c[stream].Object, "spec", "rules")
			if err != nil {
				t.Fatal(err)
			}
			rules[0].(map[string]any)["from"] = []any{map[string]any{"source": map[string]any{"principals": []any{"spiffe://hub.test/ns/istio-ingress/sa/istio-ingress"}}}} //nolint:forcetypeassert // a rule is a map
			set(t, c, stream, rules, "spec", "rules")
		}, []string{
			stream + " admits spiffe://hub.test/ns/istio-ingress/sa/istio-ingress, and should not: with its scheme it matches no peer.",
			stream + " does not admit hub.test/ns/istio-ingress/sa/istio-ingress, and should.",
		}},
		"one of ours that nobody asks for": {func(_ *testing.T, c cluster) {
			old := c[stream].DeepCopy()
			old.SetName("old")
			c["old"] = old
		}, []string{"AuthorizationPolicy argocd/old is left over: nothing of today's configuration asks for it, so delete it."}},
		"one that we applied and somebody took the labels from": {func(_ *testing.T, c cluster) {
			old := c[stream].DeepCopy()
			old.SetName("old")
			old.SetLabels(nil)
			old.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationApply}})
			c["old"] = old
		}, []string{"AuthorizationPolicy argocd/old is left over: nothing of today's configuration asks for it, so delete it."}},
		"no retries, and nothing said of them": {func(t *testing.T, c cluster) {
			routes, _, err := unstructured.NestedSlice(c[route].Object, "spec", "http")
			if err != nil {
				t.Fatal(err)
			}
			delete(routes[0].(map[string]any), "retries") //nolint:forcetypeassert // a route is a map
			set(t, c, route, routes, "spec", "http")
		}, []string{route + " has spec.http[0].retries nothing, and should have {}: agents reach the gateway and get no further, or more than our services is let through."}},
		"another's that allows": {func(_ *testing.T, c cluster) {
			c["other"] = other("AuthorizationPolicy", "argocd", map[string]any{"rules": []any{map[string]any{}}})
		}, []string{"AuthorizationPolicy argocd/other is not ours and holds for the same pods: whom it allows gets through beside those that are registered."}},
		"another's that denies": {func(_ *testing.T, c cluster) {
			c["other"] = other("AuthorizationPolicy", "argocd", map[string]any{"action": "DENY"})
		}, nil},
		"another's about other pods": {func(_ *testing.T, c cluster) {
			c["other"] = other("AuthorizationPolicy", "argocd", map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "x"}}})
		}, nil},
		"another's on the shared gateway": {func(_ *testing.T, c cluster) {
			c["other"] = other("AuthorizationPolicy", "istio-ingress", map[string]any{})
		}, nil},
		"another's mutual TLS for the same pods": {func(_ *testing.T, c cluster) {
			c["other"] = other("PeerAuthentication", "argocd", map[string]any{"selector": pods})
		}, []string{"PeerAuthentication argocd/other is not ours and holds for the same pods: Istio takes the older of two, so ours may count for nothing."}},
		"another's mutual TLS for the namespace": {func(_ *testing.T, c cluster) {
			c["other"] = other("PeerAuthentication", "argocd", map[string]any{})
		}, nil},
	} {
		t.Run(title, func(t *testing.T) {
			c := cluster{}
			for _, object := range want {
				c[meshobjects.Name(object)] = object.DeepCopy()
			}
			tt.change(t, c)
			var have []*unstructured.Unstructured
			for _, object := range c {
				have = append(have, object)
			}
			var got []string
			for _, difference := range istio.Verify(want, have, manager) {
				got = append(got, difference.Text)
				if about := strings.Contains(difference.Text, " admit"); (difference.About != "") != about || !strings.Contains(difference.Text, difference.About) {
					t.Errorf("%q is about %q", difference.Text, difference.About)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Verify() (-want +got):\n%s", diff)
			}
		})
	}
}

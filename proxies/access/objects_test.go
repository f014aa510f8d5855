package access_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata/fake"

	"github.com/argomesh/argomesh/proxies/access"
)

func TestKubernetesObjects(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Node"}, meta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, meta.RESTScopeNamespace)
	owned := func(o *metav1.PartialObjectMetadata, apiVersion, kind string) *metav1.PartialObjectMetadata {
		o.OwnerReferences[0].APIVersion, o.OwnerReferences[0].Kind = apiVersion, kind
		return o
	}
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects := access.KubernetesObjects{Mapper: mapper, Client: fake.NewSimpleMetadataClient(scheme,
		owned(object("v1", "Pod", "web", "p", "", "rs"), "apps/v1", "ReplicaSet"),
		owned(object("apps/v1", "ReplicaSet", "web", "rs", "shop:apps/Deployment:web/shop", "shop"), "apps/v1", "Deployment"),
		object("apps/v1", "Deployment", "web", "shop", "shop:apps/Deployment:web/shop"),
		owned(object("v1", "Pod", "web", "static", "", "n"), "v1", "Node"),
		object("v1", "Node", "", "n", "infra:/Node:x/n"),
		owned(object("v1", "Pod", "web", "odd", "", "x"), "unheard.of/v1", "Thing"),
	)}
	tracker := &access.Tracker{Objects: objects}
	p := policy(t, access.Spoke, access.Config{Enabled: true, TrackedOnly: true})
	for name, allowed := range map[string]bool{"p": true, "static": true, "odd": false} {
		d, err := tracker.Check(t.Context(), p.Decide(call(t, "GET /api/v1/namespaces/web/pods/"+name)))
		if err != nil || d.Allowed != allowed {
			t.Errorf("pod %s: allowed %v, %v: %s", name, d.Allowed, err, d.Message)
		}
	}
	if _, err := tracker.Check(t.Context(), p.Decide(call(t, "GET /api/v1/namespaces/web/pods/absent"))); !apierrors.IsNotFound(err) {
		t.Errorf("what is not there: %v", err)
	}
	if _, err := tracker.Check(t.Context(), p.Decide(call(t, "GET /api/v1/namespaces/web/services/unknown"))); !meta.IsNoMatchError(err) {
		t.Errorf("a kind nobody knows: %v", err)
	}
}

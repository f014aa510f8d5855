package hub_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet/hub"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func client(objects ...runtime.Object) *fake.FakeDynamicClient {
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.AgentResource: "AgentList", configMaps: "ConfigMapList",
	}, objects...)
}

func configMap(data map[string]any) runtime.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": hub.ConfigMap, "namespace": "argocd"}, "data": data,
	}}
}

func agent(status map[string]any) runtime.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argomesh.io/v1alpha1", "kind": "Agent",
		"metadata": map[string]any{"name": "edge-1", "namespace": "argocd"}, "status": status,
	}}
}

// TestKeepCommon: what is left of the budget of all agents is there for the next principal,
// beside what was decided, and what no one can read says nothing.
func TestKeepCommon(t *testing.T) {
	k := hub.Store{Client: client(), Namespace: "argocd"}
	first, err := k.Ensure(t.Context())
	if err != nil || first.Common != (hub.Common{}) {
		t.Fatalf("Keep() = %+v, %v", first, err)
	}
	left := hub.Common{Bytes: -77, At: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
	if err := k.SaveCommon(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	want := first
	want.Common = left
	if got, err := k.Ensure(t.Context()); err != nil || got != want {
		t.Errorf("Keep() = %+v, %v, want %+v", got, err, want)
	}
	damaged := hub.Store{Namespace: "argocd", Client: client(configMap(map[string]any{
		"uid": "u", "default-project": "not-shared", "budget-bytes": "many", "budget-at": "2026-11-23T12:00:00Z",
	}))}
	if got, err := damaged.Ensure(t.Context()); err != nil || got.Common != (hub.Common{}) {
		t.Errorf("damaged: Keep() = %+v, %v", got, err)
	}
}

// TestKeepVersion: the release is told beside what was decided, and written when it is another.
func TestKeepVersion(t *testing.T) {
	c := client()
	k := hub.Store{Client: c, Namespace: "argocd"}
	first, err := k.Ensure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1.2.0", "v1.2.0", "v1.3.0"} {
		if err := k.SaveVersion(t.Context(), version); err != nil {
			t.Fatal(err)
		}
		o, err := c.Resource(configMaps).Namespace("argocd").Get(t.Context(), hub.ConfigMap, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := unstructured.NestedString(o.Object, "data", hub.VersionKey); got != version {
			t.Errorf("it says %q, want %q", got, version)
		}
	}
	updates := 0
	for _, a := range c.Actions() {
		if a.GetVerb() == "update" {
			updates++
		}
	}
	if updates != 2 {
		t.Errorf("%d updates, want 2", updates)
	}
	if again, err := k.Ensure(t.Context()); err != nil || again != first {
		t.Errorf("Keep() = %+v, %v, want %+v", again, err, first)
	}
}

func TestKeep(t *testing.T) {
	yes, no := true, false
	met := map[string]any{"history": map[string]any{"id": "h"}}
	for name, c := range map[string]struct {
		there []runtime.Object
		asked *bool
		want  hub.DefaultProject
	}{
		"a new hub does not share it":                        {want: hub.NotShared},
		"a new hub shares it where a person says so":         {asked: &yes, want: hub.Shared},
		"an agent that never connected makes no earlier hub": {there: []runtime.Object{agent(map[string]any{})}, want: hub.NotShared},
		"a hub that served an agent goes on": {
			there: []runtime.Object{agent(met)}, want: hub.Shared,
		},
		"a ConfigMap of an earlier release goes on": {
			there: []runtime.Object{configMap(map[string]any{"uid": "u"})}, want: hub.Shared,
		},
		"an earlier hub ends it where a person says so": {
			there: []runtime.Object{configMap(map[string]any{"uid": "u"})}, asked: &no, want: hub.NoLongerShared,
		},
		"a decision stays when the setting goes": {
			there: []runtime.Object{configMap(map[string]any{"uid": "u", "default-project": "shared"})}, want: hub.Shared,
		},
		"sharing that ended may begin again": {
			there: []runtime.Object{configMap(map[string]any{"uid": "u", "default-project": "no-longer-shared"})}, asked: &yes, want: hub.Shared,
		},
		"what ended stays ended": {
			there: []runtime.Object{configMap(map[string]any{"uid": "u", "default-project": "no-longer-shared"})}, asked: &no, want: hub.NoLongerShared,
		},
		"what never began does not end": {
			there: []runtime.Object{configMap(map[string]any{"uid": "u", "default-project": "not-shared"})}, asked: &no, want: hub.NotShared,
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := client(c.there...)
			store := hub.Store{Client: api, Namespace: "argocd", ShareDefault: c.asked}
			got, err := store.Ensure(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got.DefaultProject != c.want || got.UID == "" {
				t.Errorf("Keep() = %+v, want %s", got, c.want)
			}
			again, err := hub.Store{Client: api, Namespace: "argocd"}.Ensure(t.Context())
			if diff := cmp.Diff(got, again); diff != "" || err != nil {
				t.Errorf("the next principal reads (-first +next) %v\n%s", err, diff)
			}
		})
	}
}

func TestKeepRefusesADamagedConfigMap(t *testing.T) {
	for name, c := range map[string]struct {
		data map[string]any
		want string
	}{
		"no identity":       {map[string]any{}, "delete it to give the hub a new identity"},
		"another decision":  {map[string]any{"uid": "u", "default-project": "maybe"}, `data.default-project is "maybe"`},
		"not text at all":   {map[string]any{"uid": map[string]any{}}, "has no data.uid"},
		"another mapping":   {map[string]any{"uid": "u", "mapping": "label"}, `data.mapping is "label"`},
		"nothing but space": {map[string]any{"uid": "u", "default-project": " "}, "may be not-shared, shared or no-longer-shared"},
	} {
		t.Run(name, func(t *testing.T) {
			api := client(configMap(c.data))
			if _, err := (hub.Store{Client: api, Namespace: "argocd"}).Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Keep() error = %v, want %q", err, c.want)
			}
			after, err := api.Resource(configMaps).Namespace("argocd").Get(t.Context(), hub.ConfigMap, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.data, after.Object["data"]); diff != "" {
				t.Errorf("it was written (-want +got)\n%s", diff)
			}
		})
	}
}

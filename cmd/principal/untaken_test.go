package main

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/cmd/internal/start"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/events"
	"github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/fleet/hubclusters"
	"github.com/argomesh/argomesh/fleet/links"
	"github.com/argomesh/argomesh/test/kit"
)

// TestUntaken is what the principal does with an Application in Argo CD's namespace whose
// destination is an agent of a hub that maps by namespace, and with one for another cluster.
func TestUntaken(t *testing.T) {
	object := func(apiVersion, kind, name string, rest map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
		o.SetNamespace("argocd")
		o.SetName(name)
		o.SetUID("7f1c0f5e-4f51-4f0e-9f53-0d3a4b9a7c11")
		o.SetResourceVersion("1")
		for key, value := range rest {
			o.Object[key] = value
		}
		return o
	}
	application := func(name, destination string) *unstructured.Unstructured {
		return object("argoproj.io/v1alpha1", "Application", name, map[string]any{
			"spec":      map[string]any{"destination": map[string]any{"name": destination}},
			"operation": map[string]any{"sync": map[string]any{}},
		})
	}
	push := object("v1", "Secret", "push", map[string]any{"data": map[string]any{"name": base64.StdEncoding.EncodeToString([]byte("push"))}})
	push.SetLabels(map[string]string{"argocd.argoproj.io/secret-type": "cluster"})
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	applications := schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		hubclusters.Secrets: "SecretList", configMaps: "ConfigMapList", events.Events: "EventList", applications: "ApplicationList",
		{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"}: "AppProjectList",
	}, application("astray", "edge-1"), application("pushed", "push"), application("lost", "nowhere"), push,
		object("v1", "ConfigMap", hub.ConfigMap, map[string]any{"data": map[string]any{"uid": "u"}}))
	cfg := principalconfig.Default()
	cfg.Hub.ApplicationController = false
	metrics := prometheus.NewRegistry()
	store, err := kube.New(kube.Config{Client: client, Watch: links.Watched("argocd"), Only: links.WatchedOnly(), Metrics: metrics, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	var edge v1alpha1.Agent
	edge.Name, edge.Spec.Mode = "edge-1", v1alpha1.ModeManaged
	agents := &fleet.Registry{Mapping: cfg.Owners(hub.ByNamespace)}
	agents.Set([]v1alpha1.Agent{edge})
	u, err := newUntaken(&hubCore{
		cfg: cfg, base: &start.Base{Dynamic: client, Metrics: metrics, Log: zerolog.Nop()}, store: store, agents: agents,
		hub: hub.NewState(hub.Store{Client: client, Namespace: cfg.Namespace}, nil, zerolog.Nop()),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := kit.Context(t)
	counted, err := client.Resource(configMaps).Namespace("argocd").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	end := kit.Background(t, func(ctx context.Context) error { return together(ctx, store.Run, u.Run) })
	for said := ""; said != "2"; {
		select {
		case e := <-counted.ResultChan():
			said, _, _ = unstructured.NestedString(e.Object.(*unstructured.Unstructured).Object, "data", hub.UntakenKey)
		case <-ctx.Done():
			t.Fatal("two Applications are not counted")
		}
	}
	for name, want := range map[string]string{"astray": "create it there (argocd app create edge-1/astray)", "lost": "does not know the cluster", "pushed": ""} {
		o, err := client.Resource(applications).Namespace("argocd").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		message, _, _ := unstructured.NestedString(o.Object, "status", "operationState", "message")
		_, pressed := o.Object["operation"]
		if !strings.Contains(message, want) || (message == "") != (want == "") || pressed != (want == "") {
			t.Errorf("%s: its sync says %q, want %q; it is under way: %v", name, message, want, pressed)
		}
	}
	end()
}

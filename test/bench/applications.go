//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

const (
	// project is the AppProject of all Applications.
	project = "fleet"
	// statusBytes is about the length of a status, as JSON.
	statusBytes = 5 << 10
	// writers is how many writes the load has under way at once.
	writers = 16
)

// names returns n names of Applications.
func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("app-%05d", i)
	}
	return all
}

// revision is what the nth change of an Application's spec sets.
func revision(n int) string { return fmt.Sprintf("r%d", n) }

// application is an Application of an agent as a person would write it, without a
// finalizer.
func application(name, namespace, agent, revision string) map[string]any {
	return map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{
			"name": name, "namespace": namespace,
			"labels": map[string]any{"app.kubernetes.io/part-of": "shop", "tier": "front"},
		},
		"spec": map[string]any{
			"project":     project,
			"destination": map[string]any{"name": agent, "namespace": name},
			"source": map[string]any{
				"repoURL": "https://git.example.org/fleet/deployments.git", "path": "apps/" + name, "targetRevision": revision,
				"helm": map[string]any{
					"releaseName": name,
					"valueFiles":  []any{"values.yaml", "values-production.yaml"},
					"parameters":  []any{map[string]any{"name": "replicas", "value": "3"}, map[string]any{"name": "image.tag", "value": "1.27.3"}},
				},
			},
			"syncPolicy": map[string]any{"syncOptions": []any{"CreateNamespace=true", "ServerSideApply=true"}},
		},
	}
}

// status is an Application's status of about statusBytes, as the application
// controller writes it.
func status(name, revision string) map[string]any {
	s := map[string]any{
		"health":       map[string]any{"status": "Healthy", "lastTransitionTime": "2026-01-01T00:00:00Z"},
		"reconciledAt": "2026-01-01T00:00:00Z",
		"sourceType":   "Helm",
		"sync":         map[string]any{"status": "Synced", "revision": revision},
		"summary":      map[string]any{"images": []any{"registry.example.org/shop/" + name + ":1.27.3"}},
	}
	var resources []any
	for i, length := 0, len(text(s)); length < statusBytes-100; i++ {
		resource := map[string]any{
			"version": "v1", "kind": "ConfigMap", "namespace": name, "name": fmt.Sprintf("%s-settings-%d", name, i),
			"status": "Synced", "health": map[string]any{"status": "Healthy"},
		}
		resources = append(resources, resource)
		length += len(text(resource)) + 1 // and a comma
	}
	s["resources"] = resources
	return s
}

func text(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps, lists and strings only
	}
	return raw
}

// each calls f for every name, writers at a time, until one fails.
func each(ctx context.Context, all []string, f func(ctx context.Context, name string) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for _, name := range all {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error { return f(ctx, name) })
	}
	return g.Wait()
}

// create makes an object on an API server.
func create(ctx context.Context, where dynamic.ResourceInterface, object map[string]any) error {
	_, err := where.Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	return err
}

// setRevision changes the spec of an Application.
func setRevision(ctx context.Context, where dynamic.ResourceInterface, name, revision string) error {
	return merge(ctx, where, name, map[string]any{"spec": map[string]any{"source": map[string]any{"targetRevision": revision}}})
}

// setStatus does what the application controller does after a sync.
func setStatus(ctx context.Context, where dynamic.ResourceInterface, name, revision string) error {
	return merge(ctx, where, name, map[string]any{"status": status(name, revision)})
}

func merge(ctx context.Context, where dynamic.ResourceInterface, name string, change map[string]any) error {
	_, err := where.Patch(ctx, name, types.MergePatchType, text(change), metav1.PatchOptions{})
	return err
}

// differences compares specs and statuses of a hub's and a spoke's Applications by
// name and returns a few words about each that differs. The destination is left out:
// a spoke's is its own Kubernetes cluster.
func differences(hub, spoke map[string]map[string]any) []string {
	var found []string
	for name, left := range hub {
		right, ok := spoke[name]
		if !ok {
			found = append(found, name+" is missing")
			continue
		}
		for _, part := range []string{"spec", "status"} {
			if !bytes.Equal(shared(left[part]), shared(right[part])) {
				found = append(found, name+" has another "+part)
			}
		}
	}
	for name := range spoke {
		if _, ok := hub[name]; !ok {
			found = append(found, name+" is too much")
		}
	}
	return found
}

// shared is the part of an Application that both sides hold; one that is empty is
// none.
func shared(part any) []byte {
	fields, _ := part.(map[string]any)
	fields = maps.Clone(fields)
	delete(fields, "destination")
	if len(fields) == 0 {
		return nil
	}
	return text(fields)
}

// lost makes an error of differences.
func lost(found []string) error {
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("the sides differ in %d Applications: %s", len(found), strings.Join(found[:min(len(found), 5)], ", "))
}

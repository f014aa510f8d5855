package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/stream"
)

// namespaceMaker is a Store that makes the namespace of an Application which is made,
// if it is missing. None is ever deleted.
type namespaceMaker struct {
	backends.Store
	client dynamic.Interface
}

// makesNamespaces returns store as the configuration wants it.
func makesNamespaces(cfg agentconfig.Config, store backends.Store, client dynamic.Interface) backends.Store {
	if !cfg.Mapping.CreateNamespaces {
		return store
	}
	return namespaceMaker{Store: store, client: client}
}

// Create implements backends.Store.
func (m namespaceMaker) Create(ctx context.Context, key stream.ResourceKey, raw []byte,
	opts ...backends.WriteOption) (backends.Object, error) {
	o, err := m.Store.Create(ctx, key, raw, opts...)
	if key.Kind != stream.Application || !apierrors.IsNotFound(err) {
		return o, err
	}
	ns := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": key.Namespace, "labels": map[string]any{"app.kubernetes.io/part-of": "argomesh"}},
	}}
	_, err = m.client.Resource(namespaces).Create(ctx, ns, metav1.CreateOptions{FieldManager: agentconfig.Name})
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		return m.Store.Create(ctx, key, raw, opts...)
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		return backends.Object{}, fmt.Errorf("make namespace %s: %w: %w", key.Namespace, stream.ErrRefused, err)
	}
	return backends.Object{}, fmt.Errorf("make namespace %s: %w: %w", key.Namespace, stream.ErrUnavailable, err)
}

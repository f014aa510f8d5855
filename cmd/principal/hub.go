package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// hubConfigMap keeps the hub's identity, by which a spoke tells the copies of
// this hub from another's. It outlives principals and is part of a backup.
const hubConfigMap = "argomesh-hub"

// hubUID returns the identity of the hub, made at the first start. It asks until
// the API server answers; false when ctx was done first.
func hubUID(ctx context.Context, client dynamic.Interface, namespace string, log zerolog.Logger) (uid string, ok bool) {
	err := retry(ctx, log, "cannot read the hub's identity", func() error {
		maps := client.Resource(configMaps).Namespace(namespace)
		cm, err := maps.Get(ctx, hubConfigMap, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			cm = &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": map[string]any{
					"name": hubConfigMap, "namespace": namespace,
					"labels": map[string]any{"app.kubernetes.io/part-of": "argomesh"},
				},
				"data": map[string]any{"uid": uuid.NewString()},
			}}
			cm, err = maps.Create(ctx, cm, metav1.CreateOptions{FieldManager: "argomesh-principal"})
			if apierrors.IsAlreadyExists(err) { // another part of this process, or another replica, was faster
				cm, err = maps.Get(ctx, hubConfigMap, metav1.GetOptions{})
			}
		}
		if err != nil {
			return err
		}
		uid, _, _ = unstructured.NestedString(cm.Object, "data", "uid")
		if uid == "" {
			return fmt.Errorf("ConfigMap %s/%s has no data.uid: delete it to give the hub a new identity", namespace, hubConfigMap)
		}
		return nil
	})
	return uid, err == nil
}

// namespaceInterval is how often the namespace of an agent is looked at.
const namespaceInterval = 5 * time.Minute

// keepNamespace makes the hub namespace of an agent whenever it is missing, until
// ctx is done.
func keepNamespace(ctx context.Context, client dynamic.Interface, name string, log zerolog.Logger) {
	again := time.NewTicker(namespaceInterval)
	defer again.Stop()
	for {
		ensureNamespace(ctx, client, name, log)
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// ensureNamespace tries until the namespace is there or ctx is done.
func ensureNamespace(ctx context.Context, client dynamic.Interface, name string, log zerolog.Logger) {
	_ = retry(ctx, log, "cannot make the namespace of an agent", func() error {
		all := client.Resource(namespaces)
		there, err := all.Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil && there.GetDeletionTimestamp() != nil:
			return fmt.Errorf("namespace %s is being deleted", name) // then it is made anew
		case err == nil || !apierrors.IsNotFound(err):
			return err
		}
		ns := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": name, "labels": map[string]any{"app.kubernetes.io/part-of": "argomesh"}},
		}}
		if _, err := all.Create(ctx, ns, metav1.CreateOptions{FieldManager: "argomesh-principal"}); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	}) // its only error is that ctx is done
}

// retry calls f until it succeeds or ctx is done, logging the first failure of
// each kind.
func retry(ctx context.Context, log zerolog.Logger, message string, f func() error) error {
	backOff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 5 * time.Second}
	last := ""
	return backOff.DelayFunc().Until(ctx, true, true, func(context.Context) (bool, error) {
		err := f()
		if err == nil {
			return true, nil
		}
		if ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			log.Warn().Err(err).Msg(message)
		}
		return false, nil
	})
}

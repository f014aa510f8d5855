package links

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/fleet/hub"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// namespaceInterval is how often the namespace of an agent is looked at.
const namespaceInterval = 5 * time.Minute

// maintainNamespace makes the hub namespace of an agent whenever it is missing, until
// ctx is done.
func maintainNamespace(ctx context.Context, client dynamic.Interface, name string, log zerolog.Logger) {
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
	_ = hub.Retry(ctx, log, "cannot create the namespace of an agent, retrying", func() error {
		all := client.Resource(namespaces)
		there, err := all.Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil && there.GetDeletionTimestamp() != nil:
			return fmt.Errorf("namespace %s is being deleted", name) // then it is made again
		case err == nil || !apierrors.IsNotFound(err):
			return err
		}
		ns := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": name, "labels": map[string]any{"app.kubernetes.io/part-of": "argomesh"}},
		}}
		if _, err := all.Create(ctx, ns,
			metav1.CreateOptions{FieldManager: "argomesh-principal"}); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	}) // its only error is that ctx is done
}
